// SPDX-License-Identifier: Apache-2.0

// DeviceRoom: the devices of Kubernetes' dynamic resource allocation (DRA) as amounts for Capacity.
//
// A *device set* is what one request of a claim may get: the devices that the selectors of its DeviceClass
// and its additional ones select. For Capacity it is a resource, named DeviceResource(class): a node has as
// many of it as its ResourceSlices offer, and a pod takes as many as its claims ask for. Once a claim is
// allocated, its pod takes the allocated devices instead, in each set that contains them. Devices of claims
// that belong to no pod of the operator reduce what the node has.
//
// A set that is contained in another one (a model of a class) takes from both. So the sums are exact while
// any two sets are disjoint or one contains the other; for others they are upper bounds of the room. They are
// also upper bounds for devices that share counters (partitions of one GPU) and for claims with constraints.
//
// A claim is *not counted* when the operator cannot know which devices it may get: its selector is not
// evaluated (device_selector.h), a device belongs to no single node or to several claims, a request asks for
// all devices or for the first available kind. Then it never keeps a gang out, and PodShape::note says why.
//
// A DeviceClass may have the name of an extended resource. A pod that asks for it gets devices of the class
// on the nodes whose device plugin does not offer it.
//
// Pure; a value computed from all objects at once. Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/core/capacity/capacity.h"
#include "operator/core/capacity/device_selector.h"

namespace ringmaster::core {

// A ResourceSlice. A pool is complete when all slices of its newest generation exist.
struct DeviceSlice {
  std::string driver;
  std::string pool;
  int64_t generation = 0;
  int64_t slices = 0;  // of the pool
  std::string node;    // empty: its devices belong to no single node, unless they name one
  std::vector<Device> devices;
};

struct DeviceClass {
  std::string name;
  std::vector<std::string> selectors;
  std::string extended_resource;  // empty: none
};

// A request of a claim for a number of devices.
struct DeviceRequest {
  std::string class_name;
  std::vector<std::string> selectors{};
  int64_t count = 1;
  bool tolerates = false;  // some taint
};

struct ClaimTemplate {
  std::vector<DeviceRequest> requests;
  std::string uncounted{};  // what its other requests are; empty: there are none
};

// A ResourceClaim that is allocated.
struct DeviceClaim {
  struct Allocated {
    std::string driver;
    std::string pool;
    std::string device;
  };
  std::string pod;  // NAMESPACE/NAME of the pod that it was generated for; empty: none
  std::string uid;  // of that pod
  std::vector<Allocated> devices;
};

class DeviceRoom {
 public:
  struct View {
    std::vector<std::shared_ptr<const DeviceSlice>> slices;
    std::vector<std::shared_ptr<const DeviceClass>> classes;
    std::vector<std::shared_ptr<const ClaimTemplate>> templates;  // that pods of the operator use
    std::vector<std::shared_ptr<const DeviceClaim>> claims;
    // Whether it is a pod of the operator that takes room.
    std::function<bool(const std::string& pod, const std::string& uid)> is_own;
  };

  // Nothing has been read yet: pods with claims wait.
  DeviceRoom() = default;
  // Nothing can be read, and why: no claim is counted.
  explicit DeviceRoom(std::string unavailable)
      : state_(State::kUnavailable), reason_(std::move(unavailable)) {}
  explicit DeviceRoom(const View& view);
  // The devices of `other` with the claims of the view, which differ from its claims only.
  DeviceRoom(const DeviceRoom& other, const View& view);

  // Whether a pod with these requests asks for devices by the name of an extended resource.
  bool Extends(const Resources& requests) const;

  // Returns the shape with its devices among the requests, instead of claims. `claims`: those that it names;
  // null for one that does not exist.
  PodShape Count(const PodShape& shape,
                 const std::vector<std::shared_ptr<const ClaimTemplate>>& claims) const;

  // What allocated claims give a pod.
  struct Taken {
    std::string node;
    Resources amounts;
    size_t claims = 0;
    bool operator==(const Taken&) const = default;
  };
  // nullptr: nothing.
  const Taken* TakenBy(const std::string& pod, const std::string& uid) const;
  // Returns the pods for which TakenBy differs.
  std::vector<std::string> PodsWithOtherDevices(const DeviceRoom& other) const;
  // Returns what the pod takes: `counted` until all its claims are allocated. `claims`: that it has.
  Resources RequestsOf(const Resources& requests, const PodShape& counted, size_t claims,
                       const Taken* taken) const;

  // Returns what the node has in addition to what its kubelet reports.
  Resources OfNode(const NodeFacts& node) const;

 private:
  enum class State : uint8_t { kUnread, kUnavailable, kRead };

  using Contents =
      std::pair<std::string, std::pair<std::vector<std::string>, bool>>;  // class, selectors, tolerates
  struct Set {
    std::string resource;
    std::string class_name;
    std::string extended;   // the extended resource of the class; only for the set of a class
    std::string uncounted;  // why; empty: it is counted
    std::vector<DeviceSelector> selectors;
    bool tolerates = false;
    std::vector<size_t> within{};  // other sets that contain it
    int64_t size = 0;
  };
  using Counts = std::map<size_t, int64_t>;  // by set

  // A device. Its node is a key of `nodes` below.
  struct Place {
    const std::string* node = nullptr;
    const std::vector<size_t>* sets = nullptr;
  };
  // What does not depend on claims.
  struct Inventory {
    std::vector<Set> sets;
    std::map<Contents, size_t> by_contents;
    std::map<std::string, size_t> extended;         // the sets of classes, by the extended resource
    std::set<std::vector<size_t>> kinds;            // the sets of some device
    std::unordered_map<std::string, Place> places;  // by DRIVER/POOL/DEVICE
    std::unordered_map<std::string, Counts> nodes;  // all devices
  };

  static std::string BothOf(const std::string& class_name);
  void AddSet(const DeviceClass& of, const std::vector<std::string>& selectors, bool tolerates);
  const Set* Find(const std::string& class_name, const std::vector<std::string>& selectors = {},
                  bool tolerates = false) const;
  void Add(const Set& set, int64_t count, bool asked, PodShape& to) const;
  Resources ToResources(const Counts& counts) const;
  void ReadDevices(const View& view);
  void ReadClaims(const View& view);

  State state_ = State::kUnread;
  std::string reason_;
  std::shared_ptr<Inventory> all_ =
      std::make_shared<Inventory>();  // shared, and not changed after construction
  std::unordered_map<std::string, Counts>
      elsewhere_;                                 // those of claims that belong to no pod of the operator
  std::unordered_map<std::string, Taken> taken_;  // by NAMESPACE/NAME/UID of the pod
};

}  // namespace ringmaster::core
