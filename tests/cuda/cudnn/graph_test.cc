// SPDX-License-Identifier: Apache-2.0

// cuDNN builds the attention graphs for described GPUs: it validates them, selects an engine and compiles
// them. These tests do not run the graphs.
#include "worker/compute/cuda/cudnn/graph.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cuda/cudnn/gpus.h"

namespace ringmaster::cuda::cudnn {
namespace {

Result<std::unique_ptr<AttentionGraph>> GraphFor(const DescribedGpu& gpu, const AttentionProblem& problem,
                                                 AttentionPass pass) {
  SetGpu(gpu);
  return AttentionGraph::Build(problem, pass, {.properties = Describe(gpu)});
}

AttentionProblem Of(int64_t samples, int64_t heads, int64_t context, int64_t head_size) {
  return {
      .samples = samples, .heads = heads, .context = context, .head_size = head_size, .type = DType::kBf16};
}

class EveryGpu : public testing::TestWithParam<DescribedGpu> {
 protected:
  // For a nondeterministic backward pass, cuDNN 9.19 uses a workspace of one or two times d_q in float. For a
  // deterministic one it stores the partial sums separately, or, on B200, needs no such workspace.
  static void ExpectAFixedOrder(const AttentionProblem& p, const AttentionLibrary::Plan& backward) {
    if (!LibraryName().starts_with("cuDNN-9.19.0+")) return;  // not known for other versions
    const int64_t d_q = 4 * p.samples * p.heads * p.context * p.head_size;
    if (GetParam().architecture >= 100)
      EXPECT_LT(backward.workspace_bytes, d_q / 8);
    else
      EXPECT_GE(backward.workspace_bytes, 4 * d_q);
  }
};
INSTANTIATE_TEST_SUITE_P(Gpus, EveryGpu, testing::ValuesIn(kGpus),
                         [](const auto& gpu) { return "sm_" + std::to_string(gpu.param.architecture); });

// cuDNN's description of the graph, and the address of each tensor.
class GraphDescription {
 public:
  GraphDescription(const AttentionGraph& graph, const AttentionOperands& operands)
      : said_(ParseJson(graph.Description()).value()), at_(graph.Addresses(operands)) {}

  const Json& Operation() const { return said_["nodes"][0]; }

  // Returns a tensor of "inputs" or "outputs" by cuDNN's name of its role.
  const Json& Tensor(const char* ports, const char* port) const {
    return said_["tensors"][Operation()[ports][port].get<std::string>()];
  }

  // Returns the address of (sample, head, row, column).
  const std::byte* At(const Json& tensor, int64_t sample, int64_t head, int64_t row, int64_t column) const {
    const auto strides = tensor["stride"].get<std::vector<int64_t>>();
    // Operands that a product uses transposed are described as such.
    const bool transposed = Transposed(tensor);
    const int64_t element = sample * strides[0] + head * strides[1] + row * strides[transposed ? 3 : 2] +
                            column * strides[transposed ? 2 : 3];
    const int64_t bytes = tensor["data_type"] == "FLOAT" ? 4 : 2;
    return static_cast<const std::byte*>(at_.at(tensor["uid"].get<int64_t>())) + bytes * element;
  }
  static std::vector<int64_t> Dims(const Json& tensor) {
    auto dims = tensor["dim"].get<std::vector<int64_t>>();
    if (Transposed(tensor)) std::swap(dims[2], dims[3]);
    return dims;
  }
  size_t Addresses() const { return at_.size(); }

 private:
  static bool Transposed(const Json& tensor) { return tensor["stride"][3] != 1; }

  Json said_;
  std::unordered_map<int64_t, void*> at_;
};

// Every element of every tensor has the address that kernels/attention.h defines, computed here
// independently.
void ExpectOurLayout(const AttentionGraph& graph, const AttentionProblem& p, AttentionPass pass) {
  const auto address = [](uintptr_t at) { return reinterpret_cast<std::byte*>(at << 40); };
  std::byte *const qkv = address(1), *const out = address(2), *const lse = address(3),
                   *const d_out = address(4), *const d_qkv = address(5);
  const GraphDescription description(
      graph, {.qkv = qkv, .out = out, .lse = reinterpret_cast<float*>(lse), .d_out = d_out, .d_qkv = d_qkv});
  const bool forward = pass == AttentionPass::kForward;
  const int64_t width = p.heads * p.head_size;
  struct Laid {
    const char *ports, *port;
    std::byte* array;
    int64_t row, begin;  // row stride, and offset of the first row
    bool is_float = false;
  };
  std::vector<Laid> all = {{"inputs", "Q", qkv, 3 * width, 0},
                           {"inputs", "K", qkv, 3 * width, width},
                           {"inputs", "V", qkv, 3 * width, 2 * width}};
  if (forward)
    all.insert(all.end(), {{"outputs", "O", out, width, 0}, {"outputs", "Stats", lse, 0, 0, true}});
  else
    all.insert(all.end(), {{"inputs", "O", out, width, 0},
                           {"inputs", "dO", d_out, width, 0},
                           {"inputs", "Stats", lse, 0, 0, true},
                           {"outputs", "dQ", d_qkv, 3 * width, 0},
                           {"outputs", "dK", d_qkv, 3 * width, width},
                           {"outputs", "dV", d_qkv, 3 * width, 2 * width}});
  EXPECT_EQ(description.Addresses(), all.size());
  for (const Laid& laid : all) {
    SCOPED_TRACE(laid.port);
    const Json& tensor = description.Tensor(laid.ports, laid.port);
    const int64_t columns = laid.is_float ? 1 : p.head_size;
    EXPECT_EQ(GraphDescription::Dims(tensor), (std::vector<int64_t>{p.samples, p.heads, p.context, columns}));
    EXPECT_EQ(tensor["data_type"], laid.is_float ? "FLOAT" : "BFLOAT16");
    for (const int64_t n : {int64_t{0}, p.samples / 2, p.samples - 1})
      for (const int64_t h : {int64_t{0}, p.heads / 2, p.heads - 1})
        for (const int64_t t : {int64_t{0}, p.context / 2, p.context - 1})
          for (const int64_t c : {int64_t{0}, columns / 2, columns - 1}) {
            const std::byte* const want =
                laid.is_float
                    ? laid.array + 4 * ((n * p.heads + h) * p.context + t)
                    : laid.array + 2 * ((n * p.context + t) * laid.row + laid.begin + h * p.head_size + c);
            ASSERT_EQ(description.At(tensor, n, h, t, c), want) << n << " " << h << " " << t << " " << c;
          }
  }
  // The mask is causal, and scores are divided by the square root of the head size.
  const Json& operation = description.Operation();
  EXPECT_EQ(operation["diagonal_alignment"], "TOP_LEFT");
  EXPECT_EQ(operation["right_bound"], 0);
  EXPECT_TRUE(operation["left_bound"].is_null());
  EXPECT_EQ(operation["padding_mask"], false);
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.head_size));
  EXPECT_EQ(operation["attn_scale_value"], fmt::format("{:08X}", std::bit_cast<uint32_t>(scale)));
  if (forward)
    EXPECT_EQ(operation["generate_stats"], true);
  else
    EXPECT_EQ(operation["is_deterministic_algorithm"], true);
}

TEST_P(EveryGpu, HasPlansForRealModels) {
  const AttentionProblem models[] = {Of(64, 12, 1024, 64), Of(16, 16, 1024, 64)};  // GPT-2 124M and 350M
  const AttentionProblem ragged = Of(2, 4, 67, 64), wide = Of(4, 8, 2048, 128);
  for (const AttentionProblem& problem : {models[0], models[1], ragged, wide})
    for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      SCOPED_TRACE(testing::Message() << problem.samples << " x " << problem.heads << " x " << problem.context
                                      << " x " << problem.head_size);
      const auto graph = GraphFor(GetParam(), problem, pass);
      ASSERT_TRUE(graph.ok()) << graph.error().message;
      ExpectOurLayout(**graph, problem, pass);
      const AttentionLibrary::Plan& plan = (*graph)->plan();
      EXPECT_THAT(plan.name, testing::MatchesRegex("eng[^ ]*," + std::to_string(plan.workspace_bytes)));
      // A deterministic backward pass may store partial sums: 1.6 GB for the largest of these.
      EXPECT_LE(plan.workspace_bytes, int64_t{2} << 30);
      if (pass == AttentionPass::kForward) continue;
      if (problem == models[0]) ExpectAFixedOrder(problem, plan);
      if (problem != ragged) continue;
      // Members of a job compare the names of plans.
      const auto again = GraphFor(GetParam(), problem, pass);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ((*again)->plan().name, plan.name);
    }
}

TEST_P(EveryGpu, RejectsUnsupportedProblems) {
  const auto refusal = [](const AttentionProblem& problem, AttentionPass pass) -> std::string {
    const auto graph = GraphFor(GetParam(), problem, pass);
    if (graph.ok()) return "";
    EXPECT_EQ(graph.error().code, Code::kInvalid);
    return graph.error().message;
  };
  for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
    EXPECT_THAT(refusal(Of(1, 2, 100, 13), pass), testing::HasSubstr("multiple of 8"));
    EXPECT_THAT(refusal(Of(1, 2, 100, 136), pass), testing::HasSubstr("at most 128"));
    AttentionProblem in_float = Of(1, 2, 100, 64);
    in_float.type = DType::kFloat;
    EXPECT_THAT(refusal(in_float, pass), testing::HasSubstr("no support for fp32"));
  }
  EXPECT_THAT(refusal(Of(2, 3, 67, 64), AttentionPass::kBackward),
              testing::HasSubstr("so that its workspace is aligned"));
  // cuDNN's own message.
  EXPECT_THAT(refusal(Of(4, 1, 1, 64), AttentionPass::kBackward), testing::HasSubstr("not supported"));
}

// cuDNN rejects a GPU for which it has no kernels.
TEST(NoGpu, HasNoPlan) {
  const DescribedGpu volta = {"Tesla V100", 70, 80, 98304, 6291456, 16e9};
  EXPECT_FALSE(GraphFor(volta, Of(8, 12, 1024, 64), AttentionPass::kBackward).ok());
  const auto nonsense =
      AttentionGraph::Build(Of(8, 12, 1024, 64), AttentionPass::kForward, {.properties = "{}"});
  ASSERT_FALSE(nonsense.ok());
  EXPECT_EQ(nonsense.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace ringmaster::cuda::cudnn
