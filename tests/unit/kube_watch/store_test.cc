// SPDX-License-Identifier: Apache-2.0

// The store by hand, and against a simple model under random histories: events, interrupted lists, and direct
// reads that overtake the watch.
#include "operator/kube/watch/store.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/rng.h"
#include "tests/sanitized.h"

namespace ringmaster::kube {
namespace {

struct StoreItem {
  std::string key;
  std::string group;
  int64_t value = 0;
  Revision revision = 0;
};

Json Object(const std::string& name, const std::string& group, int64_t value, Revision revision) {
  return {{"metadata", {{"name", name}, {"resourceVersion", std::to_string(revision)}}},
          {"group", group},
          {"value", value}};
}

struct Changes {
  std::vector<std::string> keys;
};

Store<StoreItem>::Hooks HooksOf(Changes& changes) {
  Store<StoreItem>::Hooks hooks;
  hooks.decode = [](const Json& object, const Meta& meta, const std::shared_ptr<const StoreItem>&) {
    if (json::Text(object, "group") == "foreign") return std::shared_ptr<const StoreItem>();
    return std::make_shared<const StoreItem>(StoreItem{meta.key, std::string(json::Text(object, "group")),
                                                       json::Integer(object, "value"), meta.revision});
  };
  hooks.group = [](const StoreItem& item) { return item.group; };
  hooks.changed = [&changes](const std::string& key, const auto&, const auto&) {
    changes.keys.push_back(key);
  };
  return hooks;
}

class StoreTest : public testing::Test {
 protected:
  std::optional<int64_t> Value(const std::string& key) {
    const auto item = store_.Get(key);
    return item ? std::optional(item->value) : std::nullopt;
  }
  Changes changes_;
  Store<StoreItem> store_{HooksOf(changes_)};
  ReflectorSink& sink_ = store_.In("");
};

TEST_F(StoreTest, IncompleteListIsNotVisible) {
  sink_.Begin();
  sink_.Item(Object("a", "g", 1, 5));
  EXPECT_EQ(store_.size(), 0U);
  EXPECT_FALSE(store_.synced());
  sink_.Begin();  // it broke, and starts again
  sink_.Item(Object("b", "g", 2, 6));
  sink_.End(10);
  EXPECT_TRUE(store_.synced());
  EXPECT_EQ(store_.revision(), 10U);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"b"});
  EXPECT_EQ(changes_.keys, std::vector<std::string>{"b"});
}

TEST_F(StoreTest, ListRemovesDeletedObjects) {
  sink_.Begin();
  sink_.Item(Object("a", "g", 1, 5));
  sink_.Item(Object("b", "g", 2, 6));
  sink_.End(10);
  changes_.keys.clear();
  sink_.Begin();
  sink_.Item(Object("b", "g", 2, 6));
  EXPECT_EQ(store_.size(), 2U);
  sink_.End(20);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"b"});
  EXPECT_EQ(changes_.keys, std::vector<std::string>{"a"});  // b is unchanged
  EXPECT_TRUE(store_.Group("g").size() == 1);
}

TEST_F(StoreTest, EventsAreApplied) {
  sink_.Begin();
  sink_.End(10);
  sink_.Apply(Object("a", "g", 1, 11), 11);
  sink_.Apply(Object("a", "h", 2, 12), 12);
  EXPECT_EQ(Value("a"), 2);
  EXPECT_TRUE(store_.Group("g").empty());
  EXPECT_EQ(store_.Group("h").size(), 1U);
  sink_.Delete(Object("a", "h", 2, 13), 13);
  EXPECT_EQ(Value("a"), std::nullopt);
  EXPECT_TRUE(store_.Group("h").empty());
  EXPECT_EQ(store_.revision(), 13U);
  sink_.Bookmark(99);
  EXPECT_EQ(store_.revision(), 99U);
}

TEST_F(StoreTest, DecoderMayDropObjects) {
  sink_.Apply(Object("a", "g", 1, 1), 1);
  sink_.Apply(Object("a", "foreign", 1, 2), 2);
  EXPECT_EQ(Value("a"), std::nullopt);
  EXPECT_EQ(store_.revision(), 2U);
}

TEST_F(StoreTest, OldEventsDoNotUndoADirectRead) {
  sink_.Begin();
  sink_.Item(Object("a", "g", 1, 5));
  sink_.End(10);
  // A direct read at 30: a is deleted, b was created at 20.
  store_.ReplaceGroup("g", {Object("b", "g", 7, 20)}, 30);
  EXPECT_EQ(Value("a"), std::nullopt);
  EXPECT_EQ(Value("b"), 7);
  EXPECT_EQ(store_.revision(), 10U) << "other groups have not been seen that far";
  // Older events that the watch still delivers.
  sink_.Apply(Object("a", "g", 2, 15), 15);
  EXPECT_EQ(Value("a"), std::nullopt);
  sink_.Delete(Object("b", "g", 0, 18), 18);  // an earlier b
  EXPECT_EQ(Value("b"), 7);
  sink_.Apply(Object("c", "other", 3, 25), 25);
  EXPECT_EQ(Value("c"), 3) << "the floor is of one group";
  sink_.Apply(Object("b", "g", 8, 31), 31);
  EXPECT_EQ(Value("b"), 8);
}

TEST_F(StoreTest, OlderListDoesNotUndoADirectRead) {
  sink_.Begin();
  sink_.Item(Object("a", "g", 1, 5));
  store_.ReplaceGroup("g", {Object("b", "g", 7, 20)}, 30);
  sink_.End(10);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"b"});
  sink_.Begin();
  sink_.Item(Object("a", "g", 4, 35));
  sink_.End(40);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"a"});
}

TEST_F(StoreTest, OlderDirectReadDoesNotUndoANewerOne) {
  store_.ReplaceGroup("g", {Object("a", "g", 2, 20)}, 30);
  store_.ReplaceGroup("g", {}, 15);
  EXPECT_EQ(Value("a"), 2);
}

TEST_F(StoreTest, ALateAnswerOfADirectReadRestoresNothing) {
  sink_.Begin();
  sink_.Item(Object("a", "g", 1, 5));
  sink_.End(10);
  sink_.Delete(Object("a", "g", 1, 20), 20);
  store_.ReplaceGroup("g", {Object("a", "g", 1, 5)}, 15);
  EXPECT_EQ(Value("a"), std::nullopt);
  store_.ReplaceGroup("g", {Object("b", "g", 2, 25)}, 30);
  EXPECT_EQ(Value("b"), 2);
}

// A list by label misses what has lost the label.
TEST_F(StoreTest, AReadDoesNotHideWhatItMayMiss) {
  Store<StoreItem>::Hooks hooks = HooksOf(changes_);
  hooks.selected = [](const StoreItem& item) { return item.value > 0; };
  Store<StoreItem> store(std::move(hooks));
  ReflectorSink& sink = store.In("");
  sink.Begin();
  sink.End(10);
  store.ReplaceGroup("g", {}, 30);
  sink.Apply(Object("a", "g", 0, 20), 20);
  EXPECT_TRUE(store.Get("a"));
  sink.Apply(Object("b", "g", 1, 21), 21);
  EXPECT_FALSE(store.Get("b")) << "the read shows that it is gone";
}

// A store with one sink per namespace; groups are NAMESPACE/g.
class StoreByNamespaceTest : public testing::Test {
 protected:
  static Json In(const std::string& space, const std::string& name, int64_t value, Revision revision) {
    Json object = Object(name, space + "/g", value, revision);
    object["metadata"]["namespace"] = space;
    return object;
  }
  Changes changes_;
  Store<StoreItem> store_{HooksOf(changes_)};
  ReflectorSink& a_ = store_.In("a");
  ReflectorSink& b_ = store_.In("b");
};

TEST_F(StoreByNamespaceTest, SyncedWhenAllNamespacesAreListed) {
  a_.Begin();
  a_.Item(In("a", "x", 1, 5));
  a_.End(10);
  EXPECT_FALSE(store_.synced());
  b_.Begin();
  b_.Item(In("b", "x", 2, 6));
  b_.End(20);
  EXPECT_TRUE(store_.synced());
  b_.Apply(In("b", "y", 3, 30), 30);
  EXPECT_EQ(store_.revision("a"), 10U);
  EXPECT_EQ(store_.revision("b"), 30U);
  EXPECT_EQ(store_.revision("c"), 0U) << "it has no sink";
  EXPECT_EQ(store_.size(), 3U);
  EXPECT_EQ(&store_.In("a"), &a_);
}

TEST_F(StoreByNamespaceTest, ListRemovesOnlyObjectsOfItsNamespace) {
  for (const auto& [sink, space] : {std::pair(&a_, "a"), std::pair(&b_, "b")}) {
    sink->Begin();
    sink->Item(In(space, "x", 1, 5));
    sink->End(10);
  }
  a_.Begin();
  a_.End(20);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"b/x"});
}

TEST_F(StoreByNamespaceTest, EventsOfAnotherNamespaceKeepTheFloor) {
  a_.Begin();
  a_.Item(In("a", "x", 1, 5));
  a_.End(10);
  store_.ReplaceGroup("a/g", {}, 30);  // gone at 30
  b_.Begin();
  b_.End(40);
  b_.Bookmark(50);
  a_.Apply(In("a", "x", 2, 15), 15);  // a late event
  EXPECT_EQ(store_.Get("a/x"), nullptr);
  a_.Apply(In("a", "x", 3, 31), 31);
  ASSERT_NE(store_.Get("a/x"), nullptr);
}

// The server's state is a history of a few objects. The watch delivers it late, and lists and direct reads
// jump ahead or are interrupted. At every moment each group must equal a state of the server, at the store's
// revision or later, and never go back; at the end both are equal.
TEST(StoreRandom, AgreesWithAModel) {
  constexpr int kNames = 6;
  using State = std::map<std::string, std::pair<int64_t, Revision>>;  // name -> value, revision
  const auto group_of = [](const std::string& name) { return name < "c" ? "g" : "h"; };
  for (uint64_t seed = 1; seed <= (kSanitized ? 80 : 400); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 rng(seed);
    Changes changes;
    Store<StoreItem> store(HooksOf(changes));
    ReflectorSink& sink = store.In("");
    std::vector<State> history(1);  // by revision
    std::vector<std::optional<std::string>> touched(1);
    const auto object = [&](const std::string& name, const std::pair<int64_t, Revision>& value) {
      return Object(name, group_of(name), value.first, value.second);
    };
    Revision delivered = 0;
    std::map<std::string, Revision> newest{{"g", 0}, {"h", 0}};  // the store must not show less
    bool listed = false;
    const auto list = [&](bool cut) {
      const Revision at = history.size() - 1;
      if (at < delivered) return;
      sink.Begin();
      for (const auto& [name, value] : history[at]) {
        if (cut && rng.Chance(0.5)) return;
        sink.Item(object(name, value));
      }
      if (cut) return;
      sink.End(at);
      listed = true;
      delivered = at;
      for (auto& [group, revision] : newest) revision = std::max(revision, at);
    };
    for (int step = 0; step < 300; ++step) {
      switch (rng.Below(8)) {
        case 0:
        case 1:
        case 2: {  // the server's state changes
          State next = history.back();
          const std::string name(1, static_cast<char>('a' + static_cast<int>(rng.Below(kNames))));
          if (next.contains(name) && rng.Chance(0.4))
            next.erase(name);
          else
            next[name] = {static_cast<int64_t>(rng.Below(1000)), history.size()};
          history.push_back(next);
          touched.push_back(name);
          break;
        }
        case 3:
        case 4:
        case 5:  // the watch delivers an event
          if (listed && delivered + 1 < history.size()) {
            delivered += 1;
            const std::string& name = *touched[delivered];
            const auto it = history[delivered].find(name);
            if (it != history[delivered].end())
              sink.Apply(object(name, it->second), delivered);
            else
              sink.Delete(Object(name, group_of(name), 0, delivered), delivered);
            for (auto& [group, revision] : newest) revision = std::max(revision, delivered);
          }
          break;
        case 6: {  // a direct read of one group, whose answer may come late
          const std::string group = rng.Chance(0.5) ? "g" : "h";
          const Revision at = rng.Chance(0.5) ? history.size() - 1 : rng.Below(history.size());
          std::vector<Json> objects;
          for (const auto& [name, value] : history[at])
            if (group_of(name) == group) objects.push_back(object(name, value));
          store.ReplaceGroup(group, objects, at);
          newest[group] = std::max(newest[group], at);
          break;
        }
        default:
          if (!listed || rng.Chance(0.2)) list(rng.Chance(0.5));
      }
      ASSERT_EQ(store.revision(), listed ? delivered : 0);
      for (const auto& [group, revision] : newest) {
        State shown;
        for (const auto& item : store.Group(group)) shown[item->key] = {item->value, item->revision};
        State expected;
        for (const auto& [name, value] : history[revision])
          if (group_of(name) == group) expected[name] = value;
        ASSERT_EQ(shown, expected) << "group " << group << " at revision " << revision;
      }
    }
    list(false);
    State all;
    for (const auto& item : store.All()) all[item->key] = {item->value, item->revision};
    ASSERT_EQ(all, history.back());
  }
}

}  // namespace
}  // namespace ringmaster::kube
