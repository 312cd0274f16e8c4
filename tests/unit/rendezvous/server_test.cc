// SPDX-License-Identifier: Apache-2.0

// Real sockets on loopback. Every wait is for an event, with a deadline.
#include "rendezvous/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "rendezvous/codec.h"
#include "tests/unit/rendezvous/server_client.h"

namespace ringmaster::rendezvous {
namespace {

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerCallbacks callbacks;
    callbacks.on_report = [this](const std::string&, const std::string&, const Report& report) {
      const std::lock_guard lock(mutex_);
      report_ = report;
      changed_.notify_all();
    };
    auto server = Server::Start(Options(), callbacks);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    CoordinatorOptions options;
    options.job = "default/job";
    server_->AddJob(options);
  }
  void AwaitPhase(GangPhase phase) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return report_.phase == phase; }));
  }
  static ServerOptions Options() {
    ServerOptions options;
    options.secret = "secret";
    return options;
  }
  static Hello Me(int64_t attempt = 0) { return {"default/job", "pod-0", "agent", "secret", attempt}; }

  std::mutex mutex_;
  std::condition_variable changed_;
  Report report_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, OneWorkerFromHelloToTheEnd) {
  Client client(server_->port());
  client.Send(Me());
  EXPECT_EQ(client.Await<Welcome>().job, "default/job");
  client.Send(Join{"agent.1", "x"});
  MemberStatus status;
  status.generation = client.Await<Prepare>().generation;
  status.member = "agent.1";
  client.Send(status);
  EXPECT_EQ(client.Await<NewGeneration>().members.size(), 1u);
  AwaitPhase(GangPhase::kActive);
  Done done;
  done.finished = true;
  client.Send(done);
  EXPECT_EQ(client.Await<Exit>().reason, "finished");
  AwaitPhase(GangPhase::kFinished);
}

TEST_F(ServerTest, UnauthenticatedConnectionsAreClosed) {
  Hello wrong = Me();
  wrong.secret = "secreT";
  Hello other = Me();
  other.job = "default/other";
  for (const std::string& first : {Encode(wrong), Encode(other), Encode(Ping{}),
                                   std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff")}) {
    Client client(server_->port());
    client.SendRaw(first);
    EXPECT_FALSE(client.Next().has_value());
  }
}

TEST_F(ServerTest, AStopWithoutStateEndsAtOnce) {
  Client client(server_->port());
  client.Send(Me());
  client.Await<Welcome>();
  server_->RequestStop("default/job");
  EXPECT_EQ(client.Await<Exit>().code, 0);
  AwaitPhase(GangPhase::kStopped);
}

TEST_F(ServerTest, ShutdownClosesAllConnections) {
  Client client(server_->port());
  client.Send(Me());
  client.Await<Welcome>();
  server_->Shutdown();
  server_.reset();
  while (client.Next()) {
  }
}

TEST_F(ServerTest, OnlyTheCurrentAttemptTakesPart) {
  Client old(server_->port());
  old.Send(Me(1));
  old.Await<Welcome>();
  server_->SetAttempt("default/job", 2);
  EXPECT_EQ(old.Await<Exit>().code, 75);  // was authenticated before
  EXPECT_FALSE(old.Next().has_value());
  Client late(server_->port());
  late.Send(Me(1));  // created late, by a former leader
  EXPECT_EQ(late.Await<Exit>().code, 75);
  Client unnumbered(server_->port());
  unnumbered.Send(Me(0));
  EXPECT_EQ(unnumbered.Await<Exit>().code, 75);
  Client early(server_->port());
  early.Send(Me(3));  // created by a newer leader: it must connect again
  EXPECT_FALSE(early.Next().has_value());
  Client current(server_->port());
  current.Send(Me(2));
  EXPECT_EQ(current.Await<Welcome>().job, "default/job");
  EXPECT_EQ(server_->connected(), 1);
}

// Operators search their logs for a job.
TEST_F(ServerTest, LinesAboutAnAuthenticatedConnectionNameItsJob) {
  log::Init("test");
  testing::internal::CaptureStderr();
  Client client(server_->port());
  client.Send(Me(1));
  client.Await<Welcome>();
  server_->SetAttempt("default/job", 2);
  EXPECT_EQ(client.Await<Exit>().code, 75);
  EXPECT_FALSE(client.Next().has_value());
  server_.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("job=default/job attempt=1 generation=0 pod=pod-0 rendezvous: dismissed "));
}

TEST_F(ServerTest, RemovingAJobDismissesItsAgents) {
  Client client(server_->port());
  client.Send(Me());
  client.Await<Welcome>();
  server_->RemoveJob("default/job");
  EXPECT_EQ(client.Await<Exit>().code, 75);
  Client again(server_->port());
  again.Send(Me());
  EXPECT_FALSE(again.Next().has_value());
}

// Authenticates Hellos when the test says so.
class FakeAuthenticator {
 public:
  std::function<void(const Hello&, std::function<void(Status)>)> Admit() {
    return [this](const Hello& hello, std::function<void(Status)> done) {
      const std::lock_guard lock(mutex_);
      hello_ = hello;
      done_ = std::move(done);
      asked_.notify_all();
    };
  }
  Hello AwaitQuestion() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(asked_.wait_for(lock, std::chrono::seconds(120), [&] { return done_ != nullptr; }));
    return hello_;
  }
  void Answer(const Status& verdict) { std::exchange(done_, nullptr)(verdict); }

 private:
  std::mutex mutex_;
  std::condition_variable asked_;
  Hello hello_;
  std::function<void(Status)> done_;
};

TEST(Server, AuthenticationMayTakeTime) {
  FakeAuthenticator authenticator;
  ServerOptions options;
  options.authenticate = authenticator.Admit();
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok());
  CoordinatorOptions job;
  job.job = "default/job";
  (*server)->AddJob(job);
  {
    Client client((*server)->port());
    // Messages right after the Hello are kept until it is authenticated.
    client.SendRaw(Encode(Hello{"default/job", "pod-0", "agent", "token", 0}) + Encode(Join{"agent.1", "x"}));
    EXPECT_EQ(authenticator.AwaitQuestion().secret, "token");
    EXPECT_EQ((*server)->connected(), 0);
    authenticator.Answer(Ok());
    client.Await<Welcome>();
    client.Await<Prepare>();
  }
  {
    Client client((*server)->port());
    client.Send(Hello{"default/job", "pod-1", "agent2", "token", 0});
    authenticator.AwaitQuestion();
    authenticator.Answer(Error{Code::kForbidden, "a token of another pod"});
    EXPECT_FALSE(client.Next().has_value());
  }
  Client client((*server)->port());
  client.Send(Hello{"default/job", "pod-2", "agent3", "token", 0});
  authenticator.AwaitQuestion();
  server->reset();
  authenticator.Answer(Ok());  // the server has ended: no effect
  EXPECT_FALSE(client.Next().has_value());
}

// The limits of unauthenticated connections.
class FloodTest : public ServerTest {
 protected:
  void Begin(int32_t in_all, int32_t per_peer, Duration deadline) {
    ServerOptions options = Options();
    options.max_unauthenticated = in_all;
    options.max_unauthenticated_per_address = per_peer;
    options.hello_deadline = deadline;
    server_ = std::move(Server::Start(options, {}).value());
    CoordinatorOptions job;
    job.job = "default/job";
    server_->AddJob(job);
  }
  // Retries until it is authenticated: the server's thread lowers the count later.
  void Enter() {
    const Time limit = Now() + seconds(120);
    for (;;) {
      ASSERT_LT(Now(), limit) << "no connection is authenticated any more";
      Client client(server_->port());
      client.Send(Me());
      if (client.Next()) return;
    }
  }
};

TEST_F(FloodTest, AFloodDelaysAgentsByAtMostTheHelloDeadline) {
  Begin(8, 8, milliseconds(300));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<Client>(server_->port()));
  for (const auto& client : silent) EXPECT_FALSE(client->Next().has_value()) << "closed in time";
  Enter();
}

TEST_F(FloodTest, LimitsUnauthenticatedConnectionsPerAddress) {
  Begin(1000, 3, seconds(600));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<Client>(server_->port()));
  Client fourth(server_->port());
  fourth.Send(Me());
  EXPECT_FALSE(fourth.Next().has_value());
  silent.pop_back();
  Enter();
}

TEST_F(FloodTest, LimitsUnauthenticatedConnectionsInTotal) {
  Begin(3, 1000, seconds(600));
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<Client>(server_->port()));
  Client fourth(server_->port());
  fourth.Send(Me());
  EXPECT_FALSE(fourth.Next().has_value());
  silent.clear();
  Enter();
}

TEST_F(FloodTest, AuthenticatedConnectionsDoNotCount) {
  Begin(2, 2, seconds(600));
  std::vector<std::unique_ptr<Client>> members;
  for (int i = 0; i < 5; ++i) {
    Client& client = *members.emplace_back(std::make_unique<Client>(server_->port()));
    client.Send(
        {Hello{"default/job", "pod-" + std::to_string(i), "agent-" + std::to_string(i), "secret", 0}});
    client.Await<Welcome>();
  }
  EXPECT_EQ(server_->connected(), 5);
}

// It would connect again for ever.
TEST(Server, AnAgentWhoseJobIsGoneGetsExit) {
  ServerOptions options;
  options.authenticate = [](const Hello&, const std::function<void(Status)>& done) {
    done(Error{Code::kGone, "the job is gone"});
  };
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.error().message;
  Client client((*server)->port());
  client.Send(Hello{"default/job", "pod-0", "agent", "token", 1});
  EXPECT_EQ(client.Await<Exit>().code, 75);
  EXPECT_FALSE(client.Next().has_value());
}

TEST(Server, AnUnusableAddressIsAnError) {
  ServerOptions options;
  options.host = "not an address";
  EXPECT_FALSE(Server::Start(options, {}).ok());
}

}  // namespace
}  // namespace ringmaster::rendezvous
