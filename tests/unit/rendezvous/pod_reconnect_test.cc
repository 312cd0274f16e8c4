// SPDX-License-Identifier: Apache-2.0

// A pod with many slots connects again: the membership that each of its slots gets, on real sockets.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/codec.h"
#include "rendezvous/server.h"
#include "tests/unit/rendezvous/server_client.h"

namespace ringmaster::rendezvous {
namespace {

constexpr int32_t kPods = 16;
constexpr int32_t kSlots = 8;

class PodReconnectTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.secret = "secret";
    auto server = Server::Start(options, {});
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    CoordinatorOptions job;
    job.job = "default/job";
    job.min = job.target = job.max = kPods * kSlots;
    job.slots = kSlots;
    job.term = 1;
    server_->AddJob(job);
  }
  static std::string AgentOf(int32_t pod, int32_t slot) {
    return "agent-" + std::to_string(pod) + "-" + std::to_string(slot);
  }
  static std::string HelloAndJoin(int32_t pod, int32_t slot, size_t address_bytes) {
    Hello hello{"default/job", "pod-" + std::to_string(pod), AgentOf(pod, slot), slot == 0 ? "secret" : ""};
    hello.slot = slot;
    const std::string route = slot == 0 ? "" : EncodeRoute({slot});
    return route + Encode(hello) + route +
           Encode(Join{AgentOf(pod, slot) + ".1", std::string(address_bytes, 'x')});
  }
  // Connects all slots of the pod. The later ones send in one piece, before the pod reads anything.
  std::unique_ptr<Client> Enter(int32_t pod, size_t address_bytes) {
    auto client = std::make_unique<Client>(server_->port());
    client->SendRaw(HelloAndJoin(pod, 0, address_bytes));
    EXPECT_TRUE(client->Await<Welcome>().shared);
    std::string others;
    for (int32_t slot = 1; slot < kSlots; ++slot) others += HelloAndJoin(pod, slot, address_bytes);
    client->SendRaw(others);
    return client;
  }
  // Forms the gang, and lets the first pod connect again. Returns how often it gets the membership.
  int32_t Reconnect(size_t address_bytes) {
    std::vector<std::unique_ptr<Client>> pods;
    for (int32_t pod = 0; pod < kPods; ++pod) pods.push_back(Enter(pod, address_bytes));
    for (int32_t pod = 0; pod < kPods; ++pod) {
      MemberStatus status;
      status.generation = pods[static_cast<size_t>(pod)]->Await<Prepare>().generation;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        status.member = AgentOf(pod, slot) + ".1";
        pods[static_cast<size_t>(pod)]->SendRaw((slot == 0 ? EncodeRoute({0}) : EncodeRoute({slot})) +
                                                Encode(status));
      }
    }
    EXPECT_EQ(pods[0]->Await<NewGeneration>().members.size(), static_cast<size_t>(kPods * kSlots));
    pods[0].reset();
    pods[0] = Enter(0, address_bytes);
    std::set<int32_t> have;
    int32_t copies = 0;
    while (have.size() < kSlots) {
      const auto message = pods[0]->Next();
      if (!message) {
        ADD_FAILURE() << "the server has closed the connection after " << copies << " copies";
        break;
      }
      if (!std::holds_alternative<NewGeneration>(*message)) continue;
      ++copies;
      // Before the connection is shared, its messages are for its only slot.
      if (pods[0]->slots().empty()) have.insert(0);
      have.insert(pods[0]->slots().begin(), pods[0]->slots().end());
    }
    return copies;
  }

  std::unique_ptr<Server> server_;
};

TEST_F(PodReconnectTest, APodMayBeSlowToReadLargeMemberships) { Reconnect(kMaxAddressBytes); }

TEST_F(PodReconnectTest, SlotsWhoseJoinsArriveTogetherGetOneCopy) { EXPECT_LE(Reconnect(500), 4); }

}  // namespace
}  // namespace ringmaster::rendezvous
