// SPDX-License-Identifier: Apache-2.0

// Capacity: whether a gang would find nodes now.
//
// Tracks the free capacity of the nodes and applies the scheduler's node filters: requests, pod slots,
// taints, node selectors, required node affinity, one topology key. A backend feeds it from its view. Pure
// arithmetic, no clock. Not thread-safe.
//
// A pod that was released and has no node yet is *expected*: it occupies a place on some node until it is
// observed as bound or gone, so that two gangs are never released into the same room. When a pod is bound to
// another node than expected, the expected pods that it displaces get other places.
//
// The answer is exact for the identical pods of a gang. It does not consider priorities and preemption,
// unscheduled pods of other owners, inter-pod affinity, zonal volumes and scheduler plug-ins. A gang that is
// released by mistake is withdrawn after its timeout like any other that finds no nodes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace ringmaster::core {

// Resource amounts by name: cpu in thousandths, memory in bytes, extended resources as counts.
using Resources = std::map<std::string, int64_t>;

struct Taint {
  std::string key;
  std::string value;
  std::string effect;  // NoSchedule | NoExecute | PreferNoSchedule
};
struct Toleration {
  std::string key;  // empty: every key
  bool exists = false;
  std::string value;
  std::string effect;  // empty: every effect
};

struct NodeFacts {
  std::string name;
  Resources allocatable;  // with "pods"
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  bool ready = true;
  bool unschedulable = false;
};

// One requirement of a node selector term. The key "metadata.name" means the node's name.
struct Requirement {
  enum class Op : uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };
  std::string key;
  Op op = Op::kIn;
  std::vector<std::string> values;
};

// What the scheduler needs to know about a pod.
struct PodShape {
  Resources requests;
  std::vector<Toleration> tolerations;
  std::map<std::string, std::string> node_selector;
  std::vector<std::vector<Requirement>> affinity;  // one term must match completely; empty: no constraint
  std::string topology_key;  // all pods of the gang need nodes with the same value of this label
};

// Whether the node passes the pod's filters, apart from its free capacity.
bool Matches(const PodShape& shape, const NodeFacts& node);

class Capacity {
 public:
  using Shape = std::shared_ptr<const PodShape>;

  Capacity() = default;
  Capacity(Capacity&&) = default;
  Capacity& operator=(Capacity&&) = default;
  Capacity(const Capacity&) = delete;  // pods_ points into nodes_

  void SetNode(NodeFacts node);
  void RemoveNode(const std::string& name);

  // Records a pod that is bound to a node, of any owner. An expected pod is no longer expected.
  void SetPod(const std::string& uid, const Resources& requests, const std::string& node);
  // Records a released pod without a node. Does nothing for a known pod.
  void ExpectPod(const std::string& uid, const Shape& shape);
  void RemovePod(const std::string& uid);  // the pod is gone or has ended
  // Records that the view shows the pod gated. A reserved pod keeps its place: the view may not include its
  // release yet.
  void SetGated(const std::string& uid);

  // Makes all of these pods expected and returns true, or changes nothing and returns false when there is no
  // room for all. `peer_nodes`: the nodes of the gang's other pods, for the topology key.
  bool Reserve(const std::vector<std::string>& uids, const Shape& shape,
               const std::vector<std::string>& peer_nodes = {});

  // Undoes Reserve: the release definitely failed, or a live read shows the pod still gated.
  void Unreserve(const std::string& uid);

  // Returns how many of `count` more pods the nodes have room for, and what is missing for the others.
  Fit FitOf(const PodShape& shape, int32_t count, const std::vector<std::string>& peer_nodes = {}) const;

 private:
  using Amounts = std::vector<int64_t>;  // indexed by names_

  struct Node {
    std::optional<NodeFacts> facts;  // unset: only its pods are known so far
    Amounts allocatable;
    Amounts used;
    std::set<std::string> expected;  // uids
  };
  using Nodes = std::map<std::string, Node>;
  struct Pod {
    const Amounts* requests = nullptr;  // points into kinds_
    Nodes::value_type* at = nullptr;    // nullptr: expected, and no node has room for it
    Shape shape;                        // set for an expected pod
    bool reserved = false;
  };
  struct Room {
    std::vector<std::pair<std::string, int32_t>> nodes;  // nodes with room for at least one pod
    int32_t total = 0;
    int32_t not_ready = 0;
    int32_t unmatched = 0;
    int32_t full = 0;
  };

  size_t IndexOf(const std::string& resource);
  Amounts ToAmounts(const Resources& resources);
  Amounts AmountsOfPod(const Resources& requests);
  Amounts Lookup(const Resources& resources) const;
  static int64_t At(const Amounts& amounts, size_t index) {
    return index < amounts.size() ? amounts[index] : 0;
  }
  static void Add(Amounts& to, const Amounts& amounts, int64_t sign);
  const Amounts* Hold(Amounts amounts);
  void Drop(const Amounts* amounts);
  int32_t PodsThatFit(const Node& node, const Amounts& requests) const;
  Room RoomFor(const PodShape& shape, int32_t count, const std::vector<std::string>& peer_nodes) const;
  std::string Missing(const PodShape& shape, int32_t count, const Room& room) const;
  void Place(const std::string& uid, Pod& pod);
  void Unplace(const std::string& uid, Pod& pod);
  void PlaceAgain(const std::vector<std::string>& uids);
  void MoveExpectedPods(Node& node);
  void PlaceWaitingOn(const std::string& node);
  bool PlaceOn(Nodes::value_type& place, const std::string& uid, Pod& pod);

  std::map<std::string, size_t> names_;
  std::map<Amounts, int64_t> kinds_;  // distinct requests, and how many pods share each
  Nodes nodes_;
  std::map<std::string, Pod> pods_;  // by uid
  std::set<std::string> unplaced_;   // expected pods that no node has room for
};

}  // namespace ringmaster::core
