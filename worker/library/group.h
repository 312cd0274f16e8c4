// SPDX-License-Identifier: Apache-2.0

// Group is the transport for a program that has its own idea of membership: what include/ringmaster_group.h
// offers, in C++. It owns the Fabric and the Communicator of the current generation, and checks arguments
// that would otherwise end the generation.
//
// Not thread-safe, except Abort and Lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::library {

class Group {
 public:
  // `transport`: auto, shm or ucx. Errors: those of Fabric::Create.
  static Result<std::unique_ptr<Group>> Open(const std::string& transport, Duration timeout);

  const std::string& address() const { return address_; }
  const std::string& transport() const { return transport_; }

  // Ends the generation before. Errors: kInvalid for arguments that are wrong in themselves, else those of
  // Fabric::Connect.
  Status Connect(const fabric::Membership& membership);
  // As Fabric::Abort. Thread-safe.
  void Abort(uint64_t generation) { fabric_->Abort(generation); }

  // Returns the lowest rank from `first` whose process ran on this host and has ended, or -1. Thread-safe.
  int Lost(int first) const;

  // Each returns kInvalid for a call that must not reach the communicator.
  Status CheckConnected() const;
  Status CheckShares(uint64_t size) const;  // of equal size
  Status CheckRank(int rank) const;
  Status CheckPeer(int rank) const;  // another rank

  // REQUIRES: CheckConnected.
  fabric::Communicator& communicator() { return *communicator_; }

 private:
  explicit Group(std::unique_ptr<fabric::Fabric> fabric)
      : fabric_(std::move(fabric)), address_(fabric_->Address()) {}

  const std::unique_ptr<fabric::Fabric> fabric_;
  const std::string address_;
  struct Process {
    int rank = 0;
    Fd fd;  // a pidfd
  };
  std::string transport_ = "none";
  uint64_t generation_ = 0;
  std::unique_ptr<fabric::Communicator> communicator_;  // null before Connect, and after one that failed
  mutable Mutex mutex_;
  std::vector<Process> processes_ RM_GUARDED_BY(mutex_);  // of the other members on this host
};

}  // namespace ringmaster::library
