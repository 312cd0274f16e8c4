// SPDX-License-Identifier: Apache-2.0

// A program's session compares the state that it fetches with the hashes of the members' vote. The test is
// its agent and its program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/agent_end.h"
#include "tests/temp_folder.h"
#include "worker/agent/trainer/shared_page_memory.h"
#include "worker/library/session.h"

namespace ringmaster::library {
namespace {

using rendezvous::Done;
using rendezvous::Exit;
using rendezvous::MemberStatus;
using rendezvous::Message;
using rendezvous::NewGeneration;
using rendezvous::Prepare;
using rendezvous::Urgency;

constexpr const char* kJob = R"(apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {name: votes}
spec:
  framework: pytorch
  launch: {kind: library}
  workers:
    replicas: 1
    template: {spec: {containers: [{name: worker, image: none, command: [none]}]}}
)";

class Program {
 public:
  explicit Program(const std::string& job_file) {
    static int members = 0;
    member_ = "member-" + std::to_string(++members);
    ::setenv("RINGMASTER_SLOT_FD", std::to_string(::dup(memory_.fd())).c_str(), 1);
    ::setenv("RINGMASTER_CHANNEL_FD", std::to_string(agent_.TakeOther().Release()).c_str(), 1);
    ::setenv("RINGMASTER_JOB_FILE", job_file.c_str(), 1);
    ::setenv("RINGMASTER_MEMBER", member_.c_str(), 1);
    session_ = Session::Open("shm").value();
    thread_ = std::thread([this] {
      Train();
      code_ = session_->exit_code();
    });
    address_ = Await<rendezvous::Join>().address;
  }
  ~Program() {
    if (!thread_.joinable()) return;
    Send(Exit{0, "the test is over"});
    thread_.join();
  }
  void Send(const Message& message) { agent_.Send(message); }
  template <class T>
  T Await() {
    return agent_.Await<T>();
  }
  MemberStatus Pause(rendezvous::Generation generation) {
    Send(Prepare{generation, Urgency::kAbort});
    return Await<MemberStatus>();
  }
  int ExitCode() {
    thread_.join();
    return code_;
  }
  rendezvous::Member AsMember() const { return {member_, "pod-" + member_, address_}; }

 private:
  void Train() {
    Config config;
    config.steps = 3;
    config.micro_batches = 2;
    config.samples_per_step = 2;
    config.tensors = {{"w", 4}};
    if (!session_->Join(std::move(config)).ok()) return;
    for (;;) {
      const auto event = session_->Next();
      if (!event.ok() || event->kind == Session::EventKind::kEnd) return;
      if (event->kind == Session::EventKind::kDescribe) {
        EXPECT_TRUE(session_->Describe({{"w", "f32", std::as_writable_bytes(std::span(w_)), true}}, "").ok());
      } else if (event->kind == Session::EventKind::kLoad) {
        for (const auto& [array, memory] : session_->loaded().arrays)
          if (array.name == "w")
            std::ranges::copy(array.bytes, std::as_writable_bytes(std::span(w_)).begin());
      } else if (!Step(*event)) {
        return;
      }
    }
  }
  // Returns false when the session has failed.
  bool Step(const Session::Event& event) {
    const std::vector<float> gradient = {1, 2, 3, 4};
    for (int v = event.first; v < event.end; ++v) {
      if (session_->BeginMicroBatch(v) != Session::Verdict::kGo) continue;
      if (!session_->Add(0, gradient).ok() || !session_->EndMicroBatch(1, 1).ok()) return false;
      if (session_->interrupted()) return true;
    }
    const auto reduced = session_->Reduce();
    if (!reduced.ok()) return false;
    if (reduced->verdict != Session::Verdict::kGo) return true;
    std::vector<float> mean(4);
    if (!session_->ReadGradient(0, mean).ok()) return false;
    for (size_t i = 0; i < w_.size(); ++i) w_[i] -= 0.1f * mean[i];
    EXPECT_TRUE(session_->Commit(0.1, reduced->gradient_norm).ok());
    return true;
  }

  agent::SharedPageMemory memory_ = agent::SharedPageMemory::Create().value();
  AgentEnd agent_;
  std::string member_;
  std::string address_;
  std::array<float, 4> w_{};
  std::unique_ptr<Session> session_;
  int code_ = -1;
  std::thread thread_;
};

TEST(SessionVote, AProgramFetchesTheStateOfTheVoteOnly) {
  TempFolder folder;
  const std::string job = folder.Write("job.yaml", kJob);
  for (const uint64_t wrong : {0, 1}) {
    Program source(job);
    source.Pause(1);
    NewGeneration next;
    next.generation = 1;
    next.members = {source.AsMember()};
    source.Send(next);
    const std::string weights = source.Await<Done>().weights_hash;
    const MemberStatus status = source.Pause(2);
    ASSERT_EQ(status.step, 3);
    Program joins(job);
    joins.Pause(2);
    next.generation = 2;
    next.members = {source.AsMember(), joins.AsMember()};
    next.sources = {0};
    next.start_step = 3;
    next.params_hash = status.params_hash;
    next.optimizer_hash = status.optimizer_hash + wrong;
    next.fetch_first = true;
    source.Send(next);
    joins.Send(next);
    if (wrong == 0)
      EXPECT_EQ(joins.Await<Done>().weights_hash, weights);
    else
      EXPECT_EQ(joins.ExitCode(), kExitInternal);
    source.Send(Prepare{3, Urgency::kAbort});
  }
}

}  // namespace
}  // namespace ringmaster::library
