// SPDX-License-Identifier: Apache-2.0

// The EndpointSlice by which the leader becomes the endpoint of the rendezvous Service. The Service has no
// selector: a label would stay on a pod that has lost the Lease.
//
// EndpointPublisher writes the slice, watches it, and repairs it: after a failed write, an edit, a deletion,
// or a late write of an earlier leader. Without the slice no agent reaches this leader, so /readyz reports
// Problem().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watch/reflector.h"

namespace ringmaster::operator_main {

// Returns the object for server-side apply.
Json EndpointSliceFor(const std::string& service, const std::string& namespace_, const std::string& ip,
                      uint16_t port);

enum class SliceRepair : uint8_t {
  kNone,
  kApply,
  kReplace,  // delete it, then apply: the address type of a slice cannot change
};

// Returns what makes `current` (null: no slice) contain all of `wanted`. Other fields of it do not matter.
SliceRepair RepairOf(const Json& current, const Json& wanted);

// Runs one thread. Thread-safe.
class EndpointPublisher {
 public:
  struct Options {
    std::string service;
    std::string namespace_;
    std::string ip;
    uint16_t port = 0;
    // Whether this process still leads; checked before each write. Thread-safe.
    std::function<bool()> may_write;
    kube::Watcher::Options watcher = {};
  };

  // REQUIRES: `api` outlives the publisher.
  EndpointPublisher(kube::ApiClient& api, Options options);
  ~EndpointPublisher();
  EndpointPublisher(const EndpointPublisher&) = delete;
  EndpointPublisher& operator=(const EndpointPublisher&) = delete;

  // Returns why agents may not find this leader; empty: the slice leads to it.
  std::string Problem() const;

 private:
  class Slice;

  const std::shared_ptr<Slice> slice_;
  kube::Reflectors reflectors_;
};

}  // namespace ringmaster::operator_main
