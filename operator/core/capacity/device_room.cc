// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/device_room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace ringmaster::core {
namespace {

// More than any node has, and little enough to be added up.
constexpr int64_t kUnlimited = int64_t{1} << 40;

std::string IdOf(const std::string& driver, const std::string& pool, const std::string& device) {
  return driver + "/" + pool + "/" + device;
}

void Note(const std::string& text, PodShape& to) {
  if (to.note.find(text) != std::string::npos) return;
  to.note += (to.note.empty() ? "" : "; ") + text;
}

}  // namespace

// ---- the sets

// Of a class with an extended resource: taken by claims and by pods that ask for that resource alike.
std::string DeviceRoom::BothOf(const std::string& class_name) {
  return DeviceResource(class_name) + " by claim or name";
}

void DeviceRoom::AddSet(const DeviceClass& of, const std::vector<std::string>& selectors, bool tolerates) {
  if (!all_->by_contents.try_emplace({of.name, {selectors, tolerates}}, all_->sets.size()).second) return;
  Set& set = all_->sets.emplace_back();
  set.class_name = of.name;
  set.tolerates = tolerates;
  set.resource = DeviceResource(of.name);
  if (!selectors.empty()) set.resource += fmt::format(" with {}", fmt::join(selectors, " and "));
  if (tolerates) set.resource += ", tainted ones too";
  if (selectors.empty() && !tolerates) set.extended = of.extended_resource;
  std::vector<std::string> all = of.selectors;
  all.insert(all.end(), selectors.begin(), selectors.end());
  for (const std::string& text : all) {
    if (auto selector = DeviceSelector::Parse(text))
      set.selectors.push_back(*std::move(selector));
    else if (set.uncounted.empty())
      set.uncounted = fmt::format("the operator does not evaluate the selector {}", text);
  }
}

const DeviceRoom::Set* DeviceRoom::Find(const std::string& class_name,
                                        const std::vector<std::string>& selectors, bool tolerates) const {
  const auto found = all_->by_contents.find({class_name, {selectors, tolerates}});
  return found == all_->by_contents.end() ? nullptr : &all_->sets[found->second];
}

DeviceRoom::DeviceRoom(const View& view) : state_(State::kRead) {
  std::map<std::string, const DeviceClass*> classes;
  for (const auto& one : view.classes) {
    classes[one->name] = one.get();
    AddSet(*one, {}, false);
  }
  for (const auto& claim : view.templates)
    for (const DeviceRequest& request : claim->requests)
      if (const auto of = classes.find(request.class_name); of != classes.end())
        AddSet(*of->second, request.selectors, request.tolerates);
  ReadDevices(view);
  ReadClaims(view);
}

DeviceRoom::DeviceRoom(const DeviceRoom& other, const View& view) : state_(State::kRead), all_(other.all_) {
  ReadClaims(view);
}

void DeviceRoom::ReadDevices(const View& view) {
  struct Pool {
    int64_t generation = 0;
    int64_t expected = 0;
    int64_t found = 0;
  };
  std::map<std::pair<std::string_view, std::string_view>, Pool> pools;
  for (const auto& slice : view.slices) {
    Pool& pool = pools[{slice->driver, slice->pool}];
    if (slice->generation > pool.generation) pool = {slice->generation, slice->slices, 0};
    if (slice->generation == pool.generation) pool.found += 1;
    if (pool.expected == 0) pool.expected = slice->slices;
  }
  std::vector<std::vector<int64_t>> both(all_->sets.size(), std::vector<int64_t>(all_->sets.size(), 0));
  for (const auto& slice : view.slices) {
    const Pool& pool = pools.at({slice->driver, slice->pool});
    if (slice->generation != pool.generation || pool.found < pool.expected) continue;
    for (const Device& device : slice->devices) {
      const std::string& node = device.node.empty() ? slice->node : device.node;
      std::vector<size_t> in;
      for (size_t i = 0; i < all_->sets.size(); ++i) {
        Set& set = all_->sets[i];
        if (!set.uncounted.empty() || (device.tainted && !set.tolerates)) continue;
        if (!std::all_of(set.selectors.begin(), set.selectors.end(), [&](const DeviceSelector& selector) {
              return selector.Selects(slice->driver, device);
            }))
          continue;
        if (node.empty())
          set.uncounted =
              fmt::format("device {} of {} belongs to no single node", device.name, slice->driver);
        else if (device.several)
          set.uncounted = fmt::format("several claims may have device {} of {}", device.name, slice->driver);
        in.push_back(i);
      }
      if (in.empty() || node.empty()) continue;
      const auto at = all_->nodes.try_emplace(node).first;
      for (const size_t i : in) {
        at->second[i] += 1;
        for (const size_t j : in) both[i][j] += 1;
      }
      all_->places.insert_or_assign(IdOf(slice->driver, slice->pool, device.name),
                                    Place{&at->first, &*all_->kinds.insert(std::move(in)).first});
    }
  }
  for (size_t i = 0; i < all_->sets.size(); ++i) {
    Set& set = all_->sets[i];
    set.size = both[i][i];
    if (!set.extended.empty()) all_->extended.emplace(set.extended, i);
    for (size_t j = 0; j < all_->sets.size(); ++j)
      if (j != i && set.size > 0 && both[i][j] == set.size && all_->sets[j].uncounted.empty())
        set.within.push_back(j);
  }
}

void DeviceRoom::ReadClaims(const View& view) {
  for (const auto& claim : view.claims) {
    const bool own = !claim->pod.empty() && view.is_own && view.is_own(claim->pod, claim->uid);
    Taken* taken = own ? &taken_[claim->pod + "/" + claim->uid] : nullptr;
    if (taken != nullptr) taken->claims += 1;
    for (const DeviceClaim::Allocated& one : claim->devices) {
      const auto place = all_->places.find(IdOf(one.driver, one.pool, one.device));
      if (place == all_->places.end()) continue;
      Counts counts;
      for (const size_t i : *place->second.sets) counts[i] = 1;
      if (taken == nullptr) {
        for (const auto& [i, count] : counts) elsewhere_[*place->second.node][i] += count;
        continue;
      }
      taken->node = *place->second.node;
      for (const auto& [resource, amount] : ToResources(counts)) taken->amounts[resource] += amount;
    }
  }
}

Resources DeviceRoom::ToResources(const Counts& counts) const {
  Resources resources;
  for (const auto& [i, count] : counts) {
    const Set& set = all_->sets[i];
    if (!set.uncounted.empty()) continue;
    resources[set.resource] = count;
    if (!set.extended.empty()) resources[BothOf(set.class_name)] = count;
  }
  return resources;
}

// ---- pods

bool DeviceRoom::Extends(const Resources& requests) const {
  return std::any_of(requests.begin(), requests.end(), [this](const auto& request) {
    return request.second > 0 && (IsDeviceResource(request.first) || all_->extended.contains(request.first));
  });
}

void DeviceRoom::Add(const Set& set, int64_t count, bool asked, PodShape& to) const {
  const auto add = [&](const std::string& resource, bool implied) {
    to.requests[resource] += count;
    if (implied) to.implied[resource] += count;
  };
  if (asked) add(set.resource, false);
  if (!set.extended.empty()) add(BothOf(set.class_name), true);
  for (const size_t i : set.within) {
    add(all_->sets[i].resource, true);
    if (!all_->sets[i].extended.empty()) add(BothOf(all_->sets[i].class_name), true);
  }
}

PodShape DeviceRoom::Count(const PodShape& shape,
                           const std::vector<std::shared_ptr<const ClaimTemplate>>& claims) const {
  PodShape counted = shape;
  counted.claims.clear();
  counted.has_devices = true;
  const auto refuse = [&](const Set& set) {
    Note(fmt::format("claims of {} are not counted: {}", set.class_name, set.uncounted), counted);
  };
  const auto wait = [&](const std::string& why) {
    counted.requests[DeviceResource("")] = 1;
    Note(why, counted);
  };
  const auto read = [&] {
    counted.unread = true;
    wait("the operator is reading the devices of the cluster");
  };
  // Pods that name a resource. What they ask for by the name of a class may be no resource of any node.
  for (const auto& [name, amount] : shape.requests) {
    if (amount <= 0) continue;
    if (IsDeviceResource(name)) {
      const std::string class_name = ClassOfResource(name);
      const Set* set = Find(class_name);
      if (state_ == State::kUnavailable || (set != nullptr && !set->uncounted.empty()))
        counted.requests.erase(name);
      if (set != nullptr && set->uncounted.empty())
        Add(*set, amount, false, counted);
      else if (set != nullptr)
        refuse(*set);
      else if (state_ == State::kRead)
        Note(fmt::format("the cluster has no DeviceClass {}", class_name), counted);
    } else if (const auto of = all_->extended.find(name); of != all_->extended.end()) {
      const Set& set = all_->sets[of->second];
      if (!set.uncounted.empty()) {
        refuse(set);
        continue;
      }
      counted.requests[BothOf(set.class_name)] += amount;
      counted.implied[BothOf(set.class_name)] += amount;
    }
  }
  const bool asks = !claims.empty() || (state_ != State::kRead && Extends(shape.requests));
  if (!asks) return counted;
  if (state_ == State::kUnread) {
    read();
    return counted;
  }
  if (state_ == State::kUnavailable) {
    Note(fmt::format("claims of devices are not counted: {}", reason_), counted);
    return counted;
  }
  for (size_t i = 0; i < claims.size(); ++i) {
    const auto& claim = claims[i];
    if (claim == nullptr) {
      wait(fmt::format("the namespace has no ResourceClaimTemplate {}", shape.claims[i]));
      continue;
    }
    if (!claim->uncounted.empty())
      Note(fmt::format("the claim of {} is not counted: {}", shape.claims[i], claim->uncounted), counted);
    for (const DeviceRequest& request : claim->requests) {
      const Set* set = Find(request.class_name, request.selectors, request.tolerates);
      if (set != nullptr && set->uncounted.empty()) {
        Add(*set, request.count, true, counted);
      } else if (set != nullptr) {
        refuse(*set);
      } else if (Find(request.class_name) == nullptr) {
        counted.requests[DeviceResource(request.class_name)] += request.count;
        Note(fmt::format("the cluster has no DeviceClass {}", request.class_name), counted);
      } else {
        read();  // the template is new
      }
    }
  }
  return counted;
}

const DeviceRoom::Taken* DeviceRoom::TakenBy(const std::string& pod, const std::string& uid) const {
  const auto found = taken_.find(pod + "/" + uid);
  return found == taken_.end() ? nullptr : &found->second;
}

std::vector<std::string> DeviceRoom::PodsWithOtherDevices(const DeviceRoom& other) const {
  std::set<std::string> pods;
  const auto add = [&](const DeviceRoom& one, const DeviceRoom& two) {
    for (const auto& [key, taken] : one.taken_) {
      const auto found = two.taken_.find(key);
      if (found == two.taken_.end() || !(found->second == taken)) pods.insert(key.substr(0, key.rfind('/')));
    }
  };
  add(*this, other);
  add(other, *this);
  return {pods.begin(), pods.end()};
}

Resources DeviceRoom::RequestsOf(const Resources& requests, const PodShape& counted, size_t claims,
                                 const Taken* taken) const {
  const bool all_taken = taken != nullptr && taken->claims >= claims + (Extends(requests) ? 1 : 0);
  Resources all = all_taken ? requests : counted.requests;
  // Its node does not have what the operator only waits for.
  all.erase(DeviceResource(""));
  if (!all_taken && state_ == State::kRead) return all;
  std::erase_if(all, [](const auto& request) { return IsDeviceResource(request.first); });
  if (!all_taken) return all;
  for (const auto& [resource, amount] : taken->amounts) all[resource] += amount;
  return all;
}

// ---- nodes

Resources DeviceRoom::OfNode(const NodeFacts& node) const {
  Resources more;
  const auto has = all_->nodes.find(node.name);
  const auto elsewhere = elsewhere_.find(node.name);
  if (has != all_->nodes.end()) {
    more = ToResources(has->second);
    if (elsewhere != elsewhere_.end())
      for (const auto& [resource, amount] : ToResources(elsewhere->second))
        more[resource] = std::max<int64_t>(more[resource] - amount, 0);
  }
  for (const auto& [resource, i] : all_->extended) {
    const Set& set = all_->sets[i];
    const auto plugin = node.allocatable.find(resource);
    const bool by_plugin = plugin != node.allocatable.end() && plugin->second > 0;
    if (by_plugin) {
      more[BothOf(set.class_name)] = kUnlimited;
    } else if (!set.uncounted.empty()) {
      more[resource] = kUnlimited;
    } else if (has != all_->nodes.end()) {
      const auto count = has->second.find(i);
      if (count != has->second.end()) more[resource] = count->second;
    }
  }
  return more;
}

}  // namespace ringmaster::core
