// SPDX-License-Identifier: Apache-2.0

// Capacity: whether a gang would find nodes now.
//
// Tracks the free capacity of the nodes and applies the scheduler's node filters: requests, pod slots,
// taints, node selectors, required node affinity, one topology key. A backend feeds it from its view. Pure
// arithmetic, no clock. Not thread-safe.
//
// A *domain* is the set of nodes with one value of a topology key. With a required key, all places of a gang
// are in one domain: the smallest one that has room, so that large ones stay whole. With a preferred key they
// are in as few domains as possible (capacity_domains.cc).
//
// A gang *reserves* the places of its pods by name before the pods are created. A pod that the scheduler may
// see and that has no node yet is *expected*: it keeps its place, on some node, until it is observed as bound
// or gone. So two gangs never get the same room. When a pod is bound to another node than expected, the pods
// that it displaces get other places. Reservations exist only in this process; the next one reserves again
// for the pods that are not bound.
//
// A gang that waits may *claim* nodes: other gangs do not find the room that it waits for, though it may not
// be free yet. There is one claim at most; core/room_queue.h says whose.
//
// The answer is exact for the identical pods of a gang. It does not consider priorities and preemption,
// unscheduled pods of other owners, inter-pod affinity, zonal volumes and scheduler plug-ins. A gang that is
// released by mistake is withdrawn after its timeout like any other that finds no nodes.
//
// For each shape in use, Capacity keeps how many such pods fit on each node, and brings it up to date with
// the nodes that have changed since. An answer costs as much as there were changes, not as there are nodes.
// Pods are named NAMESPACE/NAME. Pass equal shapes as the same object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/core/model.h"

namespace ringmaster::core {

// Resource amounts by name: cpu in thousandths, memory in bytes, extended resources as counts.
using Resources = std::map<std::string, int64_t>;

// The resource for devices of a DeviceClass (core/device_room.h). Kubernetes has the same name for pods that
// ask for them without a claim.
inline constexpr std::string_view kDevicePrefix = "deviceclass.resource.kubernetes.io/";
inline std::string DeviceResource(const std::string& class_name) {
  return std::string(kDevicePrefix) + class_name;
}
inline bool IsDeviceResource(std::string_view resource) { return resource.starts_with(kDevicePrefix); }
inline std::string ClassOfResource(std::string_view resource) {
  return std::string(resource.substr(kDevicePrefix.size()));
}

struct Taint {
  std::string key;
  std::string value;
  std::string effect;  // NoSchedule | NoExecute | PreferNoSchedule
  auto operator<=>(const Taint&) const = default;
};
struct Toleration {
  std::string key;  // empty: every key
  bool exists = false;
  std::string value;
  std::string effect;  // empty: every effect
  auto operator<=>(const Toleration&) const = default;
};

struct NodeFacts {
  std::string name;
  Resources allocatable;  // with "pods"
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  bool ready = true;
  bool unschedulable = false;
  bool operator==(const NodeFacts&) const = default;
};

// One requirement of a node selector term. The key "metadata.name" means the node's name.
struct Requirement {
  enum class Op : uint8_t { kIn, kNotIn, kExists, kDoesNotExist, kGt, kLt };
  std::string key;
  Op op = Op::kIn;
  std::vector<std::string> values;
  auto operator<=>(const Requirement&) const = default;
};

// What the scheduler needs to know about a pod.
struct PodShape {
  Resources requests;
  std::vector<Toleration> tolerations;
  std::map<std::string, std::string> node_selector;
  std::vector<std::vector<Requirement>> affinity;  // one term must match completely; empty: no constraint
  std::string topology_key;     // all pods of the gang need nodes with the same value of this label
  std::string preferred_key{};  // they should have nodes with few values of this one
  // The templates of its claims of devices. They become requests (core/device_room.h).
  std::vector<std::string> claims{};
  Resources implied{};       // the part of the requests that others bring with them
  std::string note{};        // what the requests do not say about its claims
  bool has_devices = false;  // claims were counted
  bool unread = false;       // not yet: the devices of the cluster are being read
  auto operator<=>(const PodShape&) const = default;
};

// Whether the node passes the pod's filters, apart from its free capacity.
bool Matches(const PodShape& shape, const NodeFacts& node);

class Capacity {
 public:
  using Shape = std::shared_ptr<const PodShape>;
  // An order by address would let the heap decide which pods get room, so that no run repeats another.
  struct ByContent {
    bool operator()(const Shape& a, const Shape& b) const { return a != b && *a < *b; }
  };

  Capacity() = default;
  Capacity(Capacity&&) = default;
  Capacity& operator=(Capacity&&) = default;
  Capacity(const Capacity&) = delete;  // pods_ points into kinds_
  Capacity& operator=(const Capacity&) = delete;

  void SetNode(NodeFacts node);
  void RemoveNode(const std::string& name);

  // Records a pod that is bound to a node, of any owner. `lasting`: it does not end by itself, so that no
  // claim waits for its room.
  void SetPod(const std::string& pod, const Resources& requests, const std::string& node,
              bool lasting = false);
  // Changes what a bound pod takes.
  void SetRequests(const std::string& pod, const Resources& requests);
  // Records a pod without a gate and without a node. It keeps its reserved place.
  void ExpectPod(const std::string& pod, const Shape& shape);
  // Records a pod with the operator's gate. It takes a place only if one is reserved for it.
  void SetGated(const std::string& pod, const Shape& shape);
  void RemovePod(const std::string& pod);  // the pod is gone or has ended

  // Pods of one gang that are alike.
  struct Ask {
    std::vector<std::string> pods;
    Shape shape;
    Shape rather = nullptr;  // is tried first; nullptr: none
  };
  // Reserves places for those of the pods that have none, or changes nothing and returns false when there is
  // no room for all. `peers`: the gang's other pods. With a topology key, the places are in their domain;
  // with a preferred key, they are in their domains while these have room.
  bool Reserve(const std::vector<Ask>& asks, const std::vector<std::string>& peers = {});
  bool Reserve(const std::vector<std::string>& pods, const Shape& shape,
               const std::vector<std::string>& peers = {}) {
    return Reserve({{pods, shape}}, peers);
  }
  // Gives up the reserved place of a pod that is not created, or gated.
  void Unreserve(const std::string& pod);
  // Returns the shape for which the pod has a reserved place. nullptr: none is reserved, or its node is lost.
  Shape ReservedFor(const std::string& pod) const;
  // Returns the value of this label on the node where the pod has its place; nullopt: it has no place, or the
  // node does not have the label.
  std::optional<std::string> DomainOf(const std::string& pod, const std::string& key) const;
  // Whether the pod is expected, and no node has room for it.
  bool IsUnplaced(const std::string& pod) const;
  // Returns the value of the topology key whose nodes would get the places of so many more pods; nullopt:
  // none has room for all.
  std::optional<std::string> BestFit(const Shape& shape, int32_t pods);

  // The labels of the nodes, with how many nodes have each. The version increases when a label appears on the
  // first node, or disappears from the last one.
  const std::map<std::string, int32_t>& labels() const { return labels_; }
  uint64_t label_version() const { return label_version_; }
  bool has_nodes() const { return facts_ > 0; }

  // Records which bound or expected pods end soon, in place of the last record: a claim prefers their room to
  // that of others. A pod that is bound, or replaced, after that is not one of them.
  void SetLeaving(const std::set<std::string>& pods);

  struct Need {
    Shape shape;
    int32_t pods = 1;
    bool operator==(const Need&) const = default;
  };
  // Claims room for all that a gang needs, in place of the last claim: what is free now, then the room of
  // pods that end soon, then that of the others, of the earlier claim's nodes first. Each need finds the room
  // that the earlier ones leave, as in Reserve. Until the next claim, no answer contains the claimed room,
  // and Reserve does not use it. Returns false and claims nothing when the nodes would not hold all of it
  // even without the pods that end. Costs as much as there are nodes for each need. REQUIRES: there is a
  // need.
  bool Claim(const std::vector<Need>& needs, const std::vector<std::string>& peers = {});
  void Disclaim();
  // While it lives, answers and reservations disregard the claim. Do not change the claim meanwhile.
  class WithoutClaim {
   public:
    explicit WithoutClaim(Capacity& capacity) : capacity_(capacity) {
      if (capacity_.lifted_++ == 0) capacity_.CountClaim(-1);
    }
    ~WithoutClaim() {
      if (--capacity_.lifted_ == 0) capacity_.CountClaim(+1);
    }
    WithoutClaim(const WithoutClaim&) = delete;
    WithoutClaim& operator=(const WithoutClaim&) = delete;

   private:
    Capacity& capacity_;
  };

  // Returns the expected pods that no node has room for, by shape: they get the next room.
  std::vector<std::pair<Shape, int32_t>> Unplaced() const;

  // While it lives, the pods that Remove names take no room: answers and reservations are what they would be
  // without them. No observation may be recorded meanwhile.
  class Vacancy {
   public:
    explicit Vacancy(Capacity& capacity) : capacity_(capacity) { capacity_.vacancies_ += 1; }
    ~Vacancy();
    Vacancy(const Vacancy&) = delete;
    Vacancy& operator=(const Vacancy&) = delete;
    // Returns false if the pod takes no room, or was removed before.
    bool Remove(const std::string& pod);
    void Restore(const std::string& pod);

   private:
    Capacity& capacity_;
    std::set<std::string> removed_;
  };

  // The share of the cluster that the pods of a namespace with a place take: the largest of their shares of
  // the resources of all nodes. Lasting pods do not count.
  double ShareOf(const std::string& space) const;
  // The share that so many more pods would take.
  double ShareOf(const PodShape& shape, int32_t pods) const;

  // Returns for how many of `count` more pods the nodes have room.
  int32_t RoomFor(const Shape& shape, int32_t count, const std::vector<std::string>& peers = {});
  // As RoomFor, with what is missing for the others.
  Fit FitOf(const Shape& shape, int32_t count, const std::vector<std::string>& peers = {});
  // Returns for how many pods each domain has room, in ascending order; without a topology key, the room of
  // all nodes.
  std::vector<int64_t> RoomsOf(const Shape& shape);

 private:
  using Amounts = std::vector<int64_t>;  // indexed by names_
  using NodeId = uint32_t;               // index in nodes_
  static constexpr NodeId kNoNode = UINT32_MAX;

  struct Node {
    std::string name;
    std::optional<NodeFacts> facts;  // unset: only its pods are known so far
    Amounts allocatable;
    Amounts used;
    Amounts lasting;                 // the part of `used` that does not end by itself
    Amounts leaving;                 // the part of `used` that ends soon
    Amounts claimed;                 // kept free from other gangs; may exceed what is free
    std::set<std::string> expected;  // pods
  };
  struct Pod {
    const Amounts* requests = nullptr;  // points into kinds_
    NodeId at = kNoNode;                // kNoNode: expected, and no node has room for it
    Shape shape;                        // set unless it is bound
    bool reserved = false;              // not visible to the scheduler yet
    bool lasting = false;
    bool leaving = false;
  };
  // The room for one shape within one value of its topology key, or in the whole cluster.
  struct Domain {
    int64_t pods = 0;
    int32_t nodes = 0;    // with room for at least one
    int32_t several = 0;  // of these, with room for more than one
  };
  // How many pods of one shape fit on each node.
  struct Index {
    Shape shape;
    std::vector<std::pair<size_t, int64_t>> requests;  // by index in names_
    uint64_t seen = 0;                                 // changes that are applied; see changes_
    uint64_t used = 0;                                 // the last use
    std::vector<int32_t> fits;       // by NodeId; a number of pods or one of the values below
    std::vector<Domain*> domain_of;  // by NodeId; only with a topology key
    std::map<std::string, Domain> domains;
    int32_t full = 0;
    int32_t unmatched = 0;
    int32_t not_ready = 0;
  };
  static constexpr int32_t kAbsent = -1;
  static constexpr int32_t kNotReady = -2;
  static constexpr int32_t kUnmatched = -3;

  size_t IndexOf(const std::string& resource);
  Amounts ToAmounts(const Resources& resources);
  Amounts AmountsOfPod(const Resources& requests);
  static int64_t At(const Amounts& amounts, size_t index) {
    return index < amounts.size() ? amounts[index] : 0;
  }
  static void Add(const Amounts& amounts, int64_t sign, Amounts& to);
  const Amounts* Hold(Amounts amounts);
  void Drop(const Amounts* amounts);

  NodeId IdOf(const std::string& node);
  void Use(NodeId id, const Amounts& amounts, int64_t sign, bool lasting = false);
  void UseBy(const Pod& pod, int64_t sign);
  void CountSpace(const std::string& name, const Pod& pod, int64_t sign);
  using Claims = std::map<NodeId, Amounts>;
  using ClaimedPlaces = std::vector<std::pair<Shape, std::map<NodeId, int32_t>>>;  // for each need
  static bool IsIn(const ClaimedPlaces& places, NodeId id);
  // For how many pods a node has room for a claim.
  struct ClaimPlace {
    NodeId id = 0;
    int32_t now = 0;
    int32_t soon = 0;   // once the pods that end soon have ended; at least `now`
    int32_t later = 0;  // once all that end have ended; at least `soon`
    bool claimed = false;
  };
  void CountClaim(int64_t sign);
  // Returns the values of the topology key whose nodes would hold the need, the best one first; one empty
  // value without a key.
  std::vector<std::string> ClaimableDomains(const Need& need, const std::vector<std::string>& peers,
                                            const ClaimedPlaces& last);
  // `more`: what other needs of the gang take of the node; nullptr: nothing.
  ClaimPlace ClaimPlaceOn(const Index& index, NodeId id, const Amounts* more) const;
  // Returns false and claims nothing if the nodes of the domain would not hold all needs.
  bool ClaimIn(const std::string& domain, const std::vector<Need>& needs, const ClaimedPlaces& last);
  // Reserves the places that are claimed for pods of these shapes, or changes nothing and returns false.
  bool ReserveClaimed(const std::vector<Ask>& asks, const std::vector<std::string>& peers);
  void Changed(NodeId id, bool facts);
  Index& IndexFor(const Shape& shape);
  void Update(Index& index, NodeId id, bool facts) const;
  int32_t Count(const Index& index, const Node& node) const;
  // Returns how many pods the node could hold if the others used this much of it.
  static int32_t CountWith(const Index& index, const Node& node, const Amounts& used);
  // Returns the value of the topology key that the peers are bound to; nullptr: none is bound.
  const std::string* DomainOfPeers(const Index& index, const std::vector<std::string>& peers) const;
  // A domain with its value of the topology key.
  using NamedDomain = std::pair<const std::string, Domain>;
  // Returns the domain with the most room, or that of the peers; nullptr: none has room.
  const NamedDomain* LargestDomain(const Index& index, const std::vector<std::string>& peers) const;
  std::string Missing(const Index& index, const NamedDomain* largest, int32_t count, bool fixed) const;

  // Nodes with this value of this label.
  struct Restriction {
    std::string key;
    std::string value;
  };
  // Returns the values of the key whose nodes have room for so many pods, those with the least room first.
  static std::vector<std::string> DomainsFor(const Index& index, int64_t pods);
  std::vector<std::string> PreferredFor(const Index& index, int64_t pods) const;
  // Returns the nodes with room that meet the restriction, in the order in which the pods should use them.
  std::vector<NodeId> NodesFor(const Index& index, const Restriction* only, int64_t pods,
                               const std::vector<std::string>& peers) const;
  const std::string* LabelOf(NodeId id, const std::string& key) const;
  // The pods of the ask that need a place; nullopt: the scheduler looks for the place of one of them.
  std::optional<std::vector<std::string>> Fresh(const Ask& ask) const;
  bool ReserveIn(const Restriction* only, const Ask& ask, const Shape& shape,
                 const std::vector<std::string>& peers, std::vector<std::string>& placed);
  bool ReserveAllIn(const Restriction* only, const std::vector<Ask>& asks,
                    const std::vector<std::string>& peers);
  void CountLabels(const NodeFacts& facts, int32_t by);

  void SetShape(Pod& pod, const Shape& shape);
  void Reshape(const std::string& name, Pod& pod, const Shape& shape);
  void PutAt(NodeId id, const std::string& name, Pod& pod);
  void PutReserved(NodeId id, const std::string& name, const Shape& shape, std::vector<std::string>& placed);
  NodeId NodeFor(const Shape& shape);
  void Place(const std::string& name, Pod& pod);
  void Unplace(const std::string& name, Pod& pod);
  void PlaceAgain(const std::vector<std::string>& pods);
  void MoveExpectedPods(NodeId id);
  void PlaceWaitingOn(NodeId id);
  void ForgetIfUnused(NodeId id);

  std::map<std::string, size_t> names_;
  std::map<Amounts, int64_t> kinds_;  // distinct requests, and how many pods share each
  std::vector<Node> nodes_;
  std::map<std::string, NodeId> ids_;  // by name
  std::vector<NodeId> unused_;
  std::unordered_map<std::string, Pod> pods_;
  std::map<Shape, std::set<std::string>, ByContent> unplaced_;  // expected pods that no node has room for
  Claims claim_;
  ClaimedPlaces claimed_places_;           // the same
  Amounts total_;                          // of all nodes
  int32_t facts_ = 0;                      // the nodes that exist
  std::map<std::string, int32_t> labels_;  // how many of them have each label
  uint64_t label_version_ = 0;
  std::map<std::string, Amounts> spaces_;  // used by the pods of each namespace
  int lifted_ = 0;                         // the WithoutClaims that live
  int vacancies_ = 0;                      // the Vacancies that live
  std::set<std::string> leaving_;

  // The changed nodes in order, with whether more than their use changed. The first has number first_change_.
  std::vector<std::pair<NodeId, bool>> changes_;
  uint64_t first_change_ = 0;
  std::unordered_map<const PodShape*, Index> indexes_;
  uint64_t uses_ = 0;
};

}  // namespace ringmaster::core
