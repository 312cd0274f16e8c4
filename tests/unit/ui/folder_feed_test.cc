// SPDX-License-Identifier: Apache-2.0

// The feed of a folder and its server, over real sockets.
#include "cli/ui/folder_feed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "cli/ui/page_server.h"
#include "tests/temp_folder.h"
#include "tests/unit/http/raw_client.h"

namespace ringmaster::cli {
namespace {

using http::Connect;
using http::Receive;
using http::Send;

const char* const kStep1 =
    R"({"step":1,"loss":4.5,"lr":0.1,"gradNorm":1,"seconds":0.5,"samples":32,"generation":1,"workers":4})";

class FolderFeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Append("events.jsonl", Event("Started", R"(,"step":0,"totalSteps":10)"));
    Append("events.jsonl", Event("GenerationFormed", R"(,"generation":1,"workers":["a-0","a-1"])"));
    Append("metrics.jsonl", std::string(kStep1) + "\n");
  }
  std::string Event(const std::string& reason, const std::string& more = "") {
    return R"({"time":"2026-01-02T03:04:05.678Z","monotonicSeconds":)" + std::to_string(++clock_) +
           R"(,"type":"Normal","reason":")" + reason + R"(","message":"m")" + more + "}\n";
  }
  void Append(const std::string& file, const std::string& text) {
    std::ofstream(folder_.path() + "/" + file, std::ios::app) << text;
  }
  void Serve(const std::string& host = "127.0.0.1") {
    auto feed = FolderFeed::Open(folder_.path());
    ASSERT_TRUE(feed.ok());
    feed_ = std::move(feed).value();
    auto server = PageServer::Start({host, 0}, *feed_);
    ASSERT_TRUE(server.ok());
    server_ = std::move(server).value();
    port_ = static_cast<uint16_t>(std::stoi(server_->url().substr(server_->url().rfind(':') + 1)));
  }
  std::string Get(const std::string& target, const std::string& headers = "Host: localhost\r\n") {
    const Fd fd = Connect(port_);
    Send(fd, "GET " + target + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
    return Receive(fd);
  }
  Fd Follow() {
    Fd fd = Connect(port_);
    Send(fd, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return fd;
  }

  TempFolder folder_;
  std::unique_ptr<FolderFeed> feed_;
  std::unique_ptr<PageServer> server_;
  uint16_t port_ = 0;
  int clock_ = 0;
};

TEST_F(FolderFeedTest, SendsTheStateAndThenTheChanges) {
  Serve();
  const Fd stream = Follow();
  const std::string state = Receive(stream, "event: gang\n");
  EXPECT_NE(state.find("text/event-stream"), std::string::npos);
  EXPECT_NE(state.find(R"("totalSteps":10)"), std::string::npos) << state;
  EXPECT_NE(state.find(R"("phase":"Unfinished")"), std::string::npos) << "no process holds the lock";
  Append("metrics.jsonl", R"({"step":2,"loss":4.25,"lr":0.1,"gradNorm":1,"se)");
  Append("metrics.jsonl", "conds\":0.5}\n");
  EXPECT_NE(Receive(stream, R"("from":1,"step":[2])").find(R"("loss":[4.25])"), std::string::npos);
  Append("events.jsonl", Event("Chaos", R"(,"pod":"a-1")"));
  const std::string killed = Receive(stream, "\"killed\"");
  EXPECT_NE(killed.find(R"("reset":false)"), std::string::npos) << killed;
  EXPECT_NE(killed.find(R"("killed")"), std::string::npos) << killed;
  Append("events.jsonl", Event("Succeeded"));
  EXPECT_NE(Receive(stream, R"("phase":"Succeeded")").find("Succeeded"), std::string::npos);
}

TEST_F(FolderFeedTest, SendsBusyTimes) {
  Append("busy_times.jsonl",
         R"({"step":1,"generation":1,"workers":["a-0","a-1"],"seconds":[0.1,0.2],"longest":[0.1,0.3]})"
         "\n");
  Serve();
  const Fd stream = Follow();
  const std::string first = Receive(stream, R"("workers":["a-0","a-1"])");
  EXPECT_NE(first.find(R"({"reset":true,"stragglers":[],"windows":[[1,[0.1,0.2],[0.1,0.3]]],"workers")"),
            std::string::npos)
      << first;
  Append("busy_times.jsonl", R"({"step":2,"seconds":[0.1,0.2],"longest":[0.1,0.3],"stragglers":[1]})"
                             "\n");
  const std::string next = Receive(stream, R"("workers":["a-0","a-1"])");
  EXPECT_NE(next.find(R"({"reset":false,"stragglers":[1],"windows":[[2,)"), std::string::npos) << next;
}

TEST_F(FolderFeedTest, ARunIsLiveWhileItHoldsTheLock) {
  const Fd lock(::open((folder_.path() + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  Serve();
  const Fd stream = Follow();
  EXPECT_NE(Receive(stream, R"("phase":"Running")").find(R"("live":true)"), std::string::npos);
}

TEST_F(FolderFeedTest, AnEventOfALiveRunBringsTheStepsBeforeIt) {
  const Fd lock(::open((folder_.path() + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  Serve();
  const Fd stream = Follow();
  Receive(stream, "event: gang\n");
  Append("metrics.jsonl", "[2,4.25,0.1,1,0.5]\n");
  Receive(stream, R"("from":1,"step":[2])");  // within seconds
  Append("metrics.jsonl", "[3,4.125,0.1,1,0.5]\n");
  Append("events.jsonl", Event("Chaos", R"(,"pod":"a-1")"));
  EXPECT_NE(Receive(stream, "\"killed\"").find(R"("from":2,"step":[3])"), std::string::npos);
}

TEST_F(FolderFeedTest, AnswersWithoutAPageAreOfTheNewestSteps) {
  Serve();
  Append("metrics.jsonl", "[2,4.25,0.1,1,0.5]\n");
  EXPECT_NE(Get("/api/steps").find(R"("step":[1,2])"), std::string::npos);
}

TEST_F(FolderFeedTest, AFileThatStartsOverReplacesTheSteps) {
  Serve();
  const Fd stream = Follow();
  Receive(stream, "event: gang\n");
  Append("metrics.jsonl", R"({"step":2,"loss":4.25,"lr":0.1,"gradNorm":1,"seconds":0.5})"
                          "\n");
  Receive(stream, R"("step":[2])");
  ASSERT_TRUE(WriteFileAtomic(folder_.path() + "/metrics.jsonl", std::string(kStep1) + "\n").ok());
  EXPECT_NE(Receive(stream, R"("from":0,"step":[1])").find("event: steps"), std::string::npos);
}

TEST_F(FolderFeedTest, TheLastChangesAreSentBeforeTheEnd) {
  Serve();
  const Fd stream = Follow();
  Receive(stream, "event: gang\n");
  Append("events.jsonl", Event("Succeeded"));
  server_.reset();
  EXPECT_NE(Receive(stream).find(R"("phase":"Succeeded")"), std::string::npos);
}

TEST_F(FolderFeedTest, LogsAreEscapedAndOnlyOfWorkers) {
  std::filesystem::create_directory(folder_.path() + "/logs");
  Append("logs/a-0.log", "<b>\x1b[31mred\x1b[0m</b>\n");
  Append("logs/secret.log", "secret");
  Serve();
  const Fd stream = Follow();
  Receive(stream, "event: gang\n");
  const std::string log = Get("/api/log?worker=a-0");
  EXPECT_NE(log.find("<b>red</b>"), std::string::npos) << log;
  EXPECT_NE(log.find("Content-Type: text/plain"), std::string::npos) << log;
  EXPECT_NE(log.find("X-Content-Type-Options: nosniff"), std::string::npos) << log;
  for (const char* worker : {"secret", "..%2Fsecret", "a-0%00", "", "a-1"})
    EXPECT_NE(Get(std::string("/api/log?worker=") + worker).find("404"), std::string::npos) << worker;
}

TEST_F(FolderFeedTest, ALogUpToAFailure) {
  std::filesystem::create_directory(folder_.path() + "/logs");
  Append("logs/a-0.log", "2026-01-01T00:00:00.000 I before\n2026-01-05T00:00:00.000 I after\n");
  Serve();
  const std::string log = Get("/api/log?worker=a-0&until=2026-01-03T00:00:00.000Z");
  EXPECT_NE(log.find("before"), std::string::npos) << log;
  EXPECT_EQ(log.find("after"), std::string::npos) << log;
  EXPECT_NE(Get("/api/log?worker=a-0").find("after"), std::string::npos);
  EXPECT_NE(Get("/api/log?worker=a-0&until=now").find("400"), std::string::npos);
}

TEST_F(FolderFeedTest, OtherSitesGetNothing) {
  Serve();
  EXPECT_NE(Get("/").find("200 OK"), std::string::npos);
  EXPECT_NE(Get("/").find("default-src 'none'"), std::string::npos);
  EXPECT_NE(Get("/", "Host: evil.example\r\n").find("403"), std::string::npos);
  for (const char* path : {"/api/stream", "/api/log?worker=a-0", "/api/steps"})
    EXPECT_NE(Get(path, "Host: localhost\r\nOrigin: http://evil.example\r\n").find("403"), std::string::npos)
        << path;
}

TEST_F(FolderFeedTest, StepsInDetail) {
  Serve();
  EXPECT_NE(Get("/api/steps?from=1&to=5").find(R"("step":[1])"), std::string::npos);
  EXPECT_NE(Get("/api/steps?from=x&to=").find("200 OK"), std::string::npos);
}

TEST_F(FolderFeedTest, AnotherAddressNeedsTheToken) {
  auto feed = FolderFeed::Open(folder_.path());
  auto server = PageServer::Start({"0.0.0.0", 0}, **feed);
  ASSERT_TRUE(server.ok());
  const std::string url = (*server)->url();
  port_ = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  EXPECT_NE(Get("/", "Host: h\r\n").find("401"), std::string::npos);
  const std::string token = url.substr(url.find("token=") + 6);
  EXPECT_NE(Get("/?token=" + token, "Host: h\r\n").find("303"), std::string::npos);
  EXPECT_NE(Get("/", "Host: h\r\nAuthorization: Bearer " + token + "\r\n").find("200 OK"), std::string::npos);
}

TEST(FolderFeed, AFolderWithoutARunIsAnError) {
  const TempFolder folder;
  const auto feed = FolderFeed::Open(folder.path());
  ASSERT_FALSE(feed.ok());
  EXPECT_EQ(feed.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace ringmaster::cli
