// SPDX-License-Identifier: Apache-2.0

// The relay between the agents of a pod and real rendezvous servers, on loopback. The test turns its loop.
#include "worker/agent/shell/slot_relay.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rendezvous/server.h"
#include "tests/unit/agent/rig.h"
#include "worker/agent/shell/coordinator_link.h"
#include "worker/agent/shell/doorbell.h"

namespace ringmaster::agent {
namespace {

using rendezvous::Message;

constexpr int32_t kSlots = 3;

// The agent of one slot.
class SlotAgent {
 public:
  SlotAgent(int doorbell, int32_t slot) : doorbell_(doorbell), slot_(slot) { Connect(); }

  void Connect() {
    ++incarnation_;
    stream_ = std::make_unique<FrameStream>(RingDoorbell(doorbell_).value());
    received_.clear();
    ended_ = false;
    Send(rendezvous::Hello{"rm/job", "pod-0", name(), "s", 0, slot_});
  }
  void Disconnect() { stream_.reset(); }
  std::string name() const { return "a" + std::to_string(slot_) + "-" + std::to_string(incarnation_); }
  void Send(const Message& message) { ASSERT_TRUE(stream_->Send(message).ok()); }
  void Read() {
    if (!stream_) return;
    ended_ = ended_ || !stream_->Receive().ok();
    while (true) {
      auto next = stream_->Next();
      ASSERT_TRUE(next.ok());
      if (!next.value()) return;
      received_.push_back(std::move(*next.value()));
    }
  }
  bool ended() const { return ended_; }
  template <class T>
  const T* Last() const {
    for (auto it = received_.rbegin(); it != received_.rend(); ++it) {
      if (const T* found = std::get_if<T>(&*it)) return found;
    }
    return nullptr;
  }

 private:
  const int doorbell_;
  const int32_t slot_;
  int incarnation_ = 0;
  std::unique_ptr<FrameStream> stream_;
  std::vector<Message> received_;
  bool ended_ = false;
};

// A coordinator that knows nothing of shared connections.
class OlderCoordinator {
 public:
  OlderCoordinator() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
    CHECK(::listen(listener_.get(), 8) == 0);
  }
  uint16_t port() const {
    sockaddr_in bound = {};
    socklen_t length = sizeof bound;
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0);
    return ntohs(bound.sin_port);
  }
  // Accepts, welcomes, and notes who joins.
  void Serve() {
    Fd next(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (next.valid()) streams_.push_back(std::make_unique<FrameStream>(std::move(next)));
    for (const auto& stream : streams_) {
      (void)stream->Receive();
      while (true) {
        const auto message = stream->Next();
        ASSERT_TRUE(message.ok()) << "an older coordinator cannot read this";
        if (!message.value()) break;
        ASSERT_TRUE(stream->slots().empty());
        if (std::holds_alternative<rendezvous::Hello>(*message.value())) {
          ASSERT_TRUE(stream->Send(rendezvous::Welcome{"rm/job"}).ok());
        }
        if (const auto* join = std::get_if<rendezvous::Join>(&*message.value()))
          joined.push_back(join->member);
      }
    }
  }
  size_t connections() const { return streams_.size(); }
  std::vector<std::string> joined;

 private:
  const Fd listener_;
  std::vector<std::unique_ptr<FrameStream>> streams_;
};

class SlotRelayTest : public testing::Test {
 protected:
  void StartServer(uint16_t port = 0, uint32_t term = 1) {
    rendezvous::ServerOptions options;
    options.port = port;
    options.authenticate = [this](const rendezvous::Hello&, std::function<void(Status)> done) {
      ++connections_;
      done(Ok());
    };
    rendezvous::ServerCallbacks callbacks;
    callbacks.on_report = [this](const std::string&, const std::string&, const rendezvous::Report& report) {
      MutexLock lock(mutex_);
      report_ = report;
    };
    auto server = rendezvous::Server::Start(options, std::move(callbacks));
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    rendezvous::CoordinatorOptions job;
    job.job = "rm/job";
    job.min = job.target = job.max = job.slots = kSlots;
    job.term = term;
    server_->AddJob(job);
  }
  void StartRelay(uint16_t port) {
    std::vector<Fd> ours;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      auto ends = MakeDoorbell();
      ASSERT_TRUE(ends.ok());
      doorbells_.push_back(std::move(ends.value().first));
      ours.push_back(std::move(ends.value().second));
    }
    relay_ = std::make_unique<SlotRelay>(SlotRelay::Options{"127.0.0.1", std::to_string(port), ""},
                                         std::move(ours));
  }
  SlotAgent& StartAgent(int32_t slot) {
    return *agents_.emplace_back(
        std::make_unique<SlotAgent>(doorbells_[static_cast<size_t>(slot)].get(), slot));
  }
  // Turns the relay's loop until `condition` holds.
  bool Turn(const std::function<bool()>& condition) {
    for (const Time limit = Now() + kPatience; Now() < limit;) {
      relay_->RunOnce(Now() + milliseconds(5), -1);
      for (const auto& agent : agents_) agent->Read();
      if (condition()) return true;
    }
    return false;
  }
  bool AllGot(const std::function<bool(const SlotAgent&)>& got) {
    return Turn([&] {
      return std::all_of(agents_.begin(), agents_.end(), [&](const auto& agent) { return got(*agent); });
    });
  }
  template <class T>
  bool AllGot() {
    return AllGot([](const SlotAgent& agent) { return agent.Last<T>() != nullptr; });
  }
  void Form() {
    for (const auto& agent : agents_) agent->Send(rendezvous::Join{agent->name() + ".1", "x"});
    ASSERT_TRUE(AllGot<rendezvous::Prepare>());
    AnswerPrepare();
    ASSERT_TRUE(AllGot<rendezvous::NewGeneration>());
  }
  void AnswerPrepare() {
    for (const auto& agent : agents_) {
      rendezvous::MemberStatus status;
      status.generation = agent->Last<rendezvous::Prepare>()->generation;
      status.member = agent->name() + ".1";
      agent->Send(status);
    }
  }
  rendezvous::Report ReadReport() {
    MutexLock lock(mutex_);
    return report_;
  }

  std::atomic<int> connections_{0};
  Mutex mutex_;
  rendezvous::Report report_ RM_GUARDED_BY(mutex_);
  std::unique_ptr<rendezvous::Server> server_;
  std::vector<Fd> doorbells_;
  std::unique_ptr<SlotRelay> relay_;
  std::vector<std::unique_ptr<SlotAgent>> agents_;
};

TEST_F(SlotRelayTest, ThreeSlotsFormAGenerationOverOneConnection) {
  StartServer();
  StartRelay(server_->port());
  for (int32_t slot = 0; slot < kSlots; ++slot) StartAgent(slot);
  ASSERT_TRUE(AllGot<rendezvous::Welcome>());
  Form();
  EXPECT_EQ(agents_[2]->Last<rendezvous::NewGeneration>()->members.size(), 3u);
  EXPECT_EQ(connections_, 1);
  EXPECT_EQ(server_->connected(), 3);
  server_->RemoveJob("rm/job");
  EXPECT_TRUE(AllGot<rendezvous::Exit>());
  EXPECT_TRUE(AllGot([](const SlotAgent& agent) { return agent.ended(); }));
}

TEST_F(SlotRelayTest, TheEndOfOneAgentLeavesTheOthersConnected) {
  StartServer();
  StartRelay(server_->port());
  for (int32_t slot = 0; slot < kSlots; ++slot) StartAgent(slot);
  ASSERT_TRUE(AllGot<rendezvous::Welcome>());
  agents_[1]->Disconnect();
  EXPECT_TRUE(Turn([&] { return server_->connected() == 2; }));
  agents_[1]->Connect();
  EXPECT_TRUE(AllGot<rendezvous::Welcome>());
  EXPECT_EQ(server_->connected(), 3);
  EXPECT_EQ(connections_, 1);
  EXPECT_FALSE(agents_[0]->ended());
  Form();
}

TEST_F(SlotRelayTest, AgentsFindTheNextCoordinator) {
  StartServer();
  const uint16_t port = server_->port();
  StartRelay(port);
  for (int32_t slot = 0; slot < kSlots; ++slot) StartAgent(slot);
  ASSERT_TRUE(AllGot<rendezvous::Welcome>());
  server_.reset();
  ASSERT_TRUE(AllGot([](const SlotAgent& agent) { return agent.ended(); }));
  for (const auto& agent : agents_) agent->Connect();
  StartServer(port, 2);
  EXPECT_TRUE(AllGot<rendezvous::Welcome>());
  Form();
  EXPECT_EQ(connections_, 2);
}

// The pings of a pod name the slots that live.
TEST_F(SlotRelayTest, ASlotThatIsSilentIsNoticedAlone) {
  StartServer();
  StartRelay(server_->port());
  for (int32_t slot = 0; slot < kSlots; ++slot) StartAgent(slot);
  ASSERT_TRUE(AllGot<rendezvous::Welcome>());
  Form();
  const Time since = Now();
  EXPECT_TRUE(Turn([&] {
    for (const size_t slot : {0u, 2u}) agents_[slot]->Send(rendezvous::Ping{});
    return agents_[0]->Last<rendezvous::Prepare>()->generation >
           agents_[0]->Last<rendezvous::NewGeneration>()->generation;
  }));
  EXPECT_GE(Now() - since, seconds(2)) << "silence before the first step is tolerated for 3 s";
  AnswerPrepare();
  EXPECT_TRUE(
      Turn([&] { return agents_[1]->Last<rendezvous::Prepare>() != nullptr && !agents_[1]->ended(); }));
  EXPECT_EQ(ReadReport().silent_pods, std::vector<std::string>{"pod-0"});
}

// A coordinator of an earlier build welcomes without announcing shared connections.
TEST_F(SlotRelayTest, AnOlderCoordinatorGetsOneConnectionForEachSlot) {
  OlderCoordinator older;
  StartRelay(older.port());
  StartAgent(2);
  StartAgent(0);
  EXPECT_TRUE(Turn([&] {
    older.Serve();
    return std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) {
      return agent->template Last<rendezvous::Welcome>() != nullptr;
    });
  }));
  agents_[1]->Send(rendezvous::Join{"a0-1.1", "x"});
  EXPECT_TRUE(Turn([&] {
    older.Serve();
    return older.joined == std::vector<std::string>{"a0-1.1"};
  }));
  EXPECT_EQ(older.connections(), 2u);
}

TEST(CoordinatorLink, NeedsNoAuthorityForTheRelay) {
  const auto doorbell = MakeDoorbell().value();
  CoordinatorLink link("127.0.0.1", "1", "/none/ca.crt", doorbell.first.get());
  link.Connect(Now());
  ASSERT_TRUE(link.OnReady(POLLOUT, Now()).ok());
  EXPECT_EQ(link.state(), CoordinatorLink::State::kUp);
  EXPECT_TRUE(link.through_relay());
}

TEST(CoordinatorLink, IsDirectAfterTheRelayDidNotAnswer) {
  using State = CoordinatorLink::State;
  const auto doorbell = MakeDoorbell().value();
  const OlderCoordinator coordinator;
  CoordinatorLink link("127.0.0.1", std::to_string(coordinator.port()), "", doorbell.first.get());
  Time now = Now();
  const auto connect = [&] {
    link.Connect(now);
    for (pollfd polled = link.PollFor(); link.state() != State::kUp; polled = link.PollFor()) {
      ASSERT_GT(::poll(&polled, 1, 10'000), 0);
      ASSERT_TRUE(link.OnReady(polled.revents, now).ok());
    }
  };

  connect();
  EXPECT_TRUE(link.through_relay());
  EXPECT_TRUE(link.OnReady(0, now + CoordinatorLink::kRelayLimit - milliseconds(1)).ok());
  now = link.deadline();
  EXPECT_FALSE(link.OnReady(0, now).ok());

  connect();
  EXPECT_FALSE(link.through_relay());
  EXPECT_EQ(link.deadline(), kNever);

  // The relay may be back when this connection ends.
  connect();
  EXPECT_TRUE(link.through_relay());
  std::vector<Fd> taken;
  for (Fd next = AnswerDoorbell(doorbell.second.get()); next.valid();
       next = AnswerDoorbell(doorbell.second.get()))
    taken.push_back(std::move(next));
  EXPECT_EQ(taken.size(), 2U);
  now = link.deadline();
  EXPECT_TRUE(link.OnReady(0, now).ok());
  EXPECT_EQ(link.state(), State::kUp);
  EXPECT_EQ(link.deadline(), kNever);
}

}  // namespace
}  // namespace ringmaster::agent
