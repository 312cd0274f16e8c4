// SPDX-License-Identifier: Apache-2.0

// Samples by index, and the order in which training takes them. The reading state is three numbers, {seed,
// epoch, cursor}: a keyed bijection maps position p of an epoch to a sample. The order therefore depends
// neither on the rank that reads a sample nor on the number of ranks. The cursor moves only with a commit.
//
// Thread-safe: several threads may call const methods.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_counter.h"

namespace ringmaster::data {

enum class Kind : uint8_t { kText, kTokens, kIdx, kCifar10 };
enum class Split : uint8_t { kTrain, kValidation };

struct Config {
  Kind kind = Kind::kText;
  std::string path;
  std::string validation_path;
  double validation_fraction = 0.05;
  int context = 128;     // text, tokens
  int vocabulary = 256;  // text, tokens: every token must be below it
};

// The shape of a sample, which the model must match.
struct Shape {
  bool tokens = true;
  int context = 0;
  int channels = 0;
  int height = 0;
  int width = 0;
  int classes = 0;
  bool operator==(const Shape&) const = default;
};

// The output of Read, sized by the caller for B samples.
// Tokens: tokens and targets (B, T); the targets are the tokens shifted by one.
// Images: images (B, C, H, W) as (byte / 255 - mean) / deviation, with constants of the data kind; targets
// (B).
struct Buffers {
  std::span<int32_t> tokens{};
  std::span<float> images{};
  std::span<int32_t> targets{};
};

// The comparison of files that were written or replaced since Open. Of large files it takes minutes, in which
// a Read returns nothing. Thread-safe.
struct Comparison {
  std::atomic<int64_t> bytes{0};   // compared so far, of all files: a sign of progress
  std::atomic<int> interrupts{0};  // while it is above 0, a comparison ends early, and Read with kUnavailable
};

struct ContentHashOptions {
  std::string cache_folder;  // of HashCache; empty: nothing is kept between processes
  std::string node;          // HashCache: where files that are not shared are
  // If the files that are not in memory have more bytes, they are not read, and the samples of Fingerprint
  // stand for them.
  uint64_t most_bytes = uint64_t{64} << 30;
  WorkCounter* counter = nullptr;             // counts bytes of files that are not in memory
  const std::atomic<bool>* cancel = nullptr;  // set: HashContent ends soon with kCancelled
};

// The result of HashContent.
struct ContentHash {
  uint64_t value = 0;
  uint64_t bytes_read = 0;  // of files that are not in memory and whose hash was not in the cache
  bool whole = true;        // false: samples stand for files that are not in memory
};

class Dataset {
 public:
  // Opens and checks the data. Errors name path, reason and remedy: data that is missing, empty, truncated,
  // of the wrong kind or too short for one sample. Tokens outside the vocabulary and labels out of range are
  // found in files held in memory and in the sampled pieces of others; Read finds the rest. `counter` counts
  // the files of tokens.
  static Result<std::unique_ptr<Dataset>> Open(const Config& config, WorkCounter* counter = nullptr);
  virtual ~Dataset() = default;

  virtual const Shape& shape() const = 0;
  virtual int64_t size(Split split) const = 0;  // number of samples; at least 1 for training
  // Errors: kUnavailable when the storage fails, which may pass; kCorrupt when a file was truncated or
  // replaced since Open; kInvalid for a token or label out of range.
  virtual Status Read(Split split, std::span<const int64_t> indices, const Buffers& out) const = 0;

  // Returns null if Read compares nothing.
  virtual Comparison* comparison() const { return nullptr; }

  // Returns what users should know of how the files were used: which were taken for validation.
  virtual std::vector<std::string> Notes() const { return {}; }

  // Identifies the data by sizes, sampled content and split, never by paths: members of one job may find
  // equal data under different paths. Part of a run's fingerprint and so of its checkpoints: the values never
  // change. It is known after Open, which reads little of a large file; a difference between the samples of
  // one is not in it, but in HashContent.
  virtual uint64_t Fingerprint() const = 0;

  // Identifies the data by split, sizes and the whole content, never by paths. Members of a job compare it;
  // no checkpoint contains it. Reads the files that are not in memory, unless the cache has their hashes or
  // they are too large: of a large data set this takes minutes. Errors: as Read; kCancelled.
  virtual Result<ContentHash> HashContent(const ContentHashOptions& options) const = 0;
};

// Bijection of [0, n): a Feistel network keyed by (seed, epoch), with cycle walking. O(1) memory.
int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position);

// The position in the sample order. Value type.
struct Cursor {
  int64_t epoch = 0;
  int64_t position = 0;  // samples of this epoch already committed
  bool operator==(const Cursor&) const = default;
};

// The samples of one step: positions [position, position + count) of the epoch. The last step of an epoch
// takes the remaining samples; none is padded or repeated.
struct StepSamples {
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t count = 0;
  bool operator==(const StepSamples&) const = default;
};

StepSamples NextStep(const Cursor& cursor, int64_t samples_per_step, int64_t epoch_size);
Cursor Advance(const Cursor& cursor, const StepSamples& taken, int64_t epoch_size);

// Returns the slice of a step's positions that micro-batch v takes. Its width is samples_per_step /
// micro_batches; the last slices of a short step are shorter or empty.
struct Slice {
  int64_t begin = 0;  // relative to StepSamples::position
  int64_t end = 0;
  bool operator==(const Slice&) const = default;
};
Slice MicroBatch(const StepSamples& step, int64_t samples_per_step, int micro_batches, int v);

// Returns the number of steps in an epoch: ceil(epoch_size / samples_per_step).
int64_t StepsPerEpoch(int64_t epoch_size, int64_t samples_per_step);

}  // namespace ringmaster::data
