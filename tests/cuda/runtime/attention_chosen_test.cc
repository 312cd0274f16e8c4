// SPDX-License-Identifier: Apache-2.0

// How attention is chosen, stored and adopted, on a device where a test says what there is and how long it
// takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cuda/runtime/cudnn.h"
#include "tests/cuda/runtime/faults.h"
#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/attention.h"

namespace ringmaster::cuda {
namespace {

using emulation::Cudnn;
using emulation::WithCudnn;
using testing::HasSubstr;

constexpr AttentionProblem kProblem{
    .samples = 1, .heads = 2, .context = 9, .head_size = 8, .type = DType::kBf16};
const Cudnn kQuicker{.there = true, .forward_saves_ms = 0.5, .backward_saves_ms = 0.25};
const Cudnn kSlower{.there = true, .forward_saves_ms = -0.5, .backward_saves_ms = -0.25};

std::unique_ptr<Attention> Make(const std::string& folder = "") {
  return Attention::Create({.cache_folder = folder}, BindDevice(0).value()).value();
}

// "forward backward", each "own" or a library's.
std::string Backends(const Attention& attention, const AttentionProblem& problem = kProblem) {
  return attention.Backend(problem, AttentionPass::kForward).library + " " +
         attention.Backend(problem, AttentionPass::kBackward).library;
}

std::string Chosen(const Cudnn& cudnn, const AttentionProblem& problem = kProblem) {
  const WithCudnn with(cudnn);
  const auto attention = Make();
  EXPECT_TRUE(attention->Prepare(problem).ok());
  return Backends(*attention, problem);
}

TEST(ChosenAttention, EachPassIsByWhoWasQuicker) {
  EXPECT_EQ(Chosen({}), "own own");
  EXPECT_EQ(Chosen(kQuicker), "cuDNN-emulated cuDNN-emulated");
  EXPECT_EQ(Chosen(kSlower), "own own");
  EXPECT_EQ(Chosen({.there = true, .forward_saves_ms = 0.1, .backward_saves_ms = -0.1}),
            "cuDNN-emulated own");
  EXPECT_EQ(Chosen({.there = true, .forward_saves_ms = -0.1, .backward_saves_ms = 0.1}),
            "own cuDNN-emulated");
  EXPECT_EQ(Chosen({.there = true}), "own own") << "equally quick: ours";
}

TEST(ChosenAttention, WhatTheLibraryCannotIsOurs) {
  AttentionProblem problem = kProblem;
  problem.type = DType::kFloat;
  EXPECT_EQ(Chosen(kQuicker, problem), "own own");
  problem = kProblem;
  problem.head_size = 13;
  EXPECT_EQ(Chosen(kQuicker, problem), "own own");
  problem = kProblem;
  problem.context = 1;
  EXPECT_EQ(Chosen(kQuicker, problem), "cuDNN-emulated own");
}

// What a library does wrong is seen before it is chosen, and is no reason for a job to fail.
TEST(ChosenAttention, ALibraryThatDoesNotDoIsNotTaken) {
  Cudnn cudnn = kQuicker;
  cudnn.refuses = true;
  EXPECT_EQ(Chosen(cudnn), "own own");
  cudnn = kQuicker;
  cudnn.unscaled = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "it computes something else";
  cudnn = kQuicker;
  cudnn.restless = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "other bits every time";
  cudnn = kQuicker;
  cudnn.unrecorded = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "a step's work is recorded";
}

TEST(ChosenAttention, ADeviceThatIsLostMeanwhileIsSaid) {
  const WithCudnn with(kQuicker);
  const auto attention = Make();
  emulation::FailAtWait(9, 700);
  const Status prepared = attention->Prepare(kProblem);
  emulation::FailAtWait(0, 0);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code, Code::kGone);
}

// A trial needs memory that somebody else may have just now.
TEST(ChosenAttention, WithoutMemoryToMeasureItIsOursForNow) {
  const std::string folder = testing::TempDir() + "attention-memory-" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  const WithCudnn with(kQuicker);
  {
    const auto attention = Make(folder);
    emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + 512);
    const Status prepared = attention->Prepare(kProblem);
    emulation::SetDeviceMemory(int64_t{16} << 30);
    ASSERT_TRUE(prepared.ok());
    EXPECT_EQ(Backends(*attention), "own own");
  }
  const auto later = Make(folder);
  ASSERT_TRUE(later->Prepare(kProblem).ok());
  EXPECT_EQ(Backends(*later), "cuDNN-emulated cuDNN-emulated") << "it was not stored";
  std::filesystem::remove_all(folder);
}

// Whoever cannot have more works on with what he has.
TEST(ChosenAttention, WithoutMemoryForALargerWorkspaceTheOldOneStays) {
  AttentionProblem larger = kProblem;
  larger.samples = 10;
  const WithCudnn with(kQuicker);
  const auto theirs = Make();
  ASSERT_TRUE(theirs->Prepare(larger).ok());
  const auto ours = Make();
  ASSERT_TRUE(ours->Prepare(kProblem).ok());
  const int64_t before = ours->WorkspaceBytes();
  ASSERT_GT(before, 0);
  ASSERT_GT(theirs->WorkspaceBytes(), before);
  ASSERT_TRUE(ours->Adopt(theirs->Choices()).ok());
  emulation::SetDeviceMemory(emulation::UseOfDevice().used_bytes + 512);
  const Status known = ours->Prepare(larger);
  emulation::SetDeviceMemory(int64_t{16} << 30);
  EXPECT_FALSE(known.ok());
  EXPECT_EQ(ours->WorkspaceBytes(), before);
}

TEST(ChosenAttention, ChoicesAreStoredForTheSameLibrary) {
  const std::string folder = testing::TempDir() + "attention-" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  const auto chosen = [&](const Cudnn& cudnn) {
    const WithCudnn with(cudnn);
    const auto attention = Make(folder);
    EXPECT_TRUE(attention->Prepare(kProblem).ok());
    return Backends(*attention);
  };
  EXPECT_EQ(chosen(kQuicker), "cuDNN-emulated cuDNN-emulated");
  EXPECT_EQ(chosen(kSlower), "cuDNN-emulated cuDNN-emulated") << "nothing was measured";
  EXPECT_EQ(chosen({}), "own own") << "without it, it is not wanted";
  Cudnn newer = kSlower;
  newer.name = "cuDNN-newer";
  EXPECT_EQ(chosen(newer), "own own") << "another version is measured";
  Cudnn other_plan = kSlower;
  other_plan.plan = "another";
  EXPECT_EQ(chosen(other_plan), "own own") << "a plan that is no more is measured";
  std::filesystem::remove_all(folder);
}

TEST(ChosenAttention, WhatTheJobUsesIsTakenUpAndSaidToBeNew) {
  const WithCudnn with(kQuicker);
  const auto theirs = Make();
  ASSERT_TRUE(theirs->Prepare(kProblem).ok());
  EXPECT_GT(theirs->WorkspaceBytes(), 0);
  emulation::SetCudnn(kSlower);
  const auto ours = Make();
  ASSERT_TRUE(ours->Prepare(kProblem).ok());
  ASSERT_EQ(Backends(*ours), "own own");
  EXPECT_EQ(ours->WorkspaceBytes(), 0);
  const uint64_t before = ours->Version();
  ASSERT_TRUE(ours->Adopt(theirs->Choices()).ok());
  EXPECT_EQ(Backends(*ours), "cuDNN-emulated cuDNN-emulated");
  EXPECT_EQ(ours->WorkspaceBytes(), theirs->WorkspaceBytes());
  EXPECT_EQ(ours->Fingerprint(), theirs->Fingerprint());
  EXPECT_GT(ours->Version(), before);
  const uint64_t after = ours->Version();
  ASSERT_TRUE(ours->Adopt(theirs->Choices()).ok());
  EXPECT_EQ(ours->Version(), after) << "nothing is new";
}

TEST(ChosenAttention, AWorkspaceThatMovesIsNewToo) {
  const WithCudnn with(kQuicker);
  const auto attention = Make();
  ASSERT_TRUE(attention->Prepare(kProblem).ok());
  const uint64_t before = attention->Version();
  AttentionProblem larger = kProblem;
  larger.samples = 10;
  ASSERT_TRUE(attention->Prepare(larger).ok());
  EXPECT_GT(attention->Version(), before);
}

// A member that cannot do as the job does says what it lacks.
TEST(ChosenAttention, WhatIsMissingIsNamed) {
  const WithCudnn with(kQuicker);
  const auto theirs = Make();
  ASSERT_TRUE(theirs->Prepare(kProblem).ok());
  const auto refusal = [&](const Cudnn& cudnn) -> std::string {
    emulation::SetCudnn(cudnn);
    const auto ours = Make();
    EXPECT_TRUE(ours->Prepare(kProblem).ok());
    const std::string before = ours->Choices();
    const Status adopted = ours->Adopt(theirs->Choices());
    if (adopted.ok()) return "";
    EXPECT_EQ(adopted.error().code, Code::kInvalid);
    EXPECT_EQ(ours->Choices(), before);
    return adopted.error().message;
  };
  EXPECT_EQ(refusal(kSlower), "");
  EXPECT_THAT(refusal({}), HasSubstr("the job's attention uses cuDNN-emulated, which is not available here: "
                                     "the emulated machine has no libcudnn.so.9"));
  Cudnn other = kSlower;
  other.name = "cuDNN-9.20.0";
  EXPECT_THAT(refusal(other),
              HasSubstr("the job's attention uses cuDNN-emulated, this machine has cuDNN-9.20.0"));
  other = kSlower;
  other.plan = "another";
  EXPECT_THAT(refusal(other), HasSubstr("plan plain of cuDNN-emulated in the job, and by another here"));
}

}  // namespace
}  // namespace ringmaster::cuda
