// SPDX-License-Identifier: Apache-2.0

// A trainer compares what it fetches, and what it goes back to, with the hashes of the members' vote. The
// test is its agent.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/agent_end.h"
#include "tests/unit/trainer/ranks.h"
#include "worker/agent/trainer/shared_page_memory.h"
#include "worker/trainer/trainer.h"

namespace ringmaster::trainer {
namespace {

using rendezvous::Done;
using rendezvous::Exit;
using rendezvous::Member;
using rendezvous::MemberStatus;
using rendezvous::Message;
using rendezvous::NewGeneration;
using rendezvous::Prepare;
using rendezvous::Urgency;

class Worker {
 public:
  Worker(const RunConfig& config, std::string member) : member_(std::move(member)) {
    thread_ = std::thread([this, config] { Run(config); });
    address_ = Await<rendezvous::Join>().address;
  }
  ~Worker() {
    if (thread_.joinable()) {
      Send(Exit{0, "the test is over"});
      thread_.join();
    }
  }
  void Send(const Message& message) { agent_.Send(message); }
  template <class T>
  T Await() {
    return agent_.Await<T>();
  }
  MemberStatus Pause(rendezvous::Generation generation) {
    Send(Prepare{generation, Urgency::kAbort});
    for (;;) {
      MemberStatus status = Await<MemberStatus>();
      if (status.generation == generation || status.generation == 0) return status;
    }
  }
  int ExitCode() {
    thread_.join();
    return code_;
  }
  Member AsMember() const { return {member_, "pod-" + member_, address_}; }

 private:
  void Run(const RunConfig& from) {
    const auto aborter = std::make_shared<fabric::Aborter>();
    AgentChannel channel{agent_.TakeOther(),
                         [aborter](rendezvous::Generation generation) { aborter->Abort(generation); }};
    Trainer::Parts parts;
    parts.member = member_;
    parts.config = from;
    parts.dataset = OpenData(&parts.config).value();
    parts.data_hash = std::make_unique<DataHash>(parts.dataset.get(), "");
    fabric::FabricOptions options;
    options.transport = "shm";
    options.aborter = aborter;
    parts.fabric = fabric::Fabric::Create(options).value();
    parts.device = device::NewHostDevice(parts.config.model.threads);
    parts.model = parts.device->CreateModel(parts.config.model).value();
    parts.page = &page_;
    parts.channel = &channel;
    code_ = Trainer::Create(std::move(parts)).value()->Run();
  }

  const std::string member_;
  agent::SharedPageMemory memory_ = agent::SharedPageMemory::Create().value();
  agent::TrainerPage page_ = agent::TrainerPage::Attach(memory_.fd()).value();
  AgentEnd agent_;
  std::string address_;
  int code_ = -1;
  std::thread thread_;
};

class VoteTest : public testing::Test {
 protected:
  VoteTest() : config_(Gpt(&folder_)) { config_.steps = 3; }

  // Trains to the end alone. Returns the status after it.
  MemberStatus Train(Worker* worker) {
    worker->Pause(1);
    NewGeneration alone;
    alone.generation = 1;
    alone.members = {worker->AsMember()};
    worker->Send(alone);
    weights_ = worker->Await<Done>().weights_hash;
    return worker->Pause(2);
  }
  static NewGeneration Next(std::vector<Member> members, int64_t step, uint64_t params, uint64_t optimizer) {
    NewGeneration next;
    next.generation = 2;
    next.members = std::move(members);
    next.sources = {0};
    next.start_step = step;
    next.params_hash = params;
    next.optimizer_hash = optimizer;
    next.fetch_first = true;
    return next;
  }

  TempFolder folder_;
  RunConfig config_;
  std::string weights_;
};

TEST_F(VoteTest, AMemberGoesBackToTheStateOfTheVoteOnly) {
  for (const uint64_t wrong : {0, 1}) {
    Worker worker(config_, "a");
    const MemberStatus status = Train(&worker);
    ASSERT_EQ(status.step, 3);
    ASSERT_TRUE(status.can_roll_back);
    EXPECT_NE(status.undo_params_hash, status.params_hash);
    worker.Send(Next({worker.AsMember()}, 2, status.undo_params_hash, status.undo_optimizer_hash + wrong));
    if (wrong == 0)
      EXPECT_EQ(worker.Await<Done>().weights_hash, weights_) << "it computes the last step again";
    else
      EXPECT_EQ(worker.ExitCode(), 70);
  }
}

TEST_F(VoteTest, AMemberFetchesTheStateOfTheVoteOnly) {
  for (const uint64_t wrong : {0, 1}) {
    Worker source(config_, "a");
    const MemberStatus status = Train(&source);
    Worker joins(config_, "b");
    joins.Pause(2);
    const NewGeneration next =
        Next({source.AsMember(), joins.AsMember()}, 3, status.params_hash + wrong, status.optimizer_hash);
    source.Send(next);
    joins.Send(next);
    if (wrong == 0)
      EXPECT_EQ(joins.Await<Done>().weights_hash, weights_);
    else
      EXPECT_EQ(joins.ExitCode(), 70);
    source.Send(Prepare{3, Urgency::kAbort});
  }
}

}  // namespace
}  // namespace ringmaster::trainer
