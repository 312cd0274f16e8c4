// SPDX-License-Identifier: Apache-2.0

// Field tables of spec.training: what the native engine trains.
#pragma once

#include "api/fields.h"

namespace ringmaster::api {

inline constexpr int64_t kMaxSteps = 1'000'000'000'000;
inline constexpr int64_t kMaxSafeInteger = 9'007'199'254'740'991;  // 2^53 - 1: survives every JSON reader

template <>
struct Table<Model> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Model::kind, {.required = true, .max_length = 16, .values = "gpt|mlp|cnn"},
        "Kind of model."),
      F("layers", &Model::layers, {.min = 1, .max = 1024},
        "gpt: blocks; mlp: hidden layers; cnn: convolution stages."),
      F("heads", &Model::heads, {.min = 1, .max = 1024},
        "gpt: attention heads; `width` is a multiple of it."),
      F("width", &Model::width, {.min = 1, .max = 65536},
        "gpt: embedding; mlp: hidden units; cnn: channels of the first stage."),
      F("context", &Model::context, {.min = 1, .max = 1'048'576}, "gpt: tokens per sample."),
      F("tokenizer", &Model::tokenizer, {.max_length = 16, .values = "bytes|none"},
        "gpt: `bytes` for data kind text, `none` for data kind tokens."),
      F("vocabulary", &Model::vocabulary, {.min = 0, .max = 65536},
        "gpt: vocabulary size. 0: by tokenizer (256 for bytes). Required when tokenizer is none."));
};

template <>
struct Table<Data> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Data::kind, {.required = true, .max_length = 16, .values = "text|tokens|idx|cifar10"},
        "`text`: a file or folder of text. `tokens`: .bin files of 16-bit tokens. `idx`: images and "
        "labels in the format of MNIST, raw or .gz. `cifar10`: CIFAR-10, binary version. gpt reads text "
        "and tokens; mlp and cnn read idx and cifar10."),
      F("path", &Data::path, {.required = true, .max_length = 4096}, "File or folder on the workers."),
      F("validationPath", &Data::validationPath, {.max_length = 4096},
        "File or folder for validation; what of it is in `path` is not trained on. Empty: the files of "
        "`path` "
        "that are named val, valid, validation, dev or test, if there are some (text, tokens), a share of "
        "`path`, or the test files next to it (idx, cifar10)."),
      F("validationFraction", &Data::validationFraction,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 0.5},
        "Share of `path` for validation when no file is for it. 0: no validation."));
};

template <>
struct Table<Batch> {
  static constexpr auto kFields = std::tuple(
      F("samplesPerStep", &Batch::samplesPerStep, {.min = 1, .max = 1'048'576},
        "Samples per optimizer step of all workers together. A multiple of `microBatches`."),
      F("microBatches", &Batch::microBatches, {.min = 1, .max = 65536},
        "Logical micro-batches per step, distributed over the workers, so that results do not depend on "
        "the number of workers. At least the maximum number of ranks."));
};

template <>
struct Table<Optimizer> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Optimizer::kind, {.max_length = 16, .values = "adamw|sgd"}, "Optimizer."),
      F("learningRate", &Optimizer::learningRate,
        {.max_length = 32, .form = Form::kDecimal, .at_most = 1e6, .above = 0},
        "Learning rate after warm-up."),
      F("schedule", &Optimizer::schedule, {.max_length = 16, .values = "constant|linear|cosine"},
        "How the rate decreases from `learningRate` towards `minLearningRate`, which it would reach in the "
        "step after the last one."),
      F("warmupSteps", &Optimizer::warmupSteps, {.min = 0, .max = kMaxSteps},
        "Steps over which the rate rises from 0."),
      F("minLearningRate", &Optimizer::minLearningRate,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6},
        "Learning rate that linear and cosine approach. At most `learningRate`."),
      F("weightDecay", &Optimizer::weightDecay,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6},
        "Weight decay of matrices and embeddings; biases and the parameters of norms have none. adamw: "
        "decoupled, each step multiplies the weight by 1 - rate x decay. sgd: decay x weight is added to the "
        "gradient, after clipping and before momentum, as in PyTorch."),
      F("momentum", &Optimizer::momentum,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1}, "sgd: momentum."),
      F("beta1", &Optimizer::beta1, {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1},
        "adamw: decay of the first moment."),
      F("beta2", &Optimizer::beta2, {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1},
        "adamw: decay of the second moment."),
      F("epsilon", &Optimizer::epsilon, {.max_length = 32, .form = Form::kDecimal, .at_most = 1, .above = 0},
        "adamw: term added to the denominator."),
      F("clipNorm", &Optimizer::clipNorm,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6},
        "Maximum global gradient norm; larger gradients are scaled down to it. 0: no clipping."));
};

template <>
struct Table<Training> {
  static constexpr auto kFields = std::tuple(
      F("model", &Training::model, {.required = true, .change = Change::kNever}, "Model to train."),
      F("data", &Training::data, {.required = true}, "Training and validation data."),
      F("batch", &Training::batch, {}, "Batch size."),
      F("optimizer", &Training::optimizer, {}, "Optimizer and learning rate."),
      F("steps", &Training::steps, {.min = 0, .max = kMaxSteps},
        "Number of optimizer steps. Exactly one of `steps` and `epochs` is given."),
      F("epochs", &Training::epochs, {.min = 0, .max = 1'000'000},
        "Number of passes over the training data."),
      F("device", &Training::device, {.max_length = 16, .values = "auto|cpu|cuda"},
        "Device that computes. `auto`: a GPU if the worker has one, otherwise the CPU. All workers of a job "
        "must use the same kind of device."),
      F("precision", &Training::precision, {.max_length = 16, .values = "fp32|bf16"},
        "Arithmetic of matrix products. `bf16` keeps fp32 master weights, moments and gradients. On a CPU it "
        "rounds only the operands of products, and a CPU without AVX512_BF16 or AMX multiplies the rounded "
        "operands as fp32, which is slower. On a GPU activations and their gradients, with the residual "
        "stream, are also stored as bf16."),
      F("numerics", &Training::numerics, {.max_length = 16, .values = "exact|exact64|fast"},
        "`exact`: the weights are bit-identical for every number of workers and after every failure. "
        "`exact64`: as `exact`, with sums of 64 bits instead of 32, for thousands of micro-batches or for "
        "gradients with spikes; twice the bytes to exchange. `fast`: plain floating-point sums."),
      F("seed", &Training::seed, {.min = 0, .max = kMaxSafeInteger, .change = Change::kNever},
        "Seed of the initial weights and of the order of the data."),
      F("validateEverySteps", &Training::validateEverySteps, {.min = 0, .max = kMaxSteps},
        "Number of steps between two validations. 0: only at the end."),
      F("validateSamples", &Training::validateSamples, {.min = 0, .max = kMaxSteps},
        "Samples of each validation, evenly spaced in the validation data. 0: all."));
};

}  // namespace ringmaster::api
