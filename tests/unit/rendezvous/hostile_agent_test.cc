// SPDX-License-Identifier: Apache-2.0

// An agent that is authenticated and sends anything: the server survives, and serves another job meanwhile.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio.hpp>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "rendezvous/codec.h"
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
  void Send(const Message& message) { SendRaw(Encode(message)); }
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

// Random messages of every type, with values at and beyond every limit.
class Spite {
 public:
  explicit Spite(uint64_t seed) : rng_(seed) {}

  std::string Body(const std::string& agent) {
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
                                              "troubles",
                                              "urgency",
                                              "permanent",
                                              "members",
                                              "sources",
                                              "startStep",
                                              "stop",
                                              "code",
                                              "validationAccuracy"};
    static constexpr const char* kTypes[] = {
        "hello", "join",    "status",  "down",          "leave", "progress", "done",           "facts",
        "ping",  "welcome", "prepare", "newGeneration", "evict", "exit",     "operationFailed"};
    std::string body = std::string(R"({"type":")") + kTypes[rng_.Below(std::size(kTypes))] + "\"";
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
    if (rng_.Chance(0.03)) return Any();
    if (field == "member") return "\"" + agent + "." + std::to_string(1 + rng_.Below(3)) + "\"";
    if (field == "records") return "[" + Record() + "," + Record() + "]";
    if (field == "troubles") return "[" + Text() + "]";
    if (field == "members" || field == "sources") return "[]";
    if (field == "generation") return std::to_string(rng_.Chance(0.7) ? rng_.Below(8) : rng_.Next());
    if (field == "hasState" || field == "canRollBack" || field == "finished" || field == "saved" ||
        field == "stop" || field == "permanent")
      return rng_.Chance(0.5) ? "true" : "false";
    if (field == "loss" || field == "validationLoss" || field == "validationAccuracy")
      return rng_.Chance(0.5) ? "\"0x7ff8000000000000\"" : "1e308";
    if (field == "paramsHash" || (field == "optimizerHash" && rng_.Chance(0.5)))
      return std::to_string(rng_.Below(3));
    if (field == "attempt" || field == "slot" || field == "step" || field == "exitCode" ||
        field == "totalSteps" || field == "checkpointStep" || field == "startStep" || field == "code")
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
  std::string Record() {
    return R"({"step":)" + Number() + R"(,"loss":1,"lr":1,"gradNorm":1,"samples":)" + Number() +
           R"(,"generation":1,"workers":1,"seconds":"0x7ff8000000000000"})";
  }
  SplitMix64 rng_;
};

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
