// SPDX-License-Identifier: Apache-2.0

// A copy of a collection as compact typed values: each object is decoded when it arrives, and its JSON is
// dropped. One reflector writes it, or one per namespace.
//
//   Store<T> store(hooks);
//   reflectors.Add({.resource = kPods}, store.In(""));                            // all namespaces
//   reflectors.Add({.resource = kPods, .namespace_ = "a"}, store.In("a"));        // or some
//
// Thread-safe, except that each sink is used by one thread at a time. Values are shared and immutable.
// `changed` runs on the writing thread without the lock, after readers can see the change; different sinks
// may call it at the same time.
//
// Invariants:
//  - An incomplete list is never visible: items are collected separately and swapped in at the end.
//  - An object never becomes older: older versions than the stored one are dropped. So is a direct read of a
//    group (ReplaceGroup) that the watch has overtaken. A newer read leaves a floor: events and lists of the
//    group with a lower revision are ignored, except for values that such a read may miss (`selected`).
//  - The store contains every change up to revision(namespace), which rises after readers can see the change.
//    An idle namespace stays behind the others, so there is no common revision.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "operator/kube/watch/meta.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

template <class T>
class Store {
 public:
  using Value = std::shared_ptr<const T>;
  struct Hooks {
    // Returns the value of an object; null: do not store it. `before`: the stored value, or null.
    std::function<Value(const Json& object, const Meta& meta, const Value& before)> decode;
    // Returns the group of a value; empty: none.
    std::function<std::string(const T&)> group;
    std::function<void(const std::string& key, const Value& before, const Value& after)> changed;
    // Whether a direct read of its group certainly includes a value that exists. Unset: always.
    std::function<bool(const T&)> selected = nullptr;
  };

  explicit Store(Hooks hooks) : hooks_(std::move(hooks)) {}

  // The sink for the reflector of this namespace (empty: of all namespaces). In a store with sinks per
  // namespace, the name of a group starts with NAMESPACE/. The sink lives as long as the store.
  ReflectorSink& In(const std::string& namespace_) {
    MutexLock lock(mutex_);
    auto& sink = sinks_[namespace_];
    if (!sink) sink = std::make_unique<Sink>(*this, namespace_.empty() ? std::string() : namespace_ + "/");
    return *sink;
  }

  // ---- readers

  Value Get(const std::string& key) const {
    MutexLock lock(mutex_);
    return Find(key);
  }
  // Returns the values of a group in the order of their keys.
  std::vector<Value> Group(const std::string& group) const {
    MutexLock lock(mutex_);
    std::vector<Value> values;
    const auto it = groups_.find(group);
    if (it == groups_.end()) return values;
    values.reserve(it->second.size());
    for (const std::string_view key : it->second) values.push_back(objects_.at(std::string(key)).value);
    return values;
  }
  std::vector<Value> All() const {
    MutexLock lock(mutex_);
    std::vector<Value> values;
    values.reserve(objects_.size());
    for (const auto& [key, entry] : objects_) values.push_back(entry.value);
    return values;
  }
  std::vector<std::string> Keys() const {
    MutexLock lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, entry] : objects_) keys.push_back(key);
    return keys;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return objects_.size();
  }
  // Returns 0 for a namespace without a sink.
  Revision revision(const std::string& namespace_ = {}) const {
    MutexLock lock(mutex_);
    auto it = sinks_.find(namespace_);
    if (it == sinks_.end()) it = sinks_.find(std::string());
    return it == sinks_.end() ? 0 : it->second->revision;
  }
  // Returns true once every sink has received its first list, or has been denied it.
  bool synced() const {
    MutexLock lock(mutex_);
    const auto settled = [](const auto& item) { return item.second->synced || item.second->denied; };
    return !sinks_.empty() && std::all_of(sinks_.begin(), sinks_.end(), settled);
  }
  // Returns true once the sink of this namespace has received its first list; also when there is no such
  // sink.
  bool listed(const std::string& namespace_) const {
    MutexLock lock(mutex_);
    auto it = sinks_.find(namespace_);
    if (it == sinks_.end()) it = sinks_.find(std::string());
    return it == sinks_.end() || it->second->synced;
  }

  // Removes what is in this namespace, which is gone: a watch that is denied does not show it.
  void Drop(const std::string& namespace_) {
    std::vector<Change> changes;
    {
      MutexLock lock(mutex_);
      std::vector<std::string> keys;
      for (const auto& [key, entry] : objects_)
        if (key.starts_with(namespace_ + "/")) keys.push_back(key);
      for (const std::string& key : keys) Remove(key, changes);
    }
    Publish(changes);
  }

  // Forgets everything, until the sinks receive a list again. REQUIRES: no sink is being called.
  void Clear() {
    std::vector<Change> changes;
    {
      MutexLock lock(mutex_);
      std::vector<std::string> keys;
      for (const auto& [key, entry] : objects_) keys.push_back(key);
      for (const std::string& key : keys) Remove(key, changes);
      for (auto& [namespace_, sink] : sinks_) {
        sink->revision = 0;
        sink->synced = false;
        sink->denied = false;
      }
    }
    Publish(changes);
  }

  // ---- a direct read

  // Replaces a group: `objects` are all of it at `revision`. Does nothing if the watch has come as far: the
  // answer came late, and would restore what has been deleted since. An answer that is older than what the
  // view had when it was asked for is not late: the server's data was restored, and the caller lists again.
  void ReplaceGroup(const std::string& group, const std::vector<Json>& objects, Revision revision) {
    std::vector<Change> changes;
    Objects fresh;
    for (const Json& object : objects) Decode(object, 0, fresh);
    {
      MutexLock lock(mutex_);
      for (const auto& [namespace_, sink] : sinks_)
        if (group.starts_with(sink->prefix) && revision <= sink->revision) return;
      Revision& floor = floors_[group];
      if (revision < floor) return;  // a newer read has already come
      floor = revision;
      if (const auto it = groups_.find(group); it != groups_.end()) {
        const std::vector<std::string> keys(it->second.begin(), it->second.end());
        for (const std::string& key : keys)
          if (!fresh.contains(key) && objects_.at(key).revision <= revision) Remove(key, changes);
      }
      for (auto& [key, entry] : fresh) {
        const auto it = objects_.find(key);
        if (it == objects_.end() || it->second.revision < entry.revision) Put(key, std::move(entry), changes);
      }
      for (const auto& [namespace_, sink] : sinks_) DropFloors(*sink);
    }
    Publish(changes);
  }

 private:
  struct Entry {
    Value value;
    Revision revision = 0;
  };
  using Objects = std::unordered_map<std::string, Entry>;
  struct Change {
    std::string key;
    Value before;
    Value after;
  };

  // Receives the objects of one reflector: those whose keys begin with `prefix`.
  struct Sink final : ReflectorSink {
    Sink(Store& owner, std::string begin_of_keys) : store(owner), prefix(std::move(begin_of_keys)) {}
    void Begin() override { side.clear(); }
    void Item(const Json& object) override { store.Decode(object, 0, side); }
    void End(Revision listed) override { store.End(*this, listed); }
    void Apply(const Json& object, Revision at) override { store.Apply(*this, object, at); }
    void Delete(const Json& object, Revision at) override { store.Delete(*this, object, at); }
    void Deny() override {
      MutexLock lock(store.mutex_);
      denied = true;
    }
    void Bookmark(Revision at) override {
      MutexLock lock(store.mutex_);
      store.Advance(*this, at);
    }

    Store& store;
    const std::string prefix;
    Objects side;  // the list so far; used by the writing thread only
    // Guarded by store.mutex_. Not annotated: the analysis cannot see that `store` is the object that owns
    // this sink.
    Revision revision = 0;
    bool synced = false;
    bool denied = false;  // since its last list
  };

  void End(Sink& sink, Revision revision) {
    std::vector<Change> changes;
    {
      MutexLock lock(mutex_);
      // A list is never older than an answer before it, unless the server's data was restored from a backup.
      if (revision < sink.revision)
        std::erase_if(floors_, [&](const auto& floor) { return floor.first.starts_with(sink.prefix); });
      std::vector<std::string> gone;
      for (const auto& [key, entry] : objects_)
        if (key.starts_with(sink.prefix) && !sink.side.contains(key) && Floor(*entry.value) <= revision)
          gone.push_back(key);
      for (const std::string& key : gone) Remove(key, changes);
      for (auto& [key, entry] : sink.side) {
        if (Floor(*entry.value) > revision) continue;
        const auto it = objects_.find(key);
        // A different revision, even a lower one: the server's current state wins.
        if (it == objects_.end() || it->second.revision != entry.revision)
          Put(key, std::move(entry), changes);
      }
      sink.revision = revision;
      sink.synced = true;
      sink.denied = false;
      DropFloors(sink);
    }
    Objects().swap(sink.side);
    Publish(changes);
  }

  void Apply(Sink& sink, const Json& object, Revision revision) {
    std::vector<Change> changes;
    Objects fresh;
    const std::string key = Decode(object, revision, fresh);
    {
      MutexLock lock(mutex_);
      const auto it = objects_.find(key);
      if (auto entry = fresh.find(key); entry == fresh.end()) {
        if (it != objects_.end() && it->second.revision <= revision) Remove(key, changes);
      } else if (Floor(*entry->second.value) < revision &&
                 (it == objects_.end() || it->second.revision < revision)) {
        Put(key, std::move(entry->second), changes);
      }
      Advance(sink, revision);
    }
    Publish(changes);
  }

  void Delete(Sink& sink, const Json& object, Revision revision) {
    std::vector<Change> changes;
    {
      MutexLock lock(mutex_);
      const Meta meta = ReadMeta(object);
      const auto it = objects_.find(meta.key);
      if (it != objects_.end() && it->second.revision <= revision) Remove(meta.key, changes);
      Advance(sink, revision);
    }
    Publish(changes);
  }

  Value Find(const std::string& key) const RM_REQUIRES(mutex_) {
    const auto it = objects_.find(key);
    return it == objects_.end() ? nullptr : it->second.value;
  }

  // Decodes an object into `into` and returns its key. `revision` 0: the object's own.
  std::string Decode(const Json& object, Revision revision, Objects& into) {
    Meta meta = ReadMeta(object);
    if (meta.key.empty()) return {};
    if (revision != 0) meta.revision = revision;
    if (Value value = hooks_.decode(object, meta, Get(meta.key))) into[meta.key] = {value, meta.revision};
    return meta.key;
  }

  void Put(const std::string& key, Entry entry, std::vector<Change>& changes) RM_REQUIRES(mutex_) {
    Value before = Find(key);
    Unlink(key, before);
    changes.push_back({key, std::move(before), entry.value});
    std::string group = GroupOf(*entry.value);
    const auto it = objects_.insert_or_assign(key, std::move(entry)).first;
    if (group.empty()) return;
    auto& keys = groups_[std::move(group)];
    keys.insert(std::lower_bound(keys.begin(), keys.end(), it->first), it->first);
  }

  void Remove(const std::string& key, std::vector<Change>& changes) RM_REQUIRES(mutex_) {
    Value before = Find(key);
    Unlink(key, before);
    objects_.erase(key);
    changes.push_back({key, std::move(before), nullptr});
  }

  void Unlink(const std::string& key, const Value& value) RM_REQUIRES(mutex_) {
    if (!value) return;
    const auto it = groups_.find(GroupOf(*value));
    if (it == groups_.end()) return;
    auto& keys = it->second;
    const auto at = std::lower_bound(keys.begin(), keys.end(), key);
    if (at != keys.end() && *at == key) keys.erase(at);
    if (keys.empty()) groups_.erase(it);
  }

  std::string GroupOf(const T& value) const { return hooks_.group ? hooks_.group(value) : std::string(); }

  Revision Floor(const T& value) const RM_REQUIRES(mutex_) {
    if (floors_.empty() || (hooks_.selected && !hooks_.selected(value))) return 0;
    const auto it = floors_.find(GroupOf(value));
    return it == floors_.end() ? 0 : it->second;
  }

  void Advance(Sink& sink, Revision revision) RM_REQUIRES(mutex_) {
    if (revision > sink.revision) sink.revision = revision;
    DropFloors(sink);
  }

  // Drops the floors that the sink has reached: from there on its changes come in order.
  void DropFloors(const Sink& sink) RM_REQUIRES(mutex_) {
    if (floors_.empty()) return;
    std::erase_if(floors_, [&](const auto& item) {
      return item.first.starts_with(sink.prefix) && item.second <= sink.revision;
    });
  }

  void Publish(const std::vector<Change>& changes) {
    if (!hooks_.changed) return;
    for (const Change& change : changes) hooks_.changed(change.key, change.before, change.after);
  }

  const Hooks hooks_;
  mutable Mutex mutex_;
  Objects objects_ RM_GUARDED_BY(mutex_);
  // Sorted keys of each group; they point into objects_.
  std::map<std::string, std::vector<std::string_view>> groups_ RM_GUARDED_BY(mutex_);
  std::map<std::string, Revision> floors_ RM_GUARDED_BY(mutex_);              // by group
  std::map<std::string, std::unique_ptr<Sink>> sinks_ RM_GUARDED_BY(mutex_);  // by namespace
};

}  // namespace ringmaster::kube
