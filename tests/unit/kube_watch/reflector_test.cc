// SPDX-License-Identifier: Apache-2.0

// The reflectors' thread, with a test in the place of the server.
#include "operator/kube/watch/reflector.h"

#include <gtest/gtest.h>

#include <atomic>

#include "operator/kube/watch/store.h"
#include "tests/unit/kube_watch/fake_server.h"

namespace ringmaster::kube {
namespace {

struct Item {
  std::string key;
};

Json Thing(const std::string& name, int revision) {
  return {{"metadata", {{"name", name}, {"resourceVersion", std::to_string(revision)}}}};
}
std::string Line(const char* type, const std::string& name, int revision) {
  return Json{{"type", type}, {"object", Thing(name, revision)}}.dump();
}
HttpResponse Page(const Json& items, int revision, const std::string& next = {}) {
  HttpResponse response;
  response.status = 200;
  Json metadata = {{"resourceVersion", std::to_string(revision)}};
  if (!next.empty()) metadata["continue"] = next;
  response.body = Json{{"metadata", metadata}, {"items", items}}.dump();
  return response;
}

class ReflectorTest : public testing::Test {
 protected:
  ReflectorTest() {
    Store<Item>::Hooks hooks;
    hooks.decode = [](const Json&, const Meta& meta, const auto&) {
      return std::make_shared<const Item>(Item{meta.key});
    };
    store_ = std::make_unique<Store<Item>>(std::move(hooks));
    Watcher::Options options;
    options.backoff_first = milliseconds(2);
    options.backoff_last = milliseconds(4);
    options.very_short = Duration{0};
    reflectors_ = std::make_unique<Reflectors>(client_, options);
    server_.answer = [this](const HttpRequest& request) {
      lists_ += 1;
      std::lock_guard lock(mutex_);
      return list_(request);
    };
    list_ = [](const HttpRequest&) { return Page(Json::array({Thing("a", 5)}), 10); };
  }
  ~ReflectorTest() override { reflectors_->Stop(); }

  void Start() {
    Collection collection;
    collection.resource = {"", "v1", "things"};
    collection.on_failure = [this](const Error&) { failures_ += 1; };
    reflectors_->Add(collection, store_->In(""));
    reflectors_->Start();
  }

  FakeServer server_;
  ApiClient client_{server_};
  std::mutex mutex_;
  std::function<Result<HttpResponse>(const HttpRequest&)> list_;
  std::atomic<int> lists_ = 0;
  std::atomic<int> failures_ = 0;
  std::unique_ptr<Store<Item>> store_;
  std::unique_ptr<Reflectors> reflectors_;
};

TEST_F(ReflectorTest, ListsThenFollowsTheWatch) {
  EXPECT_TRUE(reflectors_->Problems().empty());
  Start();
  const auto stream = server_.AwaitStream(0);
  EXPECT_NE(stream->target.find("resourceVersion=10"), std::string::npos) << stream->target;
  EXPECT_NE(stream->target.find("allowWatchBookmarks=true"), std::string::npos) << stream->target;
  EXPECT_NE(stream->target.find("timeoutSeconds=2"), std::string::npos) << stream->target;
  EXPECT_TRUE(store_->synced());
  EXPECT_TRUE(reflectors_->Problems().empty());
  server_.Line(stream, Line("ADDED", "b", 11));
  server_.Line(stream, Line("DELETED", "a", 12));
  server_.Line(stream, Line("BOOKMARK", "", 20));
  server_.Settle();
  EXPECT_EQ(store_->Keys(), std::vector<std::string>{"b"});
  EXPECT_EQ(store_->revision(), 20U);
}

TEST_F(ReflectorTest, BrokenStreamContinuesFromTheLastRevision) {
  Start();
  const auto first = server_.AwaitStream(0);
  server_.Line(first, Line("ADDED", "b", 11));
  server_.End(first, Error{Code::kUnavailable, "reset"});
  const auto second = server_.AwaitStream(1);
  EXPECT_NE(second->target.find("resourceVersion=11"), std::string::npos) << second->target;
  EXPECT_EQ(lists_, 1);
  EXPECT_EQ(failures_, 1);
  server_.Line(first, Line("ADDED", "ghost", 12));
  server_.Line(second, Line("ADDED", "c", 13));
  server_.Settle();
  EXPECT_EQ(store_->size(), 3U);
  EXPECT_EQ(store_->Get("ghost"), nullptr);
}

TEST_F(ReflectorTest, GoneListsAgainWithoutLoss) {
  Start();
  const auto first = server_.AwaitStream(0);
  {
    std::lock_guard lock(mutex_);
    list_ = [](const HttpRequest&) { return Page(Json::array({Thing("z", 40)}), 50); };
  }
  server_.Line(first, R"({"type":"ERROR","object":{"code":410,"message":"too old"}})");
  const auto second = server_.AwaitStream(1);
  EXPECT_NE(second->target.find("resourceVersion=50"), std::string::npos) << second->target;
  EXPECT_EQ(store_->Keys(), std::vector<std::string>{"z"});
  EXPECT_EQ(lists_, 2);
}

TEST_F(ReflectorTest, UnreadableLineListsAgain) {
  Start();
  const auto first = server_.AwaitStream(0);
  server_.Line(first, R"({"type":"ADDED","object":)");
  server_.AwaitStream(1);
  EXPECT_EQ(lists_, 2);
  EXPECT_EQ(failures_, 1);
}

TEST_F(ReflectorTest, SeveralPagesAreOneList) {
  list_ = [](const HttpRequest& request) {
    if (request.target.find("continue=") == std::string::npos)
      return Page(Json::array({Thing("a", 1)}), 9, "more");
    return Page(Json::array({Thing("b", 2)}), 9);
  };
  Start();
  server_.AwaitStream(0);
  EXPECT_EQ(store_->size(), 2U);
}

TEST_F(ReflectorTest, RetriesWhileTheServerIsDown) {
  std::atomic<int> left = 5;
  list_ = [&left](const HttpRequest&) -> Result<HttpResponse> {
    if (left-- > 0) return Error{Code::kUnavailable, "connection refused"};
    return Page(Json::array(), 10);
  };
  Start();
  server_.AwaitStream(0);
  EXPECT_TRUE(store_->synced());
  EXPECT_GE(failures_, 1);
  EXPECT_TRUE(reflectors_->Problems().empty());
}

TEST_F(ReflectorTest, NoCallAfterStop) {
  Start();
  const auto stream = server_.AwaitStream(0);
  reflectors_->Stop();
  EXPECT_TRUE(stream->gone);
  server_.Line(stream, Line("ADDED", "late", 11));
  server_.Settle();
  EXPECT_EQ(store_->Get("late"), nullptr);
}

}  // namespace
}  // namespace ringmaster::kube
