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
        "What is trained."),
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
        "gpt: how many tokens there are. 0: by tokenizer (256 for bytes); needed when tokenizer is none."));
};

template <>
struct Table<Data> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Data::kind, {.required = true, .max_length = 16, .values = "text|tokens|idx|cifar10"},
        "`text`: a file or folder of text. `tokens`: .bin files of 16-bit tokens. `idx`: images and "
        "labels in the layout of MNIST, raw or .gz. `cifar10`: CIFAR-10 binary version. gpt reads text "
        "and tokens, mlp and cnn read idx and cifar10."),
      F("path", &Data::path, {.required = true, .max_length = 4096},
        "File or folder, as the workers see it."),
      F("validationPath", &Data::validationPath, {.max_length = 4096},
        "File or folder to validate on. Empty: a share of `path` (text, tokens) or the test files beside it "
        "(idx, "
        "cifar10)."),
      F("validationFraction", &Data::validationFraction,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 0.5},
        "The share of `path` kept for validation when `validationPath` is empty."));
};

template <>
struct Table<Batch> {
  static constexpr auto kFields =
      std::tuple(F("samplesPerStep", &Batch::samplesPerStep, {.min = 1, .max = 1'048'576},
                   "Samples per optimizer step, over all workers. A multiple of `microBatches`."),
                 F("microBatches", &Batch::microBatches, {.min = 1, .max = 65536},
                   "Logical micro-batches per step. They are dealt to the workers, so that results do not "
                   "depend on how many "
                   "workers there are; at least one for each rank of the largest world."));
};

template <>
struct Table<Optimizer> {
  static constexpr auto kFields = std::tuple(
      F("kind", &Optimizer::kind, {.max_length = 16, .values = "adamw|sgd"}, "The update rule."),
      F("learningRate", &Optimizer::learningRate,
        {.max_length = 32, .form = Form::kDecimal, .at_most = 1e6, .above = 0}, "The rate after warm-up."),
      F("schedule", &Optimizer::schedule, {.max_length = 16, .values = "constant|linear|cosine"},
        "How the rate falls from `learningRate` to `minLearningRate` between warm-up and the last step."),
      F("warmupSteps", &Optimizer::warmupSteps, {.min = 0, .max = kMaxSteps},
        "Steps over which the rate rises from 0."),
      F("minLearningRate", &Optimizer::minLearningRate,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6},
        "Where linear and cosine end. At most `learningRate`."),
      F("weightDecay", &Optimizer::weightDecay,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6}, "Decoupled weight decay."),
      F("momentum", &Optimizer::momentum,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1}, "sgd."),
      F("beta1", &Optimizer::beta1, {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1},
        "adamw."),
      F("beta2", &Optimizer::beta2, {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .below = 1},
        "adamw."),
      F("epsilon", &Optimizer::epsilon, {.max_length = 32, .form = Form::kDecimal, .at_most = 1, .above = 0},
        "adamw."),
      F("clipNorm", &Optimizer::clipNorm,
        {.max_length = 32, .form = Form::kDecimal, .at_least = 0, .at_most = 1e6},
        "Largest global gradient norm; larger gradients are scaled down to it. 0: no clipping."));
};

template <>
struct Table<Training> {
  static constexpr auto kFields = std::tuple(
      F("model", &Training::model, {.required = true, .change = Change::kNever}, "The model."),
      F("data", &Training::data, {.required = true}, "What it learns from."),
      F("batch", &Training::batch, {}, "How much of it per step."),
      F("optimizer", &Training::optimizer, {}, "How it learns."),
      F("steps", &Training::steps, {.min = 0, .max = kMaxSteps},
        "Optimizer steps to take. Exactly one of `steps` and `epochs` is given."),
      F("epochs", &Training::epochs, {.min = 0, .max = 1'000'000}, "Passes over the training data."),
      F("device", &Training::device, {.max_length = 16, .values = "auto|cpu|cuda"},
        "What computes. `auto`: a GPU where the worker sees one, else the CPU. All workers of a job "
        "compute on one kind of device."),
      F("precision", &Training::precision, {.max_length = 16, .values = "fp32|bf16"},
        "Arithmetic of matrix products. bf16 keeps fp32 master weights, and needs a device that has it."),
      F("numerics", &Training::numerics, {.max_length = 16, .values = "exact|fast"},
        "`exact`: the same bits for every number of workers, whatever fails on the way. `fast`: plain "
        "floating-point sums."),
      F("seed", &Training::seed, {.min = 0, .max = kMaxSafeInteger, .change = Change::kNever},
        "Initial weights and the order of the data."),
      F("validateEverySteps", &Training::validateEverySteps, {.min = 0, .max = kMaxSteps},
        "How often to validate. 0: only at the end."));
};

}  // namespace ringmaster::api
