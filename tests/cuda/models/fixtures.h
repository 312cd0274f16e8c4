// SPDX-License-Identifier: Apache-2.0

// A model on the device, the same model on the CPU, and memory for calls. Also used by tests on a real GPU.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/cuda/runtime/with_device.h"
#include "tests/unit/engine/fixtures.h"
#include "worker/compute/cuda/models/model.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// The folder of stored choices, shared by all trials of this process so that they have equal bits.
inline std::string ChoicesFolder() {
  struct Folder {
    std::string path = testing::TempDir() + "products-" + std::to_string(::getpid());
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

struct StepResult {
  engine::Sums sums;
  std::vector<float> grads;
};

class Trial {
 public:
  explicit Trial(const engine::ModelConfig& config, const ModelOptions& options = {},
                 const std::string& folder = ChoicesFolder())
      : stream_(OwnedStream::Create().value()),
        gemm_(Gemm::Create({.cache_folder = folder}).value()),
        attention_(Attention::Create({.cache_folder = folder}, BindDevice(0).value()).value()) {
    auto model = CreateModel(config, stream_.get(), {*gemm_, *attention_}, options);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    model_ = std::move(model).value();
    const int64_t elements = model_->layout().elements;
    params_ = Buffer<float>::Create(elements).value();
    grads_ = Buffer<float>::Create(elements).value();
    host_ = Pinned<float>::Create(elements).value();
  }

  engine::Model& model() { return *model_; }
  Gemm& gemm() { return *gemm_; }
  Attention& attention() { return *attention_; }
  Stream stream() const { return stream_.get(); }
  std::span<float> grads() const { return grads_.span(); }

  engine::Params SetParams(const std::vector<float>& params, uint64_t version = 0) {
    std::copy(params.begin(), params.end(), host_.get());
    CopyToDevice(stream_.get(), params_.get(), host_.get(), params_.bytes());
    EXPECT_TRUE(Synchronize(stream_.get()).ok());
    return {std::span<const float>(params_.span()), version};
  }

  // The values at the time of the call.
  std::vector<float> Download(std::span<const float> memory) {
    CopyToHost(stream_.get(), host_.get(), memory.data(), static_cast<int64_t>(memory.size_bytes()));
    EXPECT_TRUE(Synchronize(stream_.get()).ok());
    return {host_.get(), host_.get() + memory.size()};
  }

  StepResult Step(const engine::Params& params, const engine::Batch& batch) {
    // Gradients are overwritten.
    const std::vector<float> garbage(static_cast<size_t>(grads_.size()), 1e9f);
    std::copy(garbage.begin(), garbage.end(), host_.get());
    CopyToDevice(stream_.get(), grads_.get(), host_.get(), grads_.bytes());
    EXPECT_TRUE(Synchronize(stream_.get()).ok());
    const auto sums = model_->ForwardBackward(params, batch, grads_.span(), nullptr, nullptr);
    EXPECT_TRUE(sums.ok()) << (sums.ok() ? "" : sums.error().message);
    return {sums.value(), Download(grads_.span())};
  }

 private:
  OwnedStream stream_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<engine::Model> model_;
  Buffer<float> params_, grads_;
  Pinned<float> host_;
};

// A head size that a library supports: a multiple of 8.
inline engine::ModelConfig GptOfAlignedHeads() {
  engine::ModelConfig config = engine::SmallGpt();
  config.heads = 3;
  return config;
}

inline engine::ModelConfig Bf16Of(engine::ModelConfig config) {
  config.precision = engine::Precision::kBf16;
  return config;
}

}  // namespace ringmaster::cuda
