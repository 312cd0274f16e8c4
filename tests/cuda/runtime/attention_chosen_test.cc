// SPDX-License-Identifier: Apache-2.0

// The choice of attention backends, their storage and their adoption, on a device whose library and
// durations the test configures.
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

// Returns "FORWARD BACKWARD", each "own" or the name of a library.
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

TEST(MeasuredAttention, EachPassUsesTheFasterBackend) {
  EXPECT_EQ(Chosen({}), "own own");
  EXPECT_EQ(Chosen(kQuicker), "cuDNN-emulated cuDNN-emulated");
  EXPECT_EQ(Chosen(kSlower), "own own");
  EXPECT_EQ(Chosen({.there = true, .forward_saves_ms = 0.1, .backward_saves_ms = -0.1}),
            "cuDNN-emulated own");
  EXPECT_EQ(Chosen({.there = true, .forward_saves_ms = -0.1, .backward_saves_ms = 0.1}),
            "own cuDNN-emulated");
  EXPECT_EQ(Chosen({.there = true}), "own own") << "a tie selects the native kernels";
}

TEST(MeasuredAttention, UnsupportedProblemsUseTheNativeKernels) {
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

// A faulty library is detected before it is chosen, and does not fail the job.
TEST(MeasuredAttention, FaultyLibraryIsNotChosen) {
  Cudnn cudnn = kQuicker;
  cudnn.refuses = true;
  EXPECT_EQ(Chosen(cudnn), "own own");
  cudnn = kQuicker;
  cudnn.unscaled = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "wrong results";
  cudnn = kQuicker;
  cudnn.restless = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "nondeterministic";
  cudnn = kQuicker;
  cudnn.unrecorded = true;
  EXPECT_EQ(Chosen(cudnn), "own own") << "steps are captured";
}

TEST(MeasuredAttention, LostDeviceIsReported) {
  const WithCudnn with(kQuicker);
  const auto attention = Make();
  emulation::FailAtWait(9, 700);
  const Status prepared = attention->Prepare(kProblem);
  emulation::FailAtWait(0, 0);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code, Code::kGone);
}

// A measurement needs memory that another process may hold at the moment.
TEST(MeasuredAttention, WithoutMemoryToMeasureNativeKernelsAreUsedForNow) {
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
  EXPECT_EQ(Backends(*later), "cuDNN-emulated cuDNN-emulated") << "the choice must not be stored";
  std::filesystem::remove_all(folder);
}

// When a larger workspace cannot be allocated, the old one stays in use.
TEST(MeasuredAttention, WithoutMemoryForALargerWorkspaceTheOldOneStays) {
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

TEST(MeasuredAttention, ChoicesAreStoredForTheSameLibrary) {
  const std::string folder = testing::TempDir() + "attention-" + std::to_string(::getpid());
  std::filesystem::remove_all(folder);
  const auto chosen = [&](const Cudnn& cudnn) {
    const WithCudnn with(cudnn);
    const auto attention = Make(folder);
    EXPECT_TRUE(attention->Prepare(kProblem).ok());
    return Backends(*attention);
  };
  EXPECT_EQ(chosen(kQuicker), "cuDNN-emulated cuDNN-emulated");
  EXPECT_EQ(chosen(kSlower), "cuDNN-emulated cuDNN-emulated") << "must come from the file";
  EXPECT_EQ(chosen({}), "own own") << "no library, no stored choice";
  Cudnn newer = kSlower;
  newer.name = "cuDNN-newer";
  EXPECT_EQ(chosen(newer), "own own") << "a new version is measured";
  Cudnn other_plan = kSlower;
  other_plan.plan = "another";
  EXPECT_EQ(chosen(other_plan), "own own") << "a choice with an unknown plan is measured again";
  std::filesystem::remove_all(folder);
}

TEST(MeasuredAttention, AdoptedChoicesChangeTheVersion) {
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
  EXPECT_EQ(ours->Version(), after) << "nothing changed";
}

TEST(MeasuredAttention, WorkspaceThatMovesChangesTheVersion) {
  const WithCudnn with(kQuicker);
  const auto attention = Make();
  ASSERT_TRUE(attention->Prepare(kProblem).ok());
  const uint64_t before = attention->Version();
  AttentionProblem larger = kProblem;
  larger.samples = 10;
  ASSERT_TRUE(attention->Prepare(larger).ok());
  EXPECT_GT(attention->Version(), before);
}

// A member that cannot run the job's choices names what is missing.
TEST(MeasuredAttention, AdoptNamesWhatIsMissing) {
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
  EXPECT_THAT(refusal(other), HasSubstr("plan plain of cuDNN-emulated in the job, and plan another here"));
}

}  // namespace
}  // namespace ringmaster::cuda
