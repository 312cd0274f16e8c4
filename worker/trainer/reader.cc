// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/reader.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::trainer {
namespace {

constexpr size_t kMaxBuffers = 256;
constexpr Duration kLongestPause = seconds(5);
// How often a waiting step looks whether its generation has ended: that is a flag without a notification.
constexpr Duration kCancelPeriod = milliseconds(5);
// How often a step that cannot be cancelled looks whether a comparison of the data makes progress.
constexpr Duration kProgressPeriod = milliseconds(100);

template <class T>
std::span<T> FirstOf(std::vector<T>& values, size_t count) {
  return std::span(values).first(count);
}

size_t Numbers(const data::Shape& shape) {
  return static_cast<size_t>(shape.tokens ? shape.context : shape.channels * shape.height * shape.width);
}

}  // namespace

std::optional<Window> TrainingWindows::operator()() {
  if (plan_.steps == 0 || plan_.first == plan_.end) return std::nullopt;
  const data::Slice slice =
      data::MicroBatch(plan_.samples, plan_.samples_per_step, plan_.micro_batches, next_);
  const Window window{.split = data::Split::kTrain,
                      .epoch = plan_.samples.epoch,
                      .begin = plan_.samples.position + slice.begin,
                      .end = plan_.samples.position + slice.end};
  if (++next_ == plan_.end) {
    next_ = plan_.first;
    --plan_.steps;
    const data::Cursor cursor{plan_.samples.epoch, plan_.samples.position};
    plan_.samples = data::NextStep(data::Advance(cursor, plan_.samples, plan_.epoch_size),
                                   plan_.samples_per_step, plan_.epoch_size);
  }
  return window;
}

MicroBatchReader::MicroBatchReader(const data::Dataset& dataset, const Options& options)
    : dataset_(dataset), options_(options) {
  const data::Shape& shape = dataset.shape();
  const auto samples = static_cast<size_t>(options.max_samples);
  const size_t numbers = samples * Numbers(shape);
  const size_t bytes = sizeof(float) * numbers + sizeof(int32_t) * (shape.tokens ? numbers : samples);
  const size_t count = std::clamp(options.memory / std::max<size_t>(bytes, 1), size_t{2}, kMaxBuffers);
  buffers_.resize(count);
  free_.resize(count);
  std::iota(free_.begin(), free_.end(), size_t{0});
  thread_ = std::thread([this] { Run(); });
}

MicroBatchReader::~MicroBatchReader() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wanted_.NotifyAll();
  // The comparison of a large file would take minutes. One for another reader is interrupted, too, which
  // repeats its read.
  data::Comparison* const comparison = dataset_.comparison();
  if (comparison != nullptr) comparison->interrupts.fetch_add(1, std::memory_order_relaxed);
  thread_.join();
  if (comparison != nullptr) comparison->interrupts.fetch_sub(1, std::memory_order_relaxed);
}

void MicroBatchReader::Start(WindowSequence sequence) {
  {
    const MutexLock lock(mutex_);
    ++sequence_number_;
    sequence_ = std::move(sequence);
    for (const Ready& ready : ready_) free_.push_back(ready.buffer);
    ready_.clear();
    if (lent_.has_value()) free_.push_back(*std::exchange(lent_, std::nullopt));
  }
  wanted_.NotifyAll();
}

Result<engine::Batch> MicroBatchReader::Next(const std::atomic<bool>* cancel, agent::TrainerPage* page) {
  MutexLock lock(mutex_);
  if (lent_.has_value()) {
    free_.push_back(*std::exchange(lent_, std::nullopt));
    // The thread fills many buffers in one go: waking it for each would cost more than most reads.
    if (free_.size() * 2 >= buffers_.size()) wanted_.NotifyAll();
  }
  if (ready_.empty()) {
    const Waiting waiting(page, agent::Activity::kReading);
    const data::Comparison* const comparison = page != nullptr ? dataset_.comparison() : nullptr;
    const Duration period = cancel != nullptr ? kCancelPeriod : kProgressPeriod;
    int64_t compared = comparison != nullptr ? comparison->bytes.load(std::memory_order_relaxed) : 0;
    while (ready_.empty()) {
      CHECK(reading_ || sequence_, "the sequence of micro-batches has ended");
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
        return Error{Code::kCancelled, "the generation ended while a step waited for data"};
      ready_changed_.WaitUntil(lock, cancel != nullptr || comparison != nullptr ? Now() + period : kNever);
      // The comparison of a large file takes longer than storage may be silent, and is no hang.
      if (comparison != nullptr &&
          std::exchange(compared, comparison->bytes.load(std::memory_order_relaxed)) != compared)
        page->Heartbeat();
    }
  }
  Ready next = std::move(ready_.front());
  ready_.pop_front();
  lent_ = next.buffer;
  return std::move(next.batch);
}

void MicroBatchReader::Run() {
  MutexLock lock(mutex_);
  while (!stop_) {
    std::optional<Window> window;
    if (!free_.empty() && sequence_) {
      window = sequence_();
      if (!window.has_value()) {
        sequence_ = nullptr;
        ready_changed_.NotifyAll();
      }
    }
    if (!window.has_value()) {
      const uint64_t sequence = sequence_number_;
      while (!stop_ && sequence == sequence_number_ && (!sequence_ || free_.size() * 2 < buffers_.size()))
        wanted_.Wait(lock);
      continue;
    }
    const size_t buffer = free_.back();
    free_.pop_back();
    reading_ = true;
    const uint64_t sequence = sequence_number_;
    lock.Unlock();
    Result<engine::Batch> batch = ReadPatiently(*window, sequence, &buffers_[buffer]);
    lock.Lock();
    reading_ = false;
    if (sequence != sequence_number_) {
      free_.push_back(buffer);
      continue;
    }
    if (!batch.ok()) sequence_ = nullptr;
    ready_.push_back(Ready{buffer, std::move(batch)});
    ready_changed_.NotifyAll();
  }
}

Result<engine::Batch> MicroBatchReader::ReadPatiently(const Window& window, uint64_t sequence,
                                                      Buffer* buffer) {
  const Time give_up = Now() + options_.patience;
  Duration pause = options_.first_pause;
  bool failed = false;
  while (true) {
    Result<engine::Batch> batch = Read(window, buffer);
    if (batch.ok()) {
      if (failed) log::Info("data: the storage can be read again");
      return batch;
    }
    const Error& error = batch.error();
    // The input is wrong. Restarts do not help, so the job must not repeat them.
    if (error.code == Code::kCorrupt) return Error{Code::kInvalid, error.message};
    if (error.code != Code::kUnavailable) return batch;
    if (Now() >= give_up) return Error{Code::kGone, "data: " + error.message};
    if (!failed) log::Warn("data: {}; trying again for {} s", error.message, ToSeconds(options_.patience));
    failed = true;
    if (!Pause(pause, sequence)) return batch;
    pause = std::min(pause * 2, kLongestPause);
  }
}

bool MicroBatchReader::Pause(Duration pause, uint64_t sequence) {
  const Time end = Now() + pause;
  MutexLock lock(mutex_);
  while (!stop_ && sequence == sequence_number_) {
    if (!wanted_.WaitUntil(lock, end)) return true;
  }
  return false;
}

Result<engine::Batch> MicroBatchReader::Read(const Window& window, Buffer* buffer) {
  const data::Shape& shape = dataset_.shape();
  const auto samples = static_cast<size_t>(window.end - window.begin);
  CHECK(samples <= static_cast<size_t>(options_.max_samples), "{} samples in a micro-batch of {}", samples,
        options_.max_samples);
  const int64_t size = dataset_.size(window.split);
  buffer->indices.clear();
  for (int64_t p = window.begin; p < window.end; ++p)
    buffer->indices.push_back(window.split == data::Split::kTrain
                                  ? data::Permute(options_.seed, window.epoch, size, p)
                                  : p * options_.validation_stride);
  const size_t numbers = samples * Numbers(shape);
  data::Buffers out;
  const auto resize = [](auto* values, size_t count) {
    if (values->size() < count) values->resize(count);
    return FirstOf(*values, count);
  };
  if (shape.tokens) {
    out.tokens = resize(&buffer->tokens, numbers);
    out.targets = resize(&buffer->targets, numbers);
  } else {
    out.images = resize(&buffer->images, numbers);
    out.targets = resize(&buffer->targets, samples);
  }
  if (samples > 0) RM_TRY(dataset_.Read(window.split, buffer->indices, out));
  engine::Batch batch;
  batch.samples = static_cast<int>(samples);
  batch.tokens = out.tokens;
  batch.images = out.images;
  batch.targets = out.targets;
  return batch;
}

}  // namespace ringmaster::trainer
