// SPDX-License-Identifier: Apache-2.0

// An agent that is authenticated and sends anything: the server survives, and serves another job meanwhile.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "rendezvous/codec.h"
#include "rendezvous/connection.h"
#include "rendezvous/server.h"

namespace ringmaster::rendezvous {
namespace {

class RawAgent {
 public:
  explicit RawAgent(uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    const timeval limit{20, 0};  // reached only when the server is broken
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  void SendRaw(const std::string& bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put =
          ::send(socket_.native_handle(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (put <= 0) return;  // the server has closed the connection
      done += static_cast<size_t>(put);
    }
  }
  // Sends what fits now.
  void SendSome(const std::string& bytes) {
    pollfd wait = {socket_.native_handle(), POLLOUT, 0};
    if (::poll(&wait, 1, 100) == 1)
      sent_ += static_cast<size_t>(
          std::max<ssize_t>(0, ::send(socket_.native_handle(), bytes.data() + sent_ % bytes.size(),
                                      bytes.size() - sent_ % bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT)));
  }
  void Send(const Message& message) { SendRaw(Encode(message)); }
  // Announces a body of `size` bytes, and sends all but one of them.
  void SendAllButOne(size_t size) {
    std::string frame;
    for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(size >> shift & 0xff));
    SendRaw(frame + std::string(size - 1, 'x'));
  }
  int fd() { return socket_.native_handle(); }
  // Frames the body, whatever it is.
  void SendBody(const std::string& body) {
    std::string frame;
    for (int shift = 24; shift >= 0; shift -= 8)
      frame.push_back(static_cast<char>(body.size() >> shift & 0xff));
    SendRaw(frame + body);
  }
  // Skips to the next message of type T; nullopt when the connection ends.
  template <class T>
  std::optional<T> Await() {
    char buffer[1 << 16];
    while (true) {
      auto next = decoder_.Next();
      if (!next.ok()) return std::nullopt;
      if (*next) {
        if (T* found = std::get_if<T>(&**next)) return std::move(*found);
        continue;
      }
      const ssize_t got = ::recv(socket_.native_handle(), buffer, sizeof buffer, 0);
      if (got <= 0) return std::nullopt;
      decoder_.Feed({buffer, static_cast<size_t>(got)});
    }
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  Decoder decoder_;
  size_t sent_ = 0;  // by SendSome
};

class HostileAgentTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.secret = "secret";
    auto server = Server::Start(options, {});
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    for (const char* job : {"default/good", "default/bad"}) {
      CoordinatorOptions coordinator;
      coordinator.job = job;
      coordinator.min = coordinator.target = coordinator.max = job == std::string("default/bad") ? 4 : 1;
      coordinator.gather_window = milliseconds(1);
      if (job == std::string("default/bad")) coordinator.slots = 2;
      server_->AddJob(coordinator);
    }
  }
  static Hello BadHello(int pod) {
    return {"default/bad", "pod-" + std::to_string(pod), "agent" + std::to_string(pod), "secret"};
  }
  // A whole job from hello to its end.
  void ServeTheGoodJob() {
    RawAgent agent(server_->port());
    agent.Send(Hello{"default/good", "pod-0", "good", "secret"});
    ASSERT_TRUE(agent.Await<Welcome>());
    agent.Send(Join{"good.1", "x"});
    const auto prepare = agent.Await<Prepare>();
    ASSERT_TRUE(prepare);
    MemberStatus status;
    status.generation = prepare->generation;
    status.member = "good.1";
    agent.Send(status);
    ASSERT_TRUE(agent.Await<NewGeneration>());
    Done done;
    done.finished = true;
    agent.Send(done);
    ASSERT_TRUE(agent.Await<Exit>());
  }

  std::unique_ptr<Server> server_;
};

// Two addresses of 9 MiB once made a message to all members that was longer than a frame may be.
TEST_F(HostileAgentTest, HugeAddressesAreRefused) {
  std::vector<std::unique_ptr<RawAgent>> agents;
  for (int pod = 0; pod < 4; ++pod) {
    RawAgent& agent = *agents.emplace_back(std::make_unique<RawAgent>(server_->port()));
    agent.Send(BadHello(pod));
    ASSERT_TRUE(agent.Await<Welcome>());
    agent.SendBody(R"({"type":"join","member":"agent)" + std::to_string(pod) + R"(.1","address":")" +
                   std::string(size_t{9} << 20, 'x') + R"("})");
  }
  for (int pod = 0; pod < 4; ++pod) {
    const auto prepare = agents[static_cast<size_t>(pod)]->Await<Prepare>();
    if (!prepare) continue;
    MemberStatus status;
    status.generation = prepare->generation;
    status.member = "agent" + std::to_string(pod) + ".1";
    agents[static_cast<size_t>(pod)]->Send(status);
  }
  ServeTheGoodJob();
}

// A pod may open as many connections as it has slots; the oldest ones end.
TEST_F(HostileAgentTest, OnePodCannotHoldManyConnections) {
  std::vector<std::unique_ptr<RawAgent>> agents;
  for (int i = 0; i < 40; ++i) {
    Hello hello = BadHello(0);
    hello.agent = "agent-" + std::to_string(i);
    hello.slot = i % 2;
    agents.push_back(std::make_unique<RawAgent>(server_->port()));
    agents.back()->Send(hello);
    ASSERT_TRUE(agents.back()->Await<Welcome>());
  }
  for (size_t i = 0; i + 2 < agents.size(); ++i) EXPECT_FALSE(agents[i]->Await<Exit>()) << i;
  EXPECT_LE(server_->connected(), 2);
  ServeTheGoodJob();
}

// Each connection may hold nearly a megabyte of a message whose end never comes, but not all connections of a
// job together.
TEST_F(HostileAgentTest, IncompleteMessagesCannotFillTheMemory) {
  constexpr size_t kAgents = 40, kMayStay = kMaxIncompleteBytes / (kMaxAgentFrameBytes - 1);
  std::vector<std::unique_ptr<RawAgent>> agents;
  for (size_t i = 0; i < kAgents; ++i) {
    agents.push_back(std::make_unique<RawAgent>(server_->port()));
    agents.back()->Send(BadHello(static_cast<int>(i)));
    ASSERT_TRUE(agents.back()->Await<Welcome>());
  }
  for (const auto& agent : agents) agent->SendAllButOne(kMaxAgentFrameBytes);
  ServeTheGoodJob();
  // The server closes some of them, until the others hold little enough.
  size_t closed = 0;
  while (closed < kAgents - kMayStay) {
    std::vector<pollfd> open;
    for (const auto& agent : agents) open.push_back({agent->fd(), POLLRDHUP, 0});
    ASSERT_GT(::poll(open.data(), open.size(), 20'000), 0) << closed << " are closed";
    const auto ended = std::remove_if(agents.begin(), agents.end(), [&](const auto& agent) {
      return std::any_of(open.begin(), open.end(),
                         [&](const pollfd& each) { return each.fd == agent->fd() && each.revents != 0; });
    });
    closed += static_cast<size_t>(agents.end() - ended);
    agents.erase(ended, agents.end());
  }
  // What the others hold may be completed.
  EXPECT_FALSE(agents.empty());
}

TEST_F(HostileAgentTest, ASlotThatThePodDoesNotHaveIsRefused) {
  for (const int32_t slot : {-1, 2, 999, 1000, 2147483647}) {
    RawAgent agent(server_->port());
    Hello hello = BadHello(0);
    hello.slot = slot;
    agent.Send(hello);
    EXPECT_FALSE(agent.Await<Welcome>()) << slot;
  }
  for (const int32_t slot : {2, 999}) {
    RawAgent agent(server_->port());
    agent.Send(BadHello(0));
    ASSERT_TRUE(agent.Await<Welcome>());
    agent.SendRaw(EncodeRoute({0}) + Encode(Ping{}));
    agent.SendRaw(EncodeRoute({slot}) + Encode(BadHello(0)));
    EXPECT_FALSE(agent.Await<Exit>()) << slot;
  }
  ServeTheGoodJob();
}

// An id is no secret: every member learns those of the others.
TEST_F(HostileAgentTest, APodCannotSpeakForTheAgentOfAnother) {
  RawAgent honest(server_->port());
  honest.Send(BadHello(0));
  ASSERT_TRUE(honest.Await<Welcome>());
  RawAgent thief(server_->port());
  Hello stolen = BadHello(0);
  stolen.pod = "pod-1";
  thief.Send(stolen);
  EXPECT_FALSE(thief.Await<Welcome>());
  server_->RemoveJob("default/bad");
  EXPECT_TRUE(honest.Await<Exit>());
}

// Messages without end from one job: another one is served meanwhile.
TEST_F(HostileAgentTest, AFloodOfMessagesDelaysNoOtherJob) {
  std::vector<std::unique_ptr<RawAgent>> agents;
  for (int pod = 0; pod < 4; ++pod) {
    agents.push_back(std::make_unique<RawAgent>(server_->port()));
    agents.back()->Send(BadHello(pod));
    ASSERT_TRUE(agents.back()->Await<Welcome>());
  }
  std::string facts;
  for (int i = 0; i < 50; ++i)
    facts += Encode(Facts{"device", "driver", "nic", std::vector<std::string>(16, std::string(4000, 'x'))});
  std::atomic<bool> stop{false};
  std::vector<std::thread> floods;
  for (const auto& agent : agents) {
    floods.emplace_back([&agent = *agent, &facts, &stop] {
      while (!stop) agent.SendSome(facts);
    });
  }
  for (int i = 0; i < 3; ++i) {
    const Time since = Now();
    ServeTheGoodJob();
    EXPECT_LT(Now() - since, seconds(10));
    CoordinatorOptions again;
    again.job = "default/good";
    again.gather_window = milliseconds(1);
    again.term = static_cast<uint32_t>(i + 1);
    server_->AddJob(again);
  }
  stop = true;
  for (std::thread& flood : floods) flood.join();
}

// Random messages of every type, with values at and beyond every limit.
class Spite {
 public:
  explicit Spite(uint64_t seed) : rng_(seed) {}

  bool Chance(double p) { return rng_.Chance(p); }
  // A route, mostly of slots that the pod has.
  std::string Route() {
    if (rng_.Chance(0.9)) return EncodeRoute({static_cast<int32_t>(rng_.Below(rng_.Chance(0.9) ? 2 : 1000))});
    std::string odd = {'\x80', '\0', '\0', static_cast<char>(rng_.Below(256))};
    return odd + std::string(rng_.Below(130), static_cast<char>(rng_.Below(256)));
  }

  std::string Body(const std::string& agent, bool programs = false) {
    static constexpr const char* kFields[] = {"job",
                                              "pod",
                                              "agent",
                                              "secret",
                                              "attempt",
                                              "slot",
                                              "node",
                                              "member",
                                              "address",
                                              "generation",
                                              "hasState",
                                              "step",
                                              "paramsHash",
                                              "evidence",
                                              "exitCode",
                                              "optimizerHash",
                                              "canRollBack",
                                              "message",
                                              "reason",
                                              "records",
                                              "totalSteps",
                                              "checkpointStep",
                                              "checkpointFailure",
                                              "note",
                                              "transport",
                                              "finished",
                                              "loss",
                                              "validationLoss",
                                              "weightsHash",
                                              "saved",
                                              "device",
                                              "driver",
                                              "nic",
                                              "deviceFaults",
                                              "urgency",
                                              "permanent",
                                              "members",
                                              "sources",
                                              "startStep",
                                              "stop",
                                              "code",
                                              "validationAccuracy",
                                              "joined",
                                              "phase",
                                              "rank",
                                              "world",
                                              "endedMicros",
                                              "life",
                                              "key",
                                              "ranks",
                                              "number",
                                              "unreachable",
                                              "failure"};
    static constexpr const char* kTypes[] = {
        "hello", "join", "status",       "down",         "leave",       "progress",        "done",
        "facts", "ping", "fatal",        "welcome",      "prepare",     "newGeneration",   "evict",
        "exit",  "bye",  "peersChecked", "startProgram", "stopProgram", "operationFailed", "checkPeers"};
    // Coordinators of programs read little else.
    type_ = programs && rng_.Chance(0.6) ? "programState" : kTypes[rng_.Below(std::size(kTypes))];
    std::string body = std::string(R"({"type":")") + type_ + "\"";
    for (const char* field : kFields) {
      if (!rng_.Chance(0.97)) continue;
      body += std::string(",\"") + field + "\":" + Value(field, agent);
    }
    body += "}";
    if (rng_.Chance(0.1)) body[rng_.Below(body.size())] = static_cast<char>(rng_.Below(256));
    return body;
  }

 private:
  std::string Value(const std::string& field, const std::string& agent) {
    if (rng_.Chance(type_ == "programState" ? 0.005 : 0.03)) return Any();
    if (field == "phase") return Phase();
    if (field == "step" && (type_ == "peersChecked" || type_ == "checkPeers"))
      return rng_.Chance(0.5) ? R"("listen")" : R"("connect")";
    if (field == "unreachable") return R"([{"peer":)" + Rank() + R"(,"why":)" + Text() + "}]";
    if (field == "ranks")
      return R"([{"size":)" + Rank() + R"(,"rank":)" + Rank() + R"(,"count":)" + Rank() + "}]";
    if (field == "rank" || field == "world" || field == "life") return Rank();
    if (field == "evidence" && rng_.Chance(0.5)) return R"("launcher")";
    if (field == "exitCode" && rng_.Chance(0.5)) return "0";
    if (field == "member") return "\"" + agent + "." + std::to_string(1 + rng_.Below(3)) + "\"";
    if (field == "records") return "[" + Record() + "," + Record() + "]";
    if (field == "deviceFaults") return "[" + Text() + "]";
    if (field == "members" || field == "sources") return "[]";
    if (field == "generation") return std::to_string(rng_.Chance(0.7) ? rng_.Below(8) : rng_.Next());
    if (field == "hasState" || field == "canRollBack" || field == "finished" || field == "saved" ||
        field == "stop" || field == "permanent" || field == "joined")
      return rng_.Chance(0.5) ? "true" : "false";
    if (field == "loss" || field == "validationLoss" || field == "validationAccuracy")
      return rng_.Chance(0.5) ? "\"0x7ff8000000000000\"" : "1e308";
    if (field == "paramsHash" || (field == "optimizerHash" && rng_.Chance(0.5)))
      return std::to_string(rng_.Below(3));
    if (field == "attempt" || field == "slot" || field == "step" || field == "exitCode" ||
        field == "totalSteps" || field == "checkpointStep" || field == "startStep" || field == "code" ||
        field == "endedMicros" || field == "number")
      return Number();
    return Text();
  }
  std::string Any() {
    static constexpr const char* kOdd[] = {"null", "[]", "{}", "-1", "1e999", "18446744073709551616", "true"};
    return rng_.Chance(0.5) ? kOdd[rng_.Below(std::size(kOdd))] : Text();
  }
  std::string Number() {
    static constexpr int64_t kEdges[] = {0,
                                         1,
                                         -1,
                                         5,
                                         9007199254740992,
                                         std::numeric_limits<int64_t>::max(),
                                         std::numeric_limits<int64_t>::min(),
                                         2147483648};
    return std::to_string(kEdges[rng_.Below(rng_.Chance(0.9) ? 5 : std::size(kEdges))]);
  }
  std::string Text() {
    const size_t size = rng_.Chance(0.95) ? rng_.Below(40) : rng_.Below(20'000);
    return "\"" + std::string(size, rng_.Chance(0.9) ? 'x' : '~') + "\"";
  }
  std::string Phase() {
    static constexpr const char* kPhases[] = {"idle", "running", "stopping", "ended"};
    return std::string("\"") + kPhases[rng_.Below(std::size(kPhases))] + "\"";
  }
  std::string Rank() {
    static constexpr int32_t kRanks[] = {0, 1, 2, 3, 4, -1, 4096, std::numeric_limits<int32_t>::max()};
    return std::to_string(kRanks[rng_.Below(std::size(kRanks))]);
  }
  std::string Record() {
    return R"({"step":)" + Number() + R"(,"loss":1,"lr":1,"gradNorm":1,"samples":)" + Number() +
           R"(,"generation":1,"workers":1,"seconds":"0x7ff8000000000000"})";
  }
  SplitMix64 rng_;
  std::string type_;  // of the message being made
};

// The same against a coordinator of programs, which may adopt whatever its agents claim to run.
TEST_F(HostileAgentTest, NoMessageAboutProgramsEndsTheServer) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CoordinatorOptions options;
    options.job = "default/bad";
    options.min = options.target = options.max = 4;
    options.slots = 2;
    options.term = static_cast<uint32_t>(seed);
    options.resumed = seed % 2 == 0;
    ProgramOptions& programs = options.programs.emplace();
    programs.adoption_grace = programs.gather_window = programs.stop_grace = programs.last_call =
        milliseconds(2);
    programs.check_limit = programs.check_pause = programs.stop_margin = programs.rank_grace =
        milliseconds(2);
    programs.policy.counts_ranks = seed % 3 == 0;
    if (seed % 3 == 1) programs.policy.workers.restart = ProgramRestart::kAlone;
    programs.policy.max_restarts = 1000;
    programs.policy.backoff_initial = programs.policy.backoff_max = milliseconds(1);
    server_->RemoveJob("default/bad");
    server_->AddJob(options);
    Spite spite(seed);
    for (int round = 0; round < 4; ++round) {  // a message that cannot be read ends its connection
      std::vector<std::unique_ptr<RawAgent>> agents;
      for (int pod = 0; pod < 4; ++pod) {
        agents.push_back(std::make_unique<RawAgent>(server_->port()));
        agents.back()->Send(BadHello(pod));
      }
      for (int i = 0; i < 60; ++i) {
        const size_t who = static_cast<size_t>(i) % agents.size();
        agents[who]->SendBody(spite.Body("agent" + std::to_string(who), true));
      }
    }
  }
  ServeTheGoodJob();
}

TEST_F(HostileAgentTest, NoMessageEndsTheServer) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Spite spite(seed);
    std::vector<std::unique_ptr<RawAgent>> agents;
    for (int pod = 0; pod < 4; ++pod) {
      RawAgent& agent = *agents.emplace_back(std::make_unique<RawAgent>(server_->port()));
      agent.Send(BadHello(pod));
      agent.Send(Join{"agent" + std::to_string(pod) + ".1", "x"});
    }
    for (int i = 0; i < 120; ++i) {
      const size_t who = static_cast<size_t>(i) % agents.size();
      if (spite.Chance(0.3)) agents[who]->SendRaw(spite.Route());
      agents[who]->SendBody(spite.Body("agent" + std::to_string(who)));
    }
    CoordinatorOptions fresh;  // the messages may have ended the job
    fresh.job = "default/bad";
    fresh.target = fresh.max = 4;
    fresh.term = static_cast<uint32_t>(seed);
    server_->AddJob(fresh);
  }
  ServeTheGoodJob();
}

}  // namespace
}  // namespace ringmaster::rendezvous
