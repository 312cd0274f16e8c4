// SPDX-License-Identifier: Apache-2.0

// Which jobs have a coordinator, as their agents see it: on real sockets.
#include "operator/gang_coordinators.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/operator/worlds.h"
#include "tests/unit/rendezvous/server_client.h"

namespace ringmaster::operator_main {
namespace {

using rendezvous::Client;

class GangCoordinatorsTest : public testing::Test {
 protected:
  GangCoordinatorsTest() {
    rendezvous::ServerCallbacks callbacks;
    callbacks.on_report = [this](const std::string&, const std::string& uid, const rendezvous::Report&) {
      const std::lock_guard lock(mutex_);
      reported_.push_back(uid);
      changed_.notify_all();
    };
    rendezvous::ServerOptions options;
    options.secret = "secret";
    auto server = rendezvous::Server::Start(options, std::move(callbacks));
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    coordinators_ = std::make_unique<GangCoordinators>(
        *server_, 1, [](const control::Key&, const std::string&) { return std::string(); });
    observed_.job.uid = "first";
  }

  void Order() { coordinators_->Order(kKey, observed_.job.uid, observed_.status, core::SetGang{1, 1, 1, 1}); }
  void End(core::PodPhase phase) {
    observed_.status.ledger.outcome = core::Outcome::kFailed;
    for (core::Pod& pod : observed_.pods) pod.phase = phase;
    coordinators_->ForgetUnneeded(kKey, observed_);
  }
  // Connects an agent. Returns whether the job has a coordinator.
  bool Greet(Client& client) {
    client.Send(rendezvous::Hello{kKey.ToString(), "job-1-0", "agent", "secret", 1});
    const auto answer = client.Next();
    return answer && std::holds_alternative<rendezvous::Welcome>(*answer);
  }
  bool HasCoordinator() {
    Client client(server_->port());
    return Greet(client);
  }
  void AwaitReportOf(const std::string& uid) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return !reported_.empty() && reported_.back() == uid; }));
  }

  const control::Key kKey{"ml", "job"};
  core::Observed observed_ = core::RunningWorld(1);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> reported_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<GangCoordinators> coordinators_;
};

TEST_F(GangCoordinatorsTest, AnEndedJobNeedsNoneOnceItsPodsHaveEnded) {
  Order();
  coordinators_->ForgetUnneeded(kKey, observed_);
  EXPECT_TRUE(HasCoordinator()) << "it runs";
  End(core::PodPhase::kRunning);
  EXPECT_TRUE(HasCoordinator()) << "an agent may still wait for its order to exit";
  End(core::PodPhase::kSucceeded);
  EXPECT_FALSE(HasCoordinator());
  Order();
  EXPECT_TRUE(HasCoordinator()) << "an order makes a new one";
}

// Its agents get their orders until then. One whose pod the view has lost too early gets one, too.
TEST_F(GangCoordinatorsTest, AnAgentThatIsLeftGetsItsExit) {
  Order();
  Client client(server_->port());
  ASSERT_TRUE(Greet(client));
  End(core::PodPhase::kFailed);
  EXPECT_EQ(client.Await<rendezvous::Exit>().code, 75);
}

// A job in a queue, or a suspended one, gives no order for long. Until then the coordinator of the job that
// it has replaced would report about it.
TEST_F(GangCoordinatorsTest, AReplacedJobNeedsNone) {
  Order();
  EXPECT_TRUE(HasCoordinator());
  AwaitReportOf("first");
  observed_ = core::NewWorld(1);
  observed_.job.uid = "second";
  coordinators_->ForgetUnneeded(kKey, observed_);
  EXPECT_FALSE(HasCoordinator());
  Order();
  EXPECT_TRUE(HasCoordinator());
  AwaitReportOf("second");
}

// A leader starts coordinators of a job again and again. The status does not show the newest of them yet when
// the next leader takes over, and the Lease has counted one leader more.
TEST_F(GangCoordinatorsTest, TheNextLeaderIsAboveAllCoordinatorsOfItsPredecessor) {
  const auto newest = [this](GangCoordinators& coordinators, int starts) {
    for (int i = 0; i < starts; ++i) {
      core::SetGang stop{1, 1, 1, 1};
      stop.stop = true;
      coordinators.Order(kKey, "uid", {}, core::SetGang{1, 1, 1, 1});
      coordinators.Order(kKey, "uid", {}, stop);
    }
    coordinators.Order(kKey, "uid", {}, core::SetGang{1, 1, 1, 1});
    Client client(server_->port());
    client.Send(rendezvous::Hello{kKey.ToString(), "job-1-0", "agent", "secret", 1});
    client.Send(rendezvous::Join{"agent.1", "x"});
    return client.Await<rendezvous::Prepare>().generation >> 32;
  };
  const auto leader = [this](int64_t transitions) {
    return GangCoordinators(*server_, transitions,
                            [](const control::Key&, const std::string&) { return std::string(); });
  };
  auto first = leader(5);
  const auto before = newest(first, 3);
  auto second = leader(6);
  EXPECT_GT(newest(second, 0), before);
}

// A new leader, and a job that continues after a suspension, know which checkpoint must be there.
TEST_F(GangCoordinatorsTest, TheCheckpointOfTheStatusIsRequired) {
  observed_.status.display.gang_generation = rendezvous::Generation{1} << 32;
  observed_.status.display.progress.checkpoint_step = 70;
  Order();
  Client client(server_->port());
  ASSERT_TRUE(Greet(client));
  client.Send(rendezvous::Join{"agent.1", "x"});
  rendezvous::MemberStatus status;
  status.member = "agent.1";
  rendezvous::NewGeneration formed;
  for (;;) {
    const auto message = client.Next();
    ASSERT_TRUE(message.has_value());
    if (const auto* next = std::get_if<rendezvous::NewGeneration>(&*message)) {
      formed = *next;
      break;
    }
    const auto* prepare = std::get_if<rendezvous::Prepare>(&*message);
    if (prepare == nullptr) continue;
    status.generation = prepare->generation;
    status.checkpoint_step = prepare->find_checkpoint ? 70 : -1;
    client.Send(status);
  }
  EXPECT_EQ(formed.checkpoint_floor, 70);
}

// The generation that the status has recorded counts, also when the Lease was deleted.
TEST_F(GangCoordinatorsTest, TheTermIsAboveTheRecordedOne) {
  observed_.status.display.gang_generation = (rendezvous::Generation{9000} << 32) | 3;
  Order();
  Client client(server_->port());
  ASSERT_TRUE(Greet(client));
  client.Send(rendezvous::Join{"agent.1", "x"});
  EXPECT_GT(client.Await<rendezvous::Prepare>().generation >> 32, 9000u);
}

}  // namespace
}  // namespace ringmaster::operator_main
