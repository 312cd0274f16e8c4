// SPDX-License-Identifier: Apache-2.0

// MicroBatchReader reads micro-batches ahead on its own thread, in the order in which they will be used, so
// that slow storage delays a step only when it is slower than training on average. Memory is bounded: at most
// Options::memory bytes of micro-batches are ready, or two micro-batches if these are larger.
//
// The reader repeats a read that failed with kUnavailable, with growing pauses: a network file system may
// fail for a moment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"

namespace ringmaster::trainer {

// The samples of one micro-batch: positions [begin, end) of an epoch in its shuffled order, or indices of
// validation samples in their own order.
struct Window {
  data::Split split = data::Split::kTrain;
  int64_t epoch = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Window&) const = default;
};

// Returns the next window at each call; nothing at the end.
using WindowSequence = std::function<std::optional<Window>()>;

// The windows of micro-batches [first, end) of each step, from the step `samples` on. Value type.
class TrainingWindows {
 public:
  struct Plan {
    int64_t samples_per_step = 0;
    int micro_batches = 0;
    int64_t epoch_size = 0;
    int64_t steps = 0;  // that remain
    data::StepSamples samples{};
    int first = 0;
    int end = 0;
  };
  explicit TrainingWindows(const Plan& plan) : plan_(plan), next_(plan.first) {}
  std::optional<Window> operator()();

 private:
  Plan plan_;
  int next_;  // micro-batch
};

class MicroBatchReader {
 public:
  struct Options {
    uint64_t seed = 0;              // of the order of training samples
    int max_samples = 0;            // of a micro-batch
    int64_t validation_stride = 1;  // position p of the validation split is sample p * validation_stride
    size_t memory = size_t{8} << 20;
    Duration patience = seconds(120);  // how long a failing read is repeated
    Duration first_pause = milliseconds(100);
  };

  // REQUIRES: `dataset` outlives the reader.
  MicroBatchReader(const data::Dataset& dataset, const Options& options);
  // Waits for a read in progress.
  ~MicroBatchReader();
  MicroBatchReader(const MicroBatchReader&) = delete;
  MicroBatchReader& operator=(const MicroBatchReader&) = delete;

  // Forgets the present sequence and reads `sequence`. Ends the life of the last micro-batch.
  void Start(WindowSequence sequence);

  // Returns the next micro-batch of the sequence. Its memory is valid until the next call. While this waits,
  // `page` shows it. REQUIRES: the sequence has another window, and the last call did not fail. Errors:
  // kCancelled when *cancel is set; kInvalid when the data is wrong, so that the job cannot go on; kGone when
  // the storage still fails after Options::patience. `page` may be null.
  Result<engine::Batch> Next(const std::atomic<bool>* cancel, agent::TrainerPage* page);

 private:
  struct Buffer {
    std::vector<int64_t> indices;
    std::vector<int32_t> tokens;
    std::vector<float> images;
    std::vector<int32_t> targets;
  };
  struct Ready {
    size_t buffer = 0;
    Result<engine::Batch> batch;
  };

  void Run();
  Result<engine::Batch> Read(const Window& window, Buffer* buffer);
  // Reads until it succeeds, the storage has failed for too long, or the sequence is no longer wanted.
  Result<engine::Batch> ReadPatiently(const Window& window, uint64_t sequence, Buffer* buffer);
  // Waits up to `pause`. Returns false when the sequence is no longer wanted.
  bool Pause(Duration pause, uint64_t sequence);

  const data::Dataset& dataset_;
  const Options options_;
  std::vector<Buffer> buffers_;
  Mutex mutex_;
  CondVar wanted_;  // for the thread: buffers are free, or the sequence changed
  CondVar ready_changed_;
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  uint64_t sequence_number_ RM_GUARDED_BY(mutex_) = 0;
  WindowSequence sequence_ RM_GUARDED_BY(mutex_);  // empty: nothing to read
  bool reading_ RM_GUARDED_BY(mutex_) = false;
  std::deque<Ready> ready_ RM_GUARDED_BY(mutex_);
  std::vector<size_t> free_ RM_GUARDED_BY(mutex_);
  std::optional<size_t> lent_;  // the buffer of the last micro-batch
  std::thread thread_;
};

}  // namespace ringmaster::trainer
