// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/cudnn/graph.h"

#include <cudnn.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringmaster::cuda::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// The library is used only for problems that the native kernels support.
constexpr int64_t kLargestHead = 128;

// The uids of the tensors, which Run maps to addresses.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDOut, kDQ, kDK, kDV };

// Calls `call` and converts exceptions: cuDNN's headers return errors, but throw on misuse of the standard
// library and when memory is short.
template <class Fn>
auto Guarded(const Fn& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::exception& e) {
    return Error{Code::kInternal, fmt::format("{}: {}", LibraryName(), e.what())};
  } catch (...) {
    return Error{Code::kInternal, fmt::format("{}: an unknown exception", LibraryName())};
  }
}

// Converts an error of the library; its text becomes one line.
Status Check(const fe::error_t& error) {
  if (error.is_good()) return Ok();
  std::string why = error.err_msg;
  std::ranges::replace(why, '\n', ' ');
  constexpr size_t kLongest = 400;
  if (why.size() > kLongest) why = why.substr(0, kLongest) + "...";
  return Error{Code::kInvalid, fmt::format("{}: {}", LibraryName(), why)};
}

class Graph final : public AttentionGraph {
 public:
  Graph(const AttentionProblem& problem, AttentionPass pass) : problem_(problem), pass_(pass) {}

  Status Start(const Target& target) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!target.properties.empty()) {
      properties_ = std::make_shared<fe::DeviceProperties>();
      const std::vector<uint8_t> json(target.properties.begin(), target.properties.end());
      RM_TRY(Check(properties_->deserialize(json)));
      graph_.set_device_properties(properties_);
    }
    if (pass_ == AttentionPass::kForward)
      DescribeForward();
    else
      DescribeBackward();
    RM_TRY(Check(graph_.validate()));
    const auto handle = target.handle;
    RM_TRY(Check(handle == nullptr ? graph_.build_operation_graph() : graph_.build_operation_graph(handle)));
    RM_TRY(Check(graph_.create_execution_plans({fe::HeurMode_t::A})));
    RM_TRY(Check(graph_.check_support()));
    RM_TRY(Check(graph_.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE)));
    RM_TRY(Check(graph_.get_workspace_size(plan_.workspace_bytes)));
    RM_TRY(Check(graph_.get_plan_name(plan_.name)));
    std::ranges::replace(plan_.name, ' ', '_');
    // On H200 the deterministic and the other algorithm have the same engine and knobs but different
    // workspaces, so the size is part of the name.
    plan_.name += fmt::format(",{}", plan_.workspace_bytes);
    return Ok();
  }

  const AttentionLibrary::Plan& plan() const override { return plan_; }

  std::string Description() const override { return graph_.print(); }

  std::unordered_map<int64_t, void*> Addresses(const AttentionOperands& operands) const override {
    constexpr int64_t kBytes = 2;  // size of a bfloat16
    const int64_t width = problem_.heads * problem_.head_size * kBytes;
    auto* const qkv = static_cast<std::byte*>(const_cast<void*>(operands.qkv));
    std::unordered_map<int64_t, void*> at = {
        {kQ, qkv}, {kK, qkv + width}, {kV, qkv + 2 * width}, {kOut, operands.out}, {kLse, operands.lse}};
    if (pass_ == AttentionPass::kBackward) {
      auto* const d_qkv = static_cast<std::byte*>(operands.d_qkv);
      at.emplace(kDOut, const_cast<void*>(operands.d_out));
      at.emplace(kDQ, d_qkv);
      at.emplace(kDK, d_qkv + width);
      at.emplace(kDV, d_qkv + 2 * width);
    }
    return at;
  }

  Status Run(cudnnContext* handle, const AttentionOperands& operands, void* workspace) override {
    return Guarded([&]() -> Status {
      std::unordered_map<int64_t, void*> at = Addresses(operands);
      Status done = Check(graph_.execute(handle, at, workspace));
      // The plan was built for these shapes, so only the device can have failed.
      if (!done.ok()) return Error{Code::kGone, done.error().message};
      return done;
    });
  }

 private:
  // A tensor of shape (B, H, T, D) whose rows are `row` elements apart.
  std::vector<int64_t> Dims() const {
    return {problem_.samples, problem_.heads, problem_.context, problem_.head_size};
  }
  std::vector<int64_t> Strides(int64_t row) const {
    return {problem_.context * row, problem_.head_size, row, 1};
  }
  int64_t Plain() const { return problem_.heads * problem_.head_size; }
  int64_t Packed() const { return 3 * Plain(); }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(problem_.head_size)); }

  Tensor Input(Uid uid, const char* name, int64_t row) {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(Dims()).set_stride(Strides(row)));
  }
  void Output(const Tensor& tensor, Uid uid, int64_t row) const {
    tensor->set_output(true).set_uid(uid).set_dim(Dims()).set_stride(Strides(row));
  }
  std::vector<int64_t> LseDims() const { return {problem_.samples, problem_.heads, problem_.context, 1}; }
  std::vector<int64_t> LseStrides() const {
    return {problem_.heads * problem_.context, problem_.context, 1, 1};
  }

  // Causal mask: a query sees the keys up to its own position.
  template <class Attributes>
  Attributes Causal(const char* name) const {
    Attributes attributes;
    attributes.set_name(name)
        .set_attn_scale(Scale())
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    return attributes;
  }

  void DescribeForward() {
    auto attributes = Causal<fe::graph::SDPA_attributes>("attention");
    attributes.set_generate_stats(true);
    const auto [out, lse] = graph_.sdpa(Input(kQ, "q", Packed()), Input(kK, "k", Packed()),
                                        Input(kV, "v", Packed()), std::move(attributes));
    Output(out, kOut, Plain());
    lse->set_output(true)
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(LseDims())
        .set_stride(LseStrides());
  }

  void DescribeBackward() {
    const Tensor lse = graph_.tensor(fe::graph::Tensor_attributes()
                                         .set_name("lse")
                                         .set_uid(kLse)
                                         .set_data_type(fe::DataType_t::FLOAT)
                                         .set_dim(LseDims())
                                         .set_stride(LseStrides()));
    auto attributes = Causal<fe::graph::SDPA_backward_attributes>("attention_backward");
    attributes.set_deterministic_algorithm(true);
    const auto [d_q, d_k, d_v] = graph_.sdpa_backward(
        Input(kQ, "q", Packed()), Input(kK, "k", Packed()), Input(kV, "v", Packed()),
        Input(kOut, "out", Plain()), Input(kDOut, "d_out", Plain()), lse, std::move(attributes));
    Output(d_q, kDQ, Packed());
    Output(d_k, kDK, Packed());
    Output(d_v, kDV, Packed());
  }

  const AttentionProblem problem_;
  const AttentionPass pass_;
  fe::graph::Graph graph_;
  std::shared_ptr<fe::DeviceProperties> properties_;
  AttentionLibrary::Plan plan_;
};

}  // namespace

std::string LibraryName() {
  const size_t version = cudnnGetVersion();
  int major = 0, minor = 0;
  (void)nvrtcVersion(&major, &minor);
  return fmt::format("cuDNN-{}.{}.{}+NVRTC-{}.{}", version / 10000, version / 100 % 100, version % 100, major,
                     minor);
}

Result<std::unique_ptr<AttentionGraph>> AttentionGraph::Build(const AttentionProblem& problem,
                                                              AttentionPass pass, const Target& target) {
  if (problem.type != DType::kBf16)
    return Error{Code::kInvalid, fmt::format("{}: no support for fp32", LibraryName())};
  if (problem.head_size % 8 != 0 || problem.head_size > kLargestHead || problem.samples < 1 ||
      problem.context < 1)
    return Error{Code::kInvalid,
                 fmt::format("{}: the head size must be a multiple of 8 and at most {} (got {})",
                             LibraryName(), kLargestHead, problem.head_size)};
  // In backward, cuDNN's headers place one sum per row at the start of the workspace, and the workspace of
  // the engine right after it, without alignment.
  constexpr int64_t kAligned = 16 / sizeof(float);
  if (pass == AttentionPass::kBackward && problem.samples * problem.heads * problem.context % kAligned != 0)
    return Error{Code::kInvalid,
                 fmt::format("{}: samples x heads x context must be a multiple of {} (got {} x {} "
                             "x {}), so that its workspace is aligned",
                             LibraryName(), kAligned, problem.samples, problem.heads, problem.context)};
  return Guarded([&]() -> Result<std::unique_ptr<AttentionGraph>> {
    auto graph = std::make_unique<Graph>(problem, pass);
    RM_TRY(graph->Start(target));
    return std::unique_ptr<AttentionGraph>(std::move(graph));
  });
}

}  // namespace ringmaster::cuda::cudnn
