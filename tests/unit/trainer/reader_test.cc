// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/rng.h"
#include "worker/agent/trainer/shared_page_memory.h"

namespace ringmaster::trainer {
namespace {

// Sample i has the tokens i and i + 1. Reads can be held up and can fail.
class Tape final : public data::Dataset {
 public:
  explicit Tape(int64_t size) : size_(size) {}
  const data::Shape& shape() const override { return shape_; }
  int64_t size(data::Split) const override { return size_; }
  uint64_t Fingerprint() const override { return 0; }
  Result<data::ContentHash> HashContent(const data::ContentHashOptions& /*options*/) const override {
    return data::ContentHash{};
  }
  Status Read(data::Split, std::span<const int64_t> indices, const data::Buffers& out) const override {
    {
      MutexLock lock(mutex_);
      ++reads_;
      changed_.NotifyAll();
      while (blocked_) changed_.Wait(lock);
      if (failures_ > 0) {
        --failures_;
        return error_;
      }
    }
    for (size_t i = 0; i < indices.size(); ++i) {
      out.tokens[2 * i] = static_cast<int32_t>(indices[i]);
      out.tokens[2 * i + 1] = static_cast<int32_t>(indices[i] + 1);
      out.targets[2 * i] = out.targets[2 * i + 1] = -static_cast<int32_t>(indices[i]);
    }
    return Ok();
  }
  void Block(bool blocked) {
    const MutexLock lock(mutex_);
    blocked_ = blocked;
    changed_.NotifyAll();
  }
  void Fail(int times, Error error) {
    const MutexLock lock(mutex_);
    failures_ = times;
    error_ = std::move(error);
  }
  void AwaitReads(int count) const {
    MutexLock lock(mutex_);
    while (reads_ < count) changed_.Wait(lock);
  }
  int reads() const {
    const MutexLock lock(mutex_);
    return reads_;
  }

 private:
  const int64_t size_;
  const data::Shape shape_{.tokens = true, .context = 2};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int reads_ RM_GUARDED_BY(mutex_) = 0;
  mutable int failures_ RM_GUARDED_BY(mutex_) = 0;
  Error error_ RM_GUARDED_BY(mutex_);
  bool blocked_ RM_GUARDED_BY(mutex_) = false;
};

// Windows of one validation sample each.
WindowSequence Singles(int64_t from, int64_t to) {
  return [from, to]() mutable -> std::optional<Window> {
    if (from == to) return std::nullopt;
    const Window window{.split = data::Split::kValidation, .begin = from, .end = from + 1};
    ++from;
    return window;
  };
}

int32_t First(Result<engine::Batch> batch) {
  if (!batch.ok()) {
    ADD_FAILURE() << batch.error().message;
    return -1;
  }
  return batch->tokens[0];
}

// A text's last chapter does not stand for all of it.
TEST(MicroBatchReader, ValidationSamplesAreEvenlySpaced) {
  const Tape tape(30);
  MicroBatchReader reader(tape, {.max_samples = 1, .validation_stride = 4});
  reader.Start(Singles(0, 7));
  for (int32_t p = 0; p < 7; ++p) EXPECT_EQ(First(reader.Next(nullptr, nullptr)), 4 * p);
}

TEST(TrainingWindows, AreTheMicroBatchesOfOneRankInTheOrderOfTheSteps) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SplitMix64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random.Below(n)); };
    const int micro_batches = 1 + static_cast<int>(below(8));
    const int64_t per_step = micro_batches * (1 + below(5));
    const int64_t size = 1 + below(60);
    const int first = static_cast<int>(below(static_cast<uint64_t>(micro_batches)));
    const int end = first + static_cast<int>(below(static_cast<uint64_t>(micro_batches - first + 1)));
    data::Cursor cursor{below(3), below(static_cast<uint64_t>(size))};
    const int64_t steps = 1 + below(9);
    TrainingWindows windows({.samples_per_step = per_step,
                             .micro_batches = micro_batches,
                             .epoch_size = size,
                             .steps = steps,
                             .samples = data::NextStep(cursor, per_step, size),
                             .first = first,
                             .end = end});
    for (int64_t step = 0; step < steps; ++step) {
      const data::StepSamples samples = data::NextStep(cursor, per_step, size);
      for (int v = first; v < end; ++v) {
        const data::Slice slice = data::MicroBatch(samples, per_step, micro_batches, v);
        ASSERT_EQ(windows(), (Window{data::Split::kTrain, samples.epoch, samples.position + slice.begin,
                                     samples.position + slice.end}))
            << "seed " << seed;
      }
      cursor = data::Advance(cursor, samples, size);
    }
    ASSERT_EQ(windows(), std::nullopt) << "seed " << seed;
  }
}

TEST(Reader, ReadsShuffledTrainingSamples) {
  const Tape tape(10);
  MicroBatchReader reader(tape, {.seed = 5, .max_samples = 3});
  reader.Start(TrainingWindows({.samples_per_step = 3,
                                .micro_batches = 1,
                                .epoch_size = 10,
                                .steps = 8,
                                .samples = {.epoch = 0, .position = 0, .count = 3},
                                .end = 1}));
  for (int64_t step = 0; step < 8; ++step) {
    const auto batch = reader.Next(nullptr, nullptr);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    ASSERT_EQ(batch->samples, step % 4 == 3 ? 1 : 3);
    ASSERT_EQ(batch->tokens.size(), 2 * static_cast<size_t>(batch->samples));
    for (int i = 0; i < batch->samples; ++i) {
      const int64_t index = data::Permute(5, step / 4, 10, 3 * (step % 4) + i);
      EXPECT_EQ(batch->tokens[2 * static_cast<size_t>(i)], index);
      EXPECT_EQ(batch->targets[2 * static_cast<size_t>(i)], -index);
    }
  }
}

TEST(Reader, ReadsAheadWithinItsMemory) {
  const Tape tape(1000);
  // Sixteen bytes a sample: four buffers.
  MicroBatchReader reader(tape, {.max_samples = 1, .memory = 64});
  reader.Start(Singles(0, 1000));
  tape.AwaitReads(4);
  for (int32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(First(reader.Next(nullptr, nullptr)), i);
    ASSERT_LE(tape.reads(), i + 4);
  }
  // Memory below one micro-batch: two buffers.
  MicroBatchReader small(tape, {.max_samples = 1, .memory = 1});
  small.Start(Singles(0, 50));
  for (int32_t i = 0; i < 50; ++i) ASSERT_EQ(First(small.Next(nullptr, nullptr)), i);
}

TEST(Reader, AnotherSequenceReplacesTheFirst) {
  const Tape tape(1000);
  MicroBatchReader reader(tape, {.max_samples = 1, .memory = 64});
  SplitMix64 random(1);
  for (int32_t round = 0; round < 300; ++round) {
    const int32_t from = round;
    const auto to = static_cast<int32_t>(from + 1 + static_cast<int32_t>(random.Below(9)));
    reader.Start(Singles(from, to));
    const auto taken = static_cast<int32_t>(random.Below(static_cast<uint64_t>(to - from + 1)));
    for (int32_t i = 0; i < taken; ++i) ASSERT_EQ(First(reader.Next(nullptr, nullptr)), from + i);
  }
}

TEST(Reader, ASlowReadShowsThatTheStepWaitsAndCanBeCancelled) {
  Tape tape(100);
  auto page = agent::SharedPageMemory::Create().value();
  auto trainer_page = agent::TrainerPage::Attach(page.fd()).value();
  trainer_page.SetActivity(agent::Activity::kComputing);
  const auto activity = [&page] { return static_cast<agent::Activity>(page.page().activity.load()); };
  MicroBatchReader reader(tape, {.max_samples = 1});
  tape.Block(true);
  reader.Start(Singles(0, 10));
  tape.AwaitReads(1);
  std::atomic<bool> cancel{false};
  std::thread watcher([&] {
    while (activity() != agent::Activity::kReading) std::this_thread::yield();
    cancel = true;
  });
  const auto cancelled = reader.Next(&cancel, &trainer_page);
  watcher.join();
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, Code::kCancelled);
  EXPECT_EQ(activity(), agent::Activity::kComputing);
  // The next generation reads something else while the old read still hangs.
  reader.Start(Singles(50, 60));
  tape.Block(false);
  EXPECT_EQ(First(reader.Next(nullptr, &trainer_page)), 50);
}

TEST(Reader, RepeatsReadsOfStorageThatFailsForAMoment) {
  Tape tape(10);
  MicroBatchReader reader(tape, {.max_samples = 1, .first_pause = milliseconds(1)});
  tape.Fail(4, {Code::kUnavailable, "/data/x: Input/output error"});
  reader.Start(Singles(3, 5));
  EXPECT_EQ(First(reader.Next(nullptr, nullptr)), 3);
  EXPECT_GE(tape.reads(), 5);
  EXPECT_EQ(First(reader.Next(nullptr, nullptr)), 4);
}

TEST(Reader, NamesTheErrorsThatDoNotPass) {
  Tape tape(10);
  MicroBatchReader reader(tape,
                          {.max_samples = 1, .patience = milliseconds(5), .first_pause = milliseconds(1)});
  const auto failure = [&](const Error& error) -> Error {
    tape.Fail(1'000'000, error);
    reader.Start(Singles(0, 1));
    const auto batch = reader.Next(nullptr, nullptr);
    if (batch.ok()) {
      ADD_FAILURE();
      return {};
    }
    return batch.error();
  };
  EXPECT_EQ(failure({Code::kUnavailable, "/data/x: Input/output error"}),
            (Error{Code::kGone, "data: /data/x: Input/output error"}));
  EXPECT_EQ(failure({Code::kCorrupt, "/data/x: was truncated"}),
            (Error{Code::kInvalid, "/data/x: was truncated"}));
  EXPECT_EQ(failure({Code::kInvalid, "/data/x: has token 7"}),
            (Error{Code::kInvalid, "/data/x: has token 7"}));
  // A new sequence starts again.
  tape.Fail(0, {});
  reader.Start(Singles(6, 7));
  EXPECT_EQ(First(reader.Next(nullptr, nullptr)), 6);
}

TEST(Reader, EndsWhileAReadIsRepeated) {
  Tape tape(10);
  tape.Fail(1'000'000, {Code::kUnavailable, "/data/x: Input/output error"});
  MicroBatchReader reader(tape, {.max_samples = 1, .first_pause = seconds(60)});
  reader.Start(Singles(0, 1));
  tape.AwaitReads(1);
}

}  // namespace
}  // namespace ringmaster::trainer
