// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/compare/compare_runs.h"
#include "cli/compare/run_digests.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kFirstLine = R"({"digests":1,"tensors":["last","first"],"worker":"w0"})"
                                   "\n";

std::string MicroBatch(int step, int v, const std::string& last, const std::string& first,
                       const std::string& loss = "0.5") {
  return R"({"generation":1,"gradients":[")" + last + R"(",")" + first + R"("],"loss":)" + loss +
         R"(,"microBatch":)" + std::to_string(v) + R"(,"step":)" + std::to_string(step) + "}\n";
}

std::string Commit(int step, const std::string& norm = "2.0") {
  return R"({"generation":1,"gradientNorm":)" + norm + R"(,"learningRate":0.1,"loss":0.5,"step":)" +
         std::to_string(step) + "}\n";
}

std::string State(int step, const std::string& hash) {
  return R"({"generation":1,"state":[["model.w","00ff"],["adam.v",")" + hash + R"("]],"step":)" +
         std::to_string(step) + "}\n";
}

RunDigests Load(const TempFolder& folder, const std::string& text) {
  folder.Write("digests/a.jsonl", kFirstLine + text);
  auto loaded = LoadDigests(folder.path());
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return std::move(loaded).value();
}

std::string DifferenceOf(const std::string& first, const std::string& second) {
  const TempFolder a;
  const TempFolder b;
  return CompareDigests(Load(a, first), Load(b, second)).difference;
}

const std::string kRun =
    State(0, "01") + MicroBatch(1, 0, "0a", "0b") + MicroBatch(1, 1, "0c", "0d") + Commit(1) + State(1, "02");

TEST(Compare, EqualRunsHaveNoDifference) {
  const TempFolder a;
  const TempFolder b;
  const Comparison found = CompareDigests(Load(a, kRun), Load(b, kRun + MicroBatch(2, 0, "0e", "0f")));
  EXPECT_EQ(found.difference, "");
  EXPECT_EQ(found.micro_batches, 2);
  EXPECT_EQ(found.states, 2);
  EXPECT_EQ(found.last_step, 1);
}

TEST(Compare, NamesTheFirstDifferenceInTheOrderOfComputation) {
  const std::string other_state = State(0, "03") + MicroBatch(1, 0, "1a", "0b");
  EXPECT_THAT(DifferenceOf(kRun, other_state),
              StartsWith("the state before the first step, in adam.v (1 of 2"));
  EXPECT_THAT(DifferenceOf(kRun, State(0, "01") + MicroBatch(1, 1, "0c", "1d", "0.25")),
              StartsWith("step 1, micro-batch 1, in the loss, and in the gradient of first (1 of 2 tensors"));
  EXPECT_THAT(DifferenceOf(kRun, MicroBatch(1, 1, "0c", "0d", "null")),
              StartsWith("step 1, micro-batch 1, in the loss, but in no gradient:\n  loss 0.5: "));
  EXPECT_THAT(DifferenceOf(kRun, MicroBatch(1, 0, "0a", "0b") + Commit(1, "2.5")),
              StartsWith("step 1, in the gradient norm:\n  2: "));
  const std::string update = DifferenceOf(
      kRun, MicroBatch(1, 0, "0a", "0b") + MicroBatch(1, 1, "0c", "0d") + Commit(1) + State(1, "03"));
  EXPECT_THAT(
      update,
      StartsWith("the state after step 1, in adam.v (1 of 2 arrays differ):\n  hash 0000000000000002: "));
  EXPECT_THAT(update, HasSubstr("so the reduction or the update differs"));
}

TEST(Compare, FindsWorkersOfOneRunThatDiffer) {
  const std::string repeated = kRun + MicroBatch(1, 1, "0c", "1d");
  EXPECT_THAT(DifferenceOf(repeated, kRun), StartsWith("step 1, micro-batch 1, in the gradient of first"));
}

TEST(Compare, ATornLastLineIsIgnoredAndAnotherWrongLineIsNamed) {
  const TempFolder folder;
  EXPECT_EQ(Load(folder, kRun + R"({"generation":1,"st)").steps.size(), 2u);
  folder.Write("digests/a.jsonl", kFirstLine + std::string("{}\n") + kRun);
  const auto loaded = LoadDigests(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("a.jsonl:2: "));
}

TEST(Compare, AFolderWithoutDigestsIsNamedWithARemedy) {
  const TempFolder folder;
  folder.Write("metrics.jsonl", "{\"step\":1}\n");
  const auto loaded = LoadDigests(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("ringmaster run --digests"));
}

}  // namespace
}  // namespace ringmaster::cli
