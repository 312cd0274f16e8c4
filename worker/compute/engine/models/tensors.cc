// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/tensors.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "worker/compute/engine/layout_builder.h"

namespace ringmaster::engine {
namespace {

int64_t Padded(int64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

class TensorBuilder {
 public:
  // Adds a tensor in backward order. Returns its offset.
  int64_t Add(std::string name, std::vector<int64_t> shape, const Initial& initial) {
    initial_.push_back(initial);
    return layout_.Add(std::move(name), std::move(shape));
  }
  void EndGroup() { layout_.EndGroup(); }
  Tensors Finish() { return {layout_.Finish(), std::move(initial_)}; }

 private:
  LayoutBuilder layout_;
  std::vector<Initial> initial_;
};

// He et al. 2015, "Delving Deep into Rectifiers": keeps the variance of activations through ReLU.
Initial He(int64_t inputs) { return {0, std::sqrt(2.0f / static_cast<float>(inputs))}; }

}  // namespace

GptTensors MakeGptTensors(const ModelConfig& config) {
  const int64_t c = config.width;
  const Initial zero{}, one{1, 0}, normal{0, 0.02f};
  // GPT-2 scales the weights that add to the residual stream by the number of additions to it.
  const Initial residual{0, 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers))};
  TensorBuilder builder;
  GptTensors gpt;
  gpt.ln_f_g = builder.Add("ln_f.weight", {c}, one);
  gpt.ln_f_b = builder.Add("ln_f.bias", {c}, zero);
  builder.EndGroup();
  gpt.ln_f_end = gpt.ln_f_b + Padded(c);
  gpt.blocks.resize(static_cast<size_t>(config.layers));
  for (int i = config.layers - 1; i >= 0; --i) {
    GptBlockTensors& at = gpt.blocks[static_cast<size_t>(i)];
    const auto add = [&](const char* name, std::vector<int64_t> shape, const Initial& initial) {
      return builder.Add(fmt::format("h.{}.{}", i, name), std::move(shape), initial);
    };
    at.mlp_proj_w = add("mlp.c_proj.weight", {4 * c, c}, residual);
    at.mlp_proj_b = add("mlp.c_proj.bias", {c}, zero);
    at.fc_w = add("mlp.c_fc.weight", {c, 4 * c}, normal);
    at.fc_b = add("mlp.c_fc.bias", {4 * c}, zero);
    at.ln2_g = add("ln_2.weight", {c}, one);
    at.ln2_b = add("ln_2.bias", {c}, zero);
    at.proj_w = add("attn.c_proj.weight", {c, c}, residual);
    at.proj_b = add("attn.c_proj.bias", {c}, zero);
    at.qkv_w = add("attn.c_attn.weight", {c, 3 * c}, normal);
    at.qkv_b = add("attn.c_attn.bias", {3 * c}, zero);
    at.ln1_g = add("ln_1.weight", {c}, one);
    at.ln1_b = add("ln_1.bias", {c}, zero);
    at.end = at.ln1_b + Padded(c);
    builder.EndGroup();
  }
  gpt.wpe = builder.Add("wpe.weight", {config.context, c}, normal);
  gpt.wte = builder.Add("wte.weight", {config.vocabulary, c}, normal);
  builder.EndGroup();
  gpt.tensors = builder.Finish();
  return gpt;
}

MlpTensors MakeMlpTensors(const ModelConfig& config) {
  TensorBuilder builder;
  MlpTensors mlp;
  mlp.dense.resize(static_cast<size_t>(config.layers) + 1);
  for (int i = config.layers; i >= 0; --i) {
    DenseTensors& layer = mlp.dense[static_cast<size_t>(i)];
    layer.in = i == 0 ? ImageSize(config) : config.width;
    layer.out = i == config.layers ? config.classes : config.width;
    layer.weight = builder.Add(fmt::format("layers.{}.weight", i), {layer.in, layer.out}, He(layer.in));
    layer.bias = builder.Add(fmt::format("layers.{}.bias", i), {layer.out}, {});
    layer.end = layer.bias + Padded(layer.out);
    builder.EndGroup();
  }
  mlp.tensors = builder.Finish();
  return mlp;
}

CnnTensors MakeCnnTensors(const ModelConfig& config) {
  TensorBuilder builder;
  CnnTensors cnn;
  int64_t height = config.height;
  int64_t width = config.image_width;
  int64_t in = config.channels;
  int64_t out = config.width;
  for (int i = 0; i < config.layers; ++i, out *= 2) {
    cnn.stages.push_back({.height = height, .width = width, .in = in, .out = out});
    height /= 2;
    width /= 2;
    in = out;
  }
  cnn.dense.in = height * width * in;
  cnn.dense.out = config.classes;
  cnn.dense.weight = builder.Add("dense.weight", {cnn.dense.in, cnn.dense.out}, He(cnn.dense.in));
  cnn.dense.bias = builder.Add("dense.bias", {cnn.dense.out}, {});
  cnn.dense.end = cnn.dense.bias + Padded(cnn.dense.out);
  builder.EndGroup();
  for (int i = config.layers - 1; i >= 0; --i) {
    ConvTensors& stage = cnn.stages[static_cast<size_t>(i)];
    stage.weight =
        builder.Add(fmt::format("conv.{}.weight", i), {3, 3, stage.in, stage.out}, He(9 * stage.in));
    stage.bias = builder.Add(fmt::format("conv.{}.bias", i), {stage.out}, {});
    stage.end = stage.bias + Padded(stage.out);
    builder.EndGroup();
  }
  cnn.tensors = builder.Finish();
  return cnn;
}

}  // namespace ringmaster::engine
