// Our graphs of attention, made by cuDNN for GPUs that are described: checked, given an engine, and compiled.
// What is not seen here is that they run, and what they compute.
#include "worker/cuda/cudnn/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cudnn/gpus.h"

namespace ringmaster::cuda::cudnn {
namespace {

Result<AttentionLibrary::Plan> PlanFor(const DescribedGpu& gpu, const AttentionProblem& problem,
                                       AttentionPass pass) {
  SetGpu(gpu);
  RM_ASSIGN(const auto graph, AttentionGraph::Build(problem, pass, {.properties = Describe(gpu)}));
  return graph->plan();
}

AttentionProblem Of(int64_t samples, int64_t heads, int64_t context, int64_t head_size) {
  return {
      .samples = samples, .heads = heads, .context = context, .head_size = head_size, .type = Type::kBf16};
}

class EveryGpu : public testing::TestWithParam<DescribedGpu> {};
INSTANTIATE_TEST_SUITE_P(Gpus, EveryGpu, testing::ValuesIn(kGpus),
                         [](const auto& gpu) { return "sm_" + std::to_string(gpu.param.architecture); });

TEST_P(EveryGpu, HasPlansForModelsAsTheyAre) {
  const AttentionProblem problems[] = {
      Of(8, 12, 1024, 64), Of(64, 12, 1024, 64), Of(16, 16, 1024, 64),  // GPT-2 124M and 350M
      Of(2, 3, 67, 64),    Of(1, 2, 37, 8),      Of(2, 2, 200, 40),     // what no tile likes
      Of(4, 8, 2048, 128),
  };
  for (const AttentionProblem& problem : problems)
    for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      const auto plan = PlanFor(GetParam(), problem, pass);
      ASSERT_TRUE(plan.ok()) << problem.samples << " x " << problem.heads << " x " << problem.context << " x "
                             << problem.head_size << ": " << plan.error().message;
      EXPECT_THAT(plan->name, testing::HasSubstr("eng"));
      EXPECT_THAT(plan->name, testing::Not(testing::HasSubstr(" ")));
      // A deterministic backward pass may keep its sums aside: 1.6 GB for the largest of these.
      EXPECT_LE(plan->workspace_bytes, int64_t{2} << 30);
    }
}

// Members of a job compare the plans' names.
TEST_P(EveryGpu, HasTheSamePlanEveryTime) {
  const AttentionProblem problem = Of(2, 3, 67, 64);
  for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
    const auto plan = PlanFor(GetParam(), problem, pass);
    const auto again = PlanFor(GetParam(), problem, pass);
    ASSERT_TRUE(plan.ok() && again.ok());
    EXPECT_EQ(plan->name, again->name);
    EXPECT_EQ(plan->workspace_bytes, again->workspace_bytes);
  }
}

// Where sums may be added in the order in which they get done, cuDNN 9.19 takes one or two times the memory
// of d_q in float. In a fixed order it keeps the parts of it aside, or, on B200, needs none of that.
TEST_P(EveryGpu, AddsInAFixedOrder) {
  if (LibraryName() != "cuDNN-9.19.0") GTEST_SKIP() << "known of cuDNN 9.19.0, this is " << LibraryName();
  const AttentionProblem p = Of(8, 12, 1024, 64);
  const int64_t d_q = 4 * p.samples * p.heads * p.context * p.head_size;
  const auto plan = PlanFor(GetParam(), p, AttentionPass::kBackward);
  ASSERT_TRUE(plan.ok());
  if (GetParam().architecture >= 100)
    EXPECT_LT(plan->workspace_bytes, d_q / 8);
  else
    EXPECT_GE(plan->workspace_bytes, 4 * d_q);
}

TEST_P(EveryGpu, RefusesWhatItCannotDo) {
  const auto refusal = [](const AttentionProblem& problem, AttentionPass pass) -> std::string {
    const auto plan = PlanFor(GetParam(), problem, pass);
    if (plan.ok()) return "";
    EXPECT_EQ(plan.error().code, Code::kInvalid);
    return plan.error().message;
  };
  for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
    EXPECT_THAT(refusal(Of(1, 2, 100, 13), pass), testing::HasSubstr("multiples of 8"));
    EXPECT_THAT(refusal(Of(1, 2, 100, 136), pass), testing::HasSubstr("at most 128"));
    AttentionProblem in_float = Of(1, 2, 100, 64);
    in_float.type = Type::kFloat;
    EXPECT_THAT(refusal(in_float, pass), testing::HasSubstr("not in fp32"));
  }
  // cuDNN's own word.
  EXPECT_THAT(refusal(Of(1, 1, 1, 64), AttentionPass::kBackward), testing::HasSubstr("not supported"));
}

// What cuDNN has no kernels for is refused by it, and not taken for another GPU.
TEST(NoGpu, HasNoPlan) {
  const DescribedGpu volta = {"Tesla V100", 70, 80, 98304, 6291456, 16e9};
  EXPECT_FALSE(PlanFor(volta, Of(8, 12, 1024, 64), AttentionPass::kBackward).ok());
  const auto nonsense =
      AttentionGraph::Build(Of(8, 12, 1024, 64), AttentionPass::kForward, {.properties = "{}"});
  ASSERT_FALSE(nonsense.ok());
  EXPECT_EQ(nonsense.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace ringmaster::cuda::cudnn
