// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/cudnn/plugin.h"

#include <cudnn.h>
#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/check.h"
#include "worker/compute/cuda/cudnn/graph.h"

namespace ringmaster::cuda::cudnn {
namespace {

struct Destroy {
  void operator()(cudnnHandle_t handle) const { (void)cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<cudnnContext, Destroy>;

class Cudnn final : public AttentionLibrary {
 public:
  explicit Cudnn(Handle handle) : handle_(std::move(handle)) {}

  std::string Name() const override { return LibraryName(); }

  Result<Plan> Prepare(const AttentionProblem& problem, AttentionPass pass) override {
    auto& graph = graphs_[{problem, pass}];
    if (graph == nullptr) {
      RM_ASSIGN(graph, AttentionGraph::Build(problem, pass, {.handle = handle_.get(), .properties = ""}));
    }
    return graph->plan();
  }

  Status Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
             const AttentionOperands& operands, void* workspace) override {
    const auto it = graphs_.find({problem, pass});
    CHECK(it != graphs_.end() && it->second != nullptr, "attention was not prepared");
    // A stream under capture is already the handle's stream, because models/graph_segments.h enqueues
    // directly before it records; so nothing is set during a capture.
    if (stream != stream_) {
      if (const cudnnStatus_t status = cudnnSetStream(handle_.get(), stream); status != CUDNN_STATUS_SUCCESS)
        return Error{Code::kGone, fmt::format("{}: {}", LibraryName(), cudnnGetErrorString(status))};
      stream_ = stream;
    }
    return it->second->Run(handle_.get(), operands, workspace);
  }

 private:
  Handle handle_;
  Stream stream_ = nullptr;  // the stream of the handle
  std::map<std::pair<AttentionProblem, AttentionPass>, std::unique_ptr<AttentionGraph>> graphs_;
};

Result<std::unique_ptr<AttentionLibrary>> Create() {
  cudnnHandle_t handle = nullptr;
  if (const cudnnStatus_t status = cudnnCreate(&handle); status != CUDNN_STATUS_SUCCESS)
    return Error{Code::kUnavailable,
                 fmt::format("{} does not initialise: {}", LibraryName(), cudnnGetErrorString(status))};
  return std::unique_ptr<AttentionLibrary>(std::make_unique<Cudnn>(Handle(handle)));
}

}  // namespace
}  // namespace ringmaster::cuda::cudnn

extern "C" __attribute__((visibility("default"))) const ringmaster::cuda::cudnn::Plugin*
ringmaster_cudnn_plugin() {
  static const ringmaster::cuda::cudnn::Plugin kPlugin = {.create = ringmaster::cuda::cudnn::Create};
  return &kPlugin;
}
