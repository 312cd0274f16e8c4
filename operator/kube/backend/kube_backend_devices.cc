// SPDX-License-Identifier: Apache-2.0

// KubeBackend: devices of dynamic resource allocation (core/device_room.h).
//
// DeviceClasses are watched where the API server serves them: there are few. ResourceSlices, ResourceClaims
// and ResourceClaimTemplates, of which a large cluster has thousands, are watched from the first pod of a job
// that has claims, until the process ends. Such pods wait until all four have been listed. When the API is
// not served, or the operator may not read it, their claims are not counted.
//
// After a change, the room is computed from all objects at once, after a pause that keeps this below a
// twentieth of a core. Until then a pod that was placed takes what its templates ask for.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::kube {
namespace {

constexpr Duration kMinPause = seconds(1);
constexpr Duration kMaxPause = seconds(30);
constexpr int kPausePerWork = 20;
constexpr size_t kMaxTemplates = 4096;

std::string SpaceOf(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace

// ---- the API

void KubeBackend::OnDra(bool served) {
  bool before = false;
  {
    MutexLock lock(mutex_);
    if (MustAskAgain(devices_.served == true && !served, devices_.doubtful)) return;
    if (devices_.served == served) return;
    before = devices_.served.value_or(false);
    devices_.served = served;
    if (!served) devices_.followed = false;
    devices_.refusals.clear();
  }
  if (served) {
    reflectors_.Add(WatchedDevices(kDeviceClasses), device_classes_.In({}));
  } else if (before) {
    for (const Resource& resource : {kDeviceClasses, kResourceSlices, kResourceClaims, kClaimTemplates})
      reflectors_.Retire(resource);
    device_classes_.Clear();
    slices_.Clear();
    claims_.Clear();
    claim_templates_.Clear();
  }
  reflectors_.Wake();
}

Collection KubeBackend::WatchedDevices(const Resource& resource) {
  Collection collection;
  collection.resource = resource;
  collection.optional = true;
  collection.on_failure = [this, resource](const Error& error) {
    if (error.code == Code::kNotFound) DiscoverBy(Now() + kDiscoverSoon);
    if (error.code != Code::kForbidden) {
      if (options_.on_watch_failure) options_.on_watch_failure(resource, error);
      return;
    }
    {
      MutexLock lock(mutex_);
      if (!devices_.refusals.emplace(resource.plural, error.message).second) return;
    }
    log::Warn("watch={} error={} result=claims of devices are not counted", resource.plural, error.message);
    reflectors_.Wake();
  };
  return collection;
}

std::string KubeBackend::WhyNoDevices() const {
  if (!devices_.served) return {};
  if (!*devices_.served) return fmt::format("the API server does not serve {}", kResourceSlices.ApiVersion());
  const auto refused = [this](const Resource& resource, bool synced) RM_REQUIRES(mutex_) {
    return !synced && devices_.refusals.contains(resource.plural);
  };
  if (refused(kDeviceClasses, device_classes_.synced()) || refused(kResourceSlices, slices_.synced()) ||
      refused(kResourceClaims, claims_.synced()) || refused(kClaimTemplates, claim_templates_.synced()))
    return fmt::format("the operator may not read {}", devices_.refusals.begin()->first);
  return {};
}

bool KubeBackend::DevicesRead() const {
  return devices_.followed && device_classes_.synced() && slices_.synced() && claims_.synced() &&
         claim_templates_.synced();
}

void KubeBackend::OnDeviceClass() {
  std::set<std::string> extended;
  for (const auto& known : device_classes_.All())
    if (!known->extended_resource.empty()) extended.insert(known->extended_resource);
  {
    MutexLock lock(mutex_);
    devices_.extended = std::move(extended);
  }
  DevicesChanged(true);
}

void KubeBackend::OnClaimTemplate(const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (!devices_.templates.contains(name)) return;
  }
  DevicesChanged(true);
}

void KubeBackend::DevicesChanged(bool inventory) {
  {
    MutexLock lock(mutex_);
    devices_.inventory_due = devices_.inventory_due || inventory;
    if (std::exchange(devices_.due, true) && !inventory) return;
  }
  reflectors_.Wake();
}

// ---- housekeeping, on the reflectors' thread

Time KubeBackend::KeepDevices(Time now) {
  bool follow = false;
  bool recount = false;
  bool inventory = false;
  Time next = kNever;
  {
    MutexLock lock(mutex_);
    follow = devices_.served == true && devices_.wanted && !devices_.followed;
    if (follow) devices_.followed = true;
    const std::pair<bool, std::string> state{DevicesRead(), WhyNoDevices()};
    if (state != devices_.state) {
      devices_.state = state;
      devices_.due = devices_.inventory_due = true;
      devices_.last_recount = Time::min();
    }
    recount = devices_.due &&
              (devices_.last_recount == Time::min() || now >= devices_.last_recount + devices_.pause);
    if (recount) {
      inventory = std::exchange(devices_.inventory_due, false);
      devices_.due = false;
      devices_.last_recount = now;
    }
    if (devices_.due) next = devices_.last_recount + devices_.pause;
  }
  if (follow) {
    reflectors_.Add(WatchedDevices(kResourceSlices), slices_.In({}));
    Follow(WatchedDevices(kResourceClaims), claims_);
    Follow(WatchedDevices(kClaimTemplates), claim_templates_);
  }
  if (recount) {
    RecountDevices(inventory);
    MutexLock lock(mutex_);
    devices_.pause = std::clamp(kPausePerWork * (Now() - now), kMinPause, kMaxPause);
    if (devices_.due) next = devices_.last_recount + devices_.pause;
  }
  return next;
}

core::DeviceRoom KubeBackend::ReadDeviceRoom(bool inventory) {
  core::DeviceRoom before;
  core::DeviceRoom::View view;
  std::vector<std::string> templates;
  {
    MutexLock lock(mutex_);
    const auto& [read, why_not] = devices_.state;
    if (!why_not.empty()) return core::DeviceRoom(why_not);
    if (!read) return {};
    if (!inventory) before = devices_.room;
    templates.assign(devices_.templates.begin(), devices_.templates.end());
    if (devices_.templates.size() > kMaxTemplates)
      devices_.templates.clear();  // waiting jobs name theirs again
  }
  view.claims = claims_.All();
  view.is_own = [this](const std::string& name, const std::string& uid) {
    const auto pod = pods_.Get(name);
    return pod && pod->own && !pod->ended && pod->uid() == uid;
  };
  if (!inventory) return {before, view};
  view.slices = slices_.All();
  view.classes = device_classes_.All();
  for (const std::string& name : templates)
    if (auto known = claim_templates_.Get(name)) view.templates.push_back(std::move(known));
  return core::DeviceRoom(view);
}

void KubeBackend::RecountDevices(bool inventory) {
  core::DeviceRoom room = ReadDeviceRoom(inventory);
  std::vector<std::pair<std::string, core::Resources>> nodes;
  for (const auto& node : nodes_.All()) nodes.emplace_back(node->facts.name, room.OfNode(node->facts));
  std::vector<std::string> pods;
  if (inventory) pods = pods_.Keys();
  std::set<std::string> jobs;
  bool changed = false;
  {
    MutexLock lock(mutex_);
    if (!inventory) pods = room.PodsWithOtherDevices(devices_.room);
    devices_.room = std::move(room);
    for (const auto& [name, more] : nodes) {
      if (const auto known = devices_.nodes.find(name);
          known == devices_.nodes.end() ? more.empty() : known->second == more)
        continue;
      if (const auto node = nodes_.Get(name)) {
        PlaceNode(*node);
        changed = true;
      }
    }
    for (const std::string& name : pods) PlacePod(name, pods_.Get(name));
    if (inventory) jobs = devices_.jobs;
    if (changed) planner_.Refresh();
  }
  if (changed) CapacityChanged();
  for (const std::string& job : jobs) Notify(job);
}

// ---- nodes, pods and shapes

void KubeBackend::PlaceNode(const NodeRecord& node) {
  core::NodeFacts facts = node.facts;
  core::Resources more = devices_.room.OfNode(facts);
  for (const auto& [resource, amount] : more) facts.allocatable[resource] = amount;
  if (more.empty())
    devices_.nodes.erase(facts.name);
  else
    devices_.nodes[facts.name] = std::move(more);
  planner_.capacity().SetNode(std::move(facts));
}

bool KubeBackend::NamesDevices(const core::Resources& requests) const {
  return std::any_of(requests.begin(), requests.end(), [this](const auto& request) RM_REQUIRES(mutex_) {
    return core::IsDeviceResource(request.first) ||
           (!devices_.extended.empty() && devices_.extended.contains(request.first));
  });
}

core::PodShape KubeBackend::WithDevices(const std::string& space, const core::PodShape& shape) const {
  if (!std::exchange(devices_.wanted, true)) reflectors_.Wake();
  std::vector<std::shared_ptr<const core::ClaimTemplate>> claims;
  for (const std::string& name : shape.claims) {
    const std::string key = space + "/" + name;
    claims.push_back(claim_templates_.Get(key));
    if (!devices_.templates.insert(key).second || !claims.back()) continue;
    devices_.due = devices_.inventory_due = true;
    reflectors_.Wake();
  }
  return devices_.room.Count(shape, claims);
}

core::Capacity::Shape KubeBackend::Counted(const std::string& space,
                                           const core::Capacity::Shape& shape) const {
  MutexLock lock(mutex_);
  return CountedLocked(space, shape);
}

core::Capacity::Shape KubeBackend::CountedLocked(const std::string& space,
                                                 const core::Capacity::Shape& shape) const {
  if (!shape || shape->has_devices) return shape;  // they are counted already
  if (shape->claims.empty() && !NamesDevices(shape->requests)) return shape;
  return interners_.shapes.Intern(WithDevices(space, *shape));
}

std::string KubeBackend::ClaimsNote(const JobRecord& job, const core::Observed& observed) const {
  for (const auto& record : pods_.Group(job.key.ToString())) {
    const PodRecord::Own& own = *record->own;
    if (own.owner->uid != job.uid || own.pod.attempt != observed.status.ledger.attempt || record->ended ||
        own.node || !own.shape || own.shape->claims.empty())
      continue;
    return Counted(job.key.namespace_, own.shape)->note;
  }
  return {};
}

void KubeBackend::PlacePod(const std::string& name, const std::shared_ptr<const PodRecord>& pod) {
  const PodRecord::Own* own = pod ? pod->own.get() : nullptr;
  const auto recount = [this]() RM_REQUIRES(mutex_) {
    if (!std::exchange(devices_.due, true)) reflectors_.Wake();
  };
  if (!pod || pod->ended) {
    if (devices_.pods.erase(name) > 0)
      recount();  // its devices are not those of a pod of the operator any more
    return planner_.capacity().RemovePod(name);
  }
  std::string node = pod->node();
  if (own == nullptr && !node.empty()) return planner_.capacity().SetPod(name, *pod->requests, node, true);
  if (own == nullptr) return planner_.capacity().RemovePod(name);
  const bool asks = own->claims || NamesDevices(own->shape ? own->shape->requests : *pod->requests);
  core::PodShape asked;
  if (asks && own->shape) {
    asked = *own->shape;
  } else if (asks) {
    asked.requests = *pod->requests;
    if (own->claims) asked.claims = *own->claims;
  }
  const core::DeviceRoom::Taken* taken = nullptr;
  if (asks) {
    if (devices_.pods.insert(name).second) recount();
    taken = devices_.room.TakenBy(name, own->pod.uid);
    // As good as bound: the scheduler binds it to the node of its devices.
    if (node.empty() && taken != nullptr && !own->pod.gated && !own->pod.deleting()) node = taken->node;
  }
  if (!node.empty()) {
    if (!asks) return planner_.capacity().SetPod(name, *pod->requests, node);
    const core::Resources requests = devices_.room.RequestsOf(
        asked.requests, WithDevices(SpaceOf(name), asked), asked.claims.size(), taken);
    planner_.capacity().SetPod(name, requests, node);
    return planner_.capacity().SetRequests(name, requests);
  }
  if (own->pod.deleting()) return planner_.capacity().RemovePod(name);
  const core::Capacity::Shape shape = CountedLocked(SpaceOf(name), own->shape);
  if (own->pod.gated)
    planner_.capacity().SetGated(name, shape);
  else
    planner_.capacity().ExpectPod(name, shape);
}

}  // namespace ringmaster::kube
