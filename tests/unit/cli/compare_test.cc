// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "cli/compare/compare_runs.h"
#include "cli/compare/run_digests.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string FirstLine(const std::string& run, const std::string& tensors = R"("last","first")") {
  return R"({"digests":1,"run":")" + run + R"(","tensors":[)" + tensors + R"(],"worker":"w0"})" + "\n";
}

const std::string kFirstLine = FirstLine("default/demo");

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
  EXPECT_EQ(found.unpaired, "1 micro-batches and 0 states are in one run only: " + a.path() +
                                " has steps 0 to 1, and " + b.path() + " 0 to 2");
  EXPECT_EQ(CompareDigests(Load(a, kRun), Load(b, kRun)).unpaired, "");
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
  EXPECT_THAT(DifferenceOf(kRun, MicroBatch(1, 1, "0c", "0d", R"("nan")")),
              StartsWith("step 1, micro-batch 1, in the loss, but in no gradient:\n  loss 0.5: "));
  EXPECT_THAT(DifferenceOf(kRun, MicroBatch(1, 0, "0a", "0b") + Commit(1, "2.5")),
              StartsWith("step 1, in the gradient norm:\n  2: "));
  const std::string update =
      DifferenceOf(kRun, State(0, "01") + MicroBatch(1, 0, "0a", "0b") + MicroBatch(1, 1, "0c", "0d") +
                             Commit(1) + State(1, "03"));
  EXPECT_THAT(
      update,
      StartsWith("the state after step 1, in adam.v (1 of 2 arrays differ):\n  hash 0000000000000002: "));
  EXPECT_THAT(update, HasSubstr("so the reduction or the update differs"));
}

TEST(Compare, NamesAllTensorsThatDiffer) {
  const std::string text = DifferenceOf(kRun, MicroBatch(1, 0, "1a", "1b"));
  EXPECT_THAT(
      text,
      StartsWith("step 1, micro-batch 0, in the gradient of last (2 of 2 tensors differ, also first):"));
}

TEST(Compare, NamesTheWeight) {
  const auto weighed = [](const std::string& weight) {
    return R"({"gradients":["0a","0b"],"loss":1.0,"microBatch":0,"step":1,"weight":)" + weight + "}\n";
  };
  EXPECT_THAT(DifferenceOf(weighed("2.0"), weighed("3.0")),
              StartsWith("step 1, micro-batch 0, in the weight of the micro-batch:\n  weight 2: "));
  EXPECT_THAT(DifferenceOf(weighed("2.0"), MicroBatch(1, 0, "0a", "0b", "1.0")),
              HasSubstr("\n  weight none: "));
  EXPECT_EQ(DifferenceOf(weighed("2.0"), weighed("2.0")), "");
}

TEST(Compare, NumbersThatAreNotFiniteDiffer) {
  const auto lost = [](const char* loss) { return MicroBatch(1, 0, "0a", "0b", loss); };
  EXPECT_EQ(DifferenceOf(lost(R"("nan")"), lost(R"("nan")")), "");
  EXPECT_THAT(DifferenceOf(lost(R"("nan")"), lost(R"("inf")")), HasSubstr("\n  loss nan: "));
  EXPECT_THAT(DifferenceOf(lost(R"("-inf")"), lost(R"("inf")")), HasSubstr("\n  loss -inf: "));
  const TempFolder folder;
  folder.Write("a.jsonl", kFirstLine + lost("null"));
  const auto loaded = LoadDigests(folder.path());
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("a.jsonl:2: loss is no number"));
}

// Of a resumed run, or a worker that joins, the first record is the state that it loaded.
TEST(Compare, AStateWithoutItsStepSaysNothingOfTheUpdate) {
  EXPECT_THAT(DifferenceOf(State(50, "01"), State(50, "02")), Not(HasSubstr("micro-batches")));
  const std::string step = MicroBatch(51, 0, "0a", "0b") + Commit(51);
  EXPECT_THAT(DifferenceOf(step + State(51, "01"), step + State(51, "02")),
              Not(HasSubstr("so the reduction")));
  EXPECT_THAT(
      DifferenceOf(State(50, "01") + step + State(51, "01"), State(50, "01") + step + State(51, "02")),
      HasSubstr("Of the 1 micro-batches of step 51, 1 are in both runs, and equal: so the reduction"));
}

TEST(Compare, NamesThatOneRunLacksAreListed) {
  const TempFolder a;
  const TempFolder b;
  const auto load = [&](const std::string& tensors) {
    b.Write("digests/a.jsonl", FirstLine("default/demo", tensors) + MicroBatch(1, 0, "0a", "0b"));
    return CompareDigests(Load(a, kRun), *LoadDigests(b.path())).difference;
  };
  EXPECT_EQ(load(R"("last","renamed")"),
            "the tensors that the program registered, at step 1, micro-batch 0:\n"
            "  only in " +
                a.path() +
                " (w0): first\n"
                "  only in " +
                b.path() + " (w0): renamed");
  EXPECT_THAT(load(R"("first","last")"),
              HasSubstr(":\n  number 0 is last: " + a.path() + " (w0)\n  number 0 is first: " + b.path()));
  EXPECT_THAT(DifferenceOf(State(0, "01"), R"({"state":[["model.w","00ff"],["adam.u","01"]],"step":0})"
                                           "\n"),
              AllOf(StartsWith("the state before the first step, which has other arrays:\n  only in "),
                    HasSubstr("(w0): adam.v\n"), HasSubstr("(w0): adam.u")));
}

TEST(Compare, FindsWorkersOfOneRunThatDiffer) {
  const std::string repeated = kRun + MicroBatch(1, 1, "0c", "1d");
  EXPECT_THAT(DifferenceOf(repeated, kRun), StartsWith("step 1, micro-batch 1, in the gradient of first"));
  EXPECT_THAT(DifferenceOf(repeated, kRun), HasSubstr("differ from each other: "));
  EXPECT_THAT(DifferenceOf(kRun, State(0, "03")), Not(HasSubstr("differ from each other: ")));
}

TEST(Compare, AFolderWithSeveralRunsIsRefusedAndItsFilesAreNot) {
  const TempFolder folder;
  folder.Write("a.jsonl", FirstLine("one") + kRun);
  folder.Write("b.jsonl", FirstLine("other") + State(0, "03"));
  const auto both = LoadDigests(folder.path());
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().code, Code::kInvalid);
  EXPECT_THAT(both.error().message, HasSubstr(folder.path() + "/a.jsonl is of one, and "));
  EXPECT_THAT(both.error().message,
              HasSubstr(folder.path() + "/b.jsonl of other; record each run in a new folder"));
  const auto one = LoadDigests(folder.path() + "/b.jsonl");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->steps.size(), 1u);
}

TEST(Compare, AFileThatCannotBeReadOrHasAnotherFormatIsNoAbsentWorker) {
  const TempFolder folder;
  folder.Write("digests/a.jsonl", kFirstLine + kRun);
  const auto error = [&] {
    const auto loaded = LoadDigests(folder.path());
    return loaded.ok() ? "" : std::string(CodeName(loaded.error().code)) + ": " + loaded.error().message;
  };
  EXPECT_EQ(error(), "");
  folder.Write("digests/b.jsonl", R"({"digests":2,"worker":"w1"})"
                                  "\n");
  EXPECT_THAT(error(), HasSubstr("b.jsonl:1: format 2 is not known"));
  folder.Write("digests/b.jsonl", "{\"digests\":1,\"ten\n");
  EXPECT_THAT(error(), HasSubstr("b.jsonl:1: "));
  folder.Write("digests/b.jsonl", "{\"step\":1}\n");
  EXPECT_EQ(error(), "");
  ASSERT_EQ(::unlink(folder.File("digests/b.jsonl").c_str()), 0);
  ASSERT_EQ(::symlink("b.jsonl", folder.File("digests/b.jsonl").c_str()), 0);  // also root cannot open it
  EXPECT_THAT(error(), AllOf(StartsWith("Unavailable: "), HasSubstr("b.jsonl")));
}

TEST(Compare, ByMetricsStepsOfOneRunAreCounted) {
  RecordedRun a;
  RecordedRun b;
  a.name = "x/out";
  b.name = "y/out";
  for (int step = 1; step <= 3; ++step) {
    rendezvous::StepRecord record;
    record.step = step;
    a.steps.push_back(record);
    if (step < 2) b.steps.push_back(record);
  }
  EXPECT_EQ(CompareMetrics(a, a).unpaired, "");
  EXPECT_EQ(CompareMetrics(a, b).unpaired,
            "2 steps are in one run only: x/out has steps 1 to 3, and y/out 1 to 1");
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
