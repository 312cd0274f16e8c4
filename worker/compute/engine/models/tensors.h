// SPDX-License-Identifier: Apache-2.0

// The tensors of the models: offsets in the arena and initial values. All devices use these, so that
// checkpoints, seeds and offsets mean the same everywhere. Value types.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/compute/engine/initialise.h"
#include "worker/compute/engine/layout.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::engine {

struct Tensors {
  Layout layout;
  std::vector<Initial> initial;  // initial[i] belongs to layout.parameters[i]
};

// Offsets of the tensors of a block, in backward order.
struct GptBlockTensors {
  int64_t mlp_proj_w, mlp_proj_b, fc_w, fc_b, ln2_g, ln2_b;
  int64_t proj_w, proj_b, qkv_w, qkv_b, ln1_g, ln1_b;
  int64_t end;  // end of the block
};
struct GptTensors {
  Tensors tensors;
  std::vector<GptBlockTensors> blocks;  // by depth: blocks[0] reads the embeddings
  int64_t ln_f_g = 0;
  int64_t ln_f_b = 0;
  int64_t ln_f_end = 0;
  int64_t wpe = 0;
  int64_t wte = 0;
};
GptTensors MakeGptTensors(const ModelConfig& config);

struct DenseTensors {
  int64_t in = 0, out = 0;
  int64_t weight = 0, bias = 0;  // offsets; weight is (in, out)
  int64_t end = 0;
};
struct MlpTensors {
  Tensors tensors;
  std::vector<DenseTensors> dense;  // by depth; the last layer computes the logits
};
MlpTensors MakeMlpTensors(const ModelConfig& config);

struct ConvTensors {
  int64_t height = 0, width = 0, in = 0, out = 0;  // of the convolution; pooling halves height and width
  int64_t weight = 0, bias = 0;                    // offsets; weight is (3, 3, in, out)
  int64_t end = 0;
  int64_t Pixels() const { return height * width; }
  int64_t InputSize() const { return height * width * in; }
  int64_t PooledSize() const { return (height / 2) * (width / 2) * out; }
};
struct CnnTensors {
  Tensors tensors;
  std::vector<ConvTensors> stages;
  DenseTensors dense;
};
CnnTensors MakeCnnTensors(const ModelConfig& config);

// Returns the values of an image, a sample of the MLP and the CNN.
inline int64_t ImageSize(const ModelConfig& config) {
  return int64_t{config.channels} * config.height * config.image_width;
}

}  // namespace ringmaster::engine
