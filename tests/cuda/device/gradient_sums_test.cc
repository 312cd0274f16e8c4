// SPDX-License-Identifier: Apache-2.0

// Gradients in the memory of an emulated GPU have the sums of gradients in the host's memory, bit for bit.
#include "worker/library/gradient_sums.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "tests/cuda/runtime/faults.h"
#include "tests/unit/library/sums_rig.h"
#include "worker/compute/cuda/cuda_device.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::library {
namespace {

std::unique_ptr<GradientDevice> OpenGpu(std::string_view transport) {
  return cuda::CreateGradientDevice(transport, 0).value();
}
std::unique_ptr<GradientDevice> OpenAnyGpu() { return OpenGpu("auto"); }

class SumsOnGpu : public ::testing::TestWithParam<int> {};

TEST_P(SumsOnGpu, HaveTheBitsOfTheHostForEveryWorld) {
  const Ranks host = MakeRanks(1, {.limbs = GetParam()});
  const Seen first = TakeStep(host, 1)[0];
  const Seen second = TakeStep(host, 2)[0];
  for (const int world : {1, 2, 3}) {
    const Ranks ranks = MakeRanks(world, {.limbs = GetParam()}, OpenAnyGpu);
    int repeats = 0;
    for (const Seen& seen : TakeStep(ranks, 1, &repeats)) EXPECT_TRUE(seen == first) << world;
    EXPECT_EQ(repeats, 1) << "the first step has no exponents";
    for (const Seen& seen : TakeStep(ranks, 2)) EXPECT_TRUE(seen == second) << world;
  }
}

TEST_P(SumsOnGpu, AnInterruptedStepKeepsItsMicroBatches) {
  const Ranks host = MakeRanks(1, {.limbs = GetParam()});
  (void)TakeStep(host, 1);
  const Seen second = TakeStep(host, 2)[0];
  const Ranks survivor = MakeRanks(1, {.limbs = GetParam()}, OpenAnyGpu);
  (void)TakeStep(survivor, 1);
  int computed = 0;
  EXPECT_TRUE(TakeInterruptedStep(*survivor[0], AddressesOf(survivor), &computed) == second);
  EXPECT_EQ(computed, kMicroBatches);
}

INSTANTIATE_TEST_SUITE_P(Limbs, SumsOnGpu, ::testing::Values(1, 2));

// GPUs that read each other's memory reduce it without the host.
TEST(GradientSumsOnGpu, HaveTheBitsOfTheHostWhenTheGpusReduceThem) {
  const Ranks host = MakeRanks(1, {.limbs = 1});
  const Seen expected = TakeStep(host, 1)[0];
  ::setenv("RINGMASTER_EMULATED_UCX", "1", 1);
  {
    const Ranks ranks = MakeRanks(2, {.limbs = 1}, [] { return OpenGpu("ucx"); });
    for (const Seen& seen : TakeStep(ranks, 1)) EXPECT_TRUE(seen == expected);
    for (const auto& rank : ranks) EXPECT_NE(rank->device->CollectivesTransport(), "");
  }
  ::unsetenv("RINGMASTER_EMULATED_UCX");
}

TEST(GradientSumsOnGpu, FastSumsOfOneWorkerHaveTheBitsOfTheHost) {
  const Seen expected = TakeStep(MakeRanks(1, {.exact = false}), 1)[0];
  EXPECT_TRUE(TakeStep(MakeRanks(1, {.exact = false}, OpenAnyGpu), 1)[0] == expected);
  const std::vector<Seen> two = TakeStep(MakeRanks(2, {.exact = false}, OpenAnyGpu), 1);
  EXPECT_TRUE(two[0] == two[1]);
}

TEST(GradientSumsOnGpu, ATensorThatWasNotAddedCountsAsZero) {
  for (const bool exact : {true, false}) {
    const Ranks ranks = MakeRanks(1, {.exact = exact}, OpenAnyGpu);
    ranks[0]->Connect(1, 0, AddressesOf(ranks));
    EXPECT_EQ(TakeStepOfFirstTensor(*ranks[0]).norm, 8.0);
    EXPECT_EQ(ranks[0]->Read(0), std::vector<float>(1024, 0.25f));
    EXPECT_EQ(ranks[0]->Read(3), std::vector<float>(3, 0.0f));
  }
}

TEST(GradientSumsOnGpu, NameTheTensorThatIsNotFinite) {
  const Ranks ranks = MakeRanks(1, {}, OpenAnyGpu);
  ranks[0]->Connect(1, 0, AddressesOf(ranks));
  EXPECT_EQ(TakeStepWithNan(*ranks[0]).culprit, "c");
}

// Copies that wait for nothing have not arrived: Add and Read make each of the two streams wait for the
// other.
TEST(GradientSumsOnGpu, AreOrderedAgainstTheStreamOfTheProgram) {
  const auto program = cuda::OwnedStream::Create().value();
  const auto memory = cuda::Buffer<float>::Create(1).value();
  const auto host = cuda::Pinned<float>::Create(1).value();
  const Ranks ranks = MakeRanks(1, {}, OpenAnyGpu);
  Rank& rank = *ranks[0];
  const auto expect_order = [&](const std::function<void()>& call) {
    memory.get()[0] += 1;
    cuda::CopyToHost(program.get(), host.get(), memory.get(), sizeof(float));
    call();
    EXPECT_TRUE(rank.device->Sync().ok());
    EXPECT_EQ(*host.get(), memory.get()[0]) << "the sums do not wait for the program";
    memory.get()[0] += 1;
    EXPECT_TRUE(
        rank.device->Download(std::as_bytes(memory.span()), std::as_writable_bytes(host.span())).ok());
    call();
    EXPECT_TRUE(cuda::Synchronize(program.get()).ok());
    EXPECT_EQ(*host.get(), memory.get()[0]) << "the program does not wait for the sums";
  };
  rank.sums->SetStream(program.get());
  (void)TakeStep(ranks, 1);
  rank.Connect(2, 0, AddressesOf(ranks));
  ASSERT_TRUE(rank.Begin(2, 0, kMicroBatches).ok());
  ASSERT_TRUE(rank.sums->BeginMicroBatch(0));
  int tensor = 0;
  expect_order([&] {
    EXPECT_TRUE(rank.Add(tensor, Gradient(tensor, 0)).ok());
    ++tensor;
  });
  ASSERT_TRUE(rank.sums->EndMicroBatch(1).ok());
  rank.ComputeShare(0, kMicroBatches);
  ASSERT_EQ(rank.sums->Reduce([] { return false; }).value().outcome, Outcome::kReduced);
  expect_order([&] { EXPECT_TRUE(rank.sums->Read(0, rank.memory(0)).ok()); });
}

TEST(GradientSumsOnGpu, ALostGpuIsAnError) {
  const Ranks ranks = MakeRanks(1, {}, OpenAnyGpu);
  Rank& rank = *ranks[0];
  rank.Connect(1, 0, AddressesOf(ranks));
  ASSERT_TRUE(rank.Begin(1, 0, kMicroBatches).ok());
  rank.ComputeShare(0, kMicroBatches);
  constexpr int kIllegalAddress = 700;
  cuda::emulation::FailAtWait(1, kIllegalAddress);
  const auto reduced = rank.sums->Reduce([] { return false; });
  ASSERT_FALSE(reduced.ok());
  EXPECT_EQ(reduced.error().code, Code::kGone);
  rank.sums->Abandon();
  cuda::emulation::FailAtWait(0, 0);
}

}  // namespace
}  // namespace ringmaster::library
