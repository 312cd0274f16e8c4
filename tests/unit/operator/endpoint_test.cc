// SPDX-License-Identifier: Apache-2.0

// The EndpointSlice of the rendezvous Service, with a test in the place of the API server.
#include "operator/endpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/unit/kube_watch/fake_server.h"

namespace ringmaster::operator_main {
namespace {

Json Ours() { return EndpointSliceFor("svc", "ns", "10.1.2.3", 7070); }

TEST(SliceRepair, OnlyWhatLeadsElsewhereIsRepaired) {
  Json slice = Ours();
  EXPECT_EQ(RepairOf(nullptr, Ours()), SliceRepair::kApply);
  slice["metadata"]["labels"]["example.com/more"] = "x";
  slice["endpoints"][0]["zone"] = "a";
  EXPECT_EQ(RepairOf(slice, Ours()), SliceRepair::kNone);
  for (const auto& edit : std::vector<std::function<void(Json&)>>{
           [](Json& s) { s["endpoints"][0]["addresses"][0] = "10.9.9.9"; },
           [](Json& s) { s["endpoints"][0]["conditions"]["ready"] = false; },
           [](Json& s) {
             s["endpoints"].push_back({{"addresses", Json::array({"10.9.9.9"})}});
           },
           [](Json& s) { s["endpoints"] = nullptr; },
           [](Json& s) { s["ports"][0]["port"] = 1; },
           [](Json& s) { s["metadata"]["labels"].erase("kubernetes.io/service-name"); },
           [](Json& s) { s["metadata"].erase("labels"); },
       }) {
    Json edited = Ours();
    edit(edited);
    EXPECT_EQ(RepairOf(edited, Ours()), SliceRepair::kApply) << edited.dump();
  }
  slice["addressType"] = "IPv6";
  EXPECT_EQ(RepairOf(slice, Ours()), SliceRepair::kReplace);
}

class EndpointTest : public testing::Test {
 protected:
  EndpointTest() {
    server_.answer = [this](const kube::HttpRequest& request) -> Result<kube::HttpResponse> {
      kube::HttpResponse response;
      response.status = 200;
      if (request.method == "GET") {
        EXPECT_NE(request.target.find("metadata.name%3Dsvc"), std::string::npos) << request.target;
        response.body = R"({"metadata":{"resourceVersion":"10"},"items":[]})";
        return response;
      }
      const std::lock_guard lock(mutex_);
      writes_.push_back(request.method);
      written_.notify_all();
      if (refusals_ > 0) {
        --refusals_;
        response.status = 500;
        response.body = R"({"kind":"Status","code":500,"message":"etcd is away"})";
      } else {
        response.body = R"({"metadata":{"resourceVersion":")" + std::to_string(++revision_) + R"("}})";
      }
      return response;
    };
  }
  void Publish() {
    EndpointPublisher::Options options;
    options.service = "svc";
    options.namespace_ = "ns";
    options.ip = "10.1.2.3";
    options.port = 7070;
    options.may_write = [this] { return leads_.load(); };
    publisher_ = std::make_unique<EndpointPublisher>(client_, std::move(options));
  }
  void AwaitWrites(size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(written_.wait_for(lock, std::chrono::seconds(60), [&] { return writes_.size() >= count; }));
  }
  void AwaitReady() {
    const Time limit = Now() + seconds(60);
    while (!publisher_->Problem().empty()) {
      ASSERT_LT(Now(), limit) << publisher_->Problem();
      std::this_thread::yield();
    }
  }
  std::string Line(const char* type, Json slice, int revision) {
    slice["metadata"]["resourceVersion"] = std::to_string(revision);
    slice["metadata"]["uid"] = "u1";
    return Json{{"type", type}, {"object", slice}}.dump();
  }

  std::mutex mutex_;
  std::condition_variable written_;
  std::vector<std::string> writes_;
  int refusals_ = 0;
  int revision_ = 20;
  std::atomic<bool> leads_{true};
  kube::FakeServer server_;
  kube::ApiClient client_{server_};
  std::unique_ptr<EndpointPublisher> publisher_;
};

TEST_F(EndpointTest, AWriteThatFailsIsRepeatedUntilItSucceeds) {
  refusals_ = 3;
  Publish();
  AwaitWrites(1);
  AwaitWrites(4);
  AwaitReady();
  EXPECT_EQ(writes_.size(), 4u);
}

TEST_F(EndpointTest, EditsAndDeletionsAreRepaired) {
  Publish();
  AwaitWrites(1);
  const auto watch = server_.AwaitStream(0);
  AwaitReady();
  server_.Line(watch, Line("DELETED", Ours(), 30));
  AwaitWrites(2);
  AwaitReady();
  Json other = Ours();
  other["endpoints"][0]["addresses"][0] = "10.9.9.9";
  server_.Line(watch, Line("MODIFIED", other, 40));
  AwaitWrites(3);
  AwaitReady();
  other["addressType"] = "IPv6";
  server_.Line(watch, Line("ADDED", other, 50));
  AwaitWrites(5);
  AwaitReady();
  EXPECT_EQ(writes_, (std::vector<std::string>{"PATCH", "PATCH", "PATCH", "DELETE", "PATCH"}));
}

// The slice of the next leader must stay.
TEST_F(EndpointTest, AProcessThatLeadsNoMoreWritesNothing) {
  Publish();
  AwaitWrites(1);
  const auto watch = server_.AwaitStream(0);
  AwaitReady();
  leads_ = false;
  Json next = Ours();
  next["endpoints"][0]["addresses"][0] = "10.9.9.9";
  server_.Line(watch, Line("MODIFIED", next, 40));
  const Time limit = Now() + seconds(60);
  while (publisher_->Problem().find("Lease") == std::string::npos) {
    ASSERT_LT(Now(), limit);
    std::this_thread::yield();
  }
  EXPECT_EQ(writes_.size(), 1u);
}

}  // namespace
}  // namespace ringmaster::operator_main
