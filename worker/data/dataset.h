// SPDX-License-Identifier: Apache-2.0

// Samples by index, and the order in which they are taken. The state of reading is three numbers {seed,
// epoch, cursor}: the sample at global position p of an epoch is a keyed bijection of p, so who reads it, and
// how many readers there are, does not matter. The cursor moves only with a commit.
//
// Thread rule: const methods may be called from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

enum class Kind : uint8_t { kText, kTokens, kIdx, kCifar10 };
enum class Split : uint8_t { kTrain, kValidation };

struct Config {
  Kind kind = Kind::kText;
  std::string path;
  std::string validation_path;
  double validation_fraction = 0.05;
  int context = 128;     // text, tokens
  int vocabulary = 256;  // text, tokens: every token must be below; a higher one is refused at Open
};

// What a model must fit.
struct Shape {
  bool tokens = true;
  int context = 0;
  int channels = 0;
  int height = 0;
  int width = 0;
  int classes = 0;
  bool operator==(const Shape&) const = default;
};

// Where Read puts samples; sized by the caller for n samples. Token data: inputs and targets [n, context]
// (targets are the inputs shifted by one). Images: images [n, c, h, w] as (byte / 255 - mean) / deviation
// with constants of the data kind, and targets [n].
struct Buffers {
  std::span<int32_t> tokens{};
  std::span<float> images{};
  std::span<int32_t> targets{};
};

class Dataset {
 public:
  // Opens, checks and maps the data. Errors name path, reason and remedy: missing, empty, truncated, of the
  // wrong kind, a token beyond the vocabulary, too short for one sample.
  static Result<std::unique_ptr<Dataset>> Open(const Config& config);
  virtual ~Dataset() = default;

  virtual const Shape& shape() const = 0;
  virtual int64_t size(Split split) const = 0;  // samples; at least 1 for training
  virtual void Read(Split split, std::span<const int64_t> indices, const Buffers& out) const = 0;

  // Changes when the data's content or cut changes (sizes, names, sampled content): part of a run's
  // fingerprint.
  virtual uint64_t Fingerprint() const = 0;
};

// Bijection of [0, n): a Feistel network keyed by (seed, epoch), with cycle walking. O(1) memory.
int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position);

// Which samples step after step. Value type.
struct Cursor {
  int64_t epoch = 0;
  int64_t position = 0;  // samples of this epoch already committed
  bool operator==(const Cursor&) const = default;
};

// One step's samples: positions [position, position + count) of the epoch. The last step of an epoch may be
// short: count is what is left, nothing is padded or repeated.
struct StepSamples {
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t count = 0;
  bool operator==(const StepSamples&) const = default;
};

StepSamples NextStep(const Cursor& cursor, int64_t samples_per_step, int64_t epoch_size);
Cursor Advance(const Cursor& cursor, const StepSamples& taken, int64_t epoch_size);

// The slice of a step's positions that micro-batch v of V takes: fixed width samples_per_step / V, cut off at
// count (so late micro-batches of a short step are short or empty).
struct Slice {
  int64_t begin = 0;  // relative to StepSamples::position
  int64_t end = 0;
  bool operator==(const Slice&) const = default;
};
Slice MicroBatch(const StepSamples& step, int64_t samples_per_step, int micro_batches, int v);

// Steps in one epoch: ceil(epoch_size / samples_per_step).
int64_t StepsPerEpoch(int64_t epoch_size, int64_t samples_per_step);

}  // namespace ringmaster::data
