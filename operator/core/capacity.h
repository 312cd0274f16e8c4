// SPDX-License-Identifier: Apache-2.0

// Whether a gang would find nodes now: the free capacity of the nodes, as far as a scheduler's filters are
// known here (requests, pod slots, taints, node selectors, required node affinity, one topology key). Fed by
// a backend from its view; pure arithmetic, no clock. Single-threaded.
//
// Pods that were released and have no node yet are *expected*: each holds a place on some node until it is
// seen bound or gone, so that two gangs are never released into the same room. When one is bound elsewhere
// than expected, those it drives out are placed anew.
//
// For the identical pods of a gang the answer is exact. Not known here: priorities and preemption, pods of
// others that still look for a node, inter-pod affinity, volumes bound to zones, scheduler plug-ins. A gang
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

// In whole units of the API: cpu in thousandths, memory in bytes, extended resources as counted.
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

// One line of a node selector term. `key` "metadata.name" means the node's name.
struct Requirement {
  enum class Op : uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };
  std::string key;
  Op op = Op::kIn;
  std::vector<std::string> values;
};

// What matters about a pod that looks for a node.
struct PodShape {
  Resources requests;
  std::vector<Toleration> tolerations;
  std::map<std::string, std::string> node_selector;
  std::vector<std::vector<Requirement>> affinity;  // one of these must hold as a whole; empty: no demand
  std::string topology_key;  // all pods of the gang on nodes with one value of this label
};

// Whether the filters let the pod onto the node, room aside.
bool Matches(const PodShape& shape, const NodeFacts& node);

class Capacity {
 public:
  using Shape = std::shared_ptr<const PodShape>;

  Capacity() = default;
  Capacity(Capacity&&) = default;
  Capacity& operator=(Capacity&&) = default;
  Capacity(const Capacity&) = delete;  // its pods point at its nodes

  void SetNode(NodeFacts node);
  void RemoveNode(const std::string& name);

  // A pod with a node, of whomever. An expected one has arrived.
  void SetPod(const std::string& uid, const Resources& requests, const std::string& node);
  // Released and without a node: as seen, or as just done by us. Nothing happens when it is known.
  void ExpectPod(const std::string& uid, const Shape& shape);
  void RemovePod(const std::string& uid);  // gone or ended
  // Seen with its gate. A reserved one keeps its place: the view may not have seen the release yet.
  void SetGated(const std::string& uid);

  // All of them have room, and are expected from now on; or nothing is changed. `peer_nodes`: nodes of the
  // gang's other pods, for the topology key.
  bool Reserve(const std::vector<std::string>& uids, const Shape& shape,
               const std::vector<std::string>& peer_nodes = {});

  // The release surely did not happen, or a live read shows the gate still there.
  void Unreserve(const std::string& uid);

  // How many of `count` more pods have room.
  Fit FitOf(const PodShape& shape, int32_t count, const std::vector<std::string>& peer_nodes = {}) const;

 private:
  using Amounts = std::vector<int64_t>;  // by index of names_

  struct Node {
    std::optional<NodeFacts> facts;  // unset: only its pods are known
    Amounts allocatable;
    Amounts used;
    std::set<std::string> expected;  // uids
  };
  using Nodes = std::map<std::string, Node>;
  struct Pod {
    const Amounts* requests = nullptr;  // in kinds_
    Nodes::value_type* at = nullptr;    // unset: expected, and no node has room for it
    Shape shape;                        // of an expected one
    bool reserved = false;
  };
  struct Room {
    std::vector<std::pair<std::string, int32_t>> nodes;  // with room for at least one
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
  int32_t Slots(const Node& node, const Amounts& requests) const;
  Room RoomFor(const PodShape& shape, int32_t count, const std::vector<std::string>& peer_nodes) const;
  std::string Missing(const PodShape& shape, int32_t count, const Room& room) const;
  void Place(const std::string& uid, Pod& pod);
  void Unplace(const std::string& uid, Pod& pod);
  void PlaceAgain(const std::vector<std::string>& uids);
  void MoveExpectedPods(Node& node);
  void PlaceWaitingOn(const std::string& node);
  bool PlaceOn(Nodes::value_type& place, const std::string& uid, Pod& pod);

  std::map<std::string, size_t> names_;
  std::map<Amounts, int64_t> kinds_;  // what pods take, and how many of them take just that
  Nodes nodes_;
  std::map<std::string, Pod> pods_;  // by uid
  std::set<std::string> unplaced_;   // expected pods without a node
};

}  // namespace ringmaster::core
