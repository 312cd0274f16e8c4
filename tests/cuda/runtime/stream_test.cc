// SPDX-License-Identifier: Apache-2.0

// Streams, events and copies of the emulation, which detects missing waits.
#include "worker/compute/cuda/runtime/stream.h"

#include <gtest/gtest.h>

#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/graph.h"
#include "worker/compute/cuda/runtime/memory.h"

namespace ringmaster::cuda {
namespace {

class Streams : public testing::Test {
 protected:
  OwnedStream stream_ = OwnedStream::Create().value();
  Buffer<int32_t> device_ = Buffer<int32_t>::Create(4).value();
  Pinned<int32_t> from_ = Pinned<int32_t>::Create(4).value();
  Pinned<int32_t> to_ = Pinned<int32_t>::Create(4).value();
};

TEST_F(Streams, CopyArrivesWhenAThreadWaits) {
  for (int i = 0; i < 4; ++i) from_.get()[i] = i + 1;
  CopyToDevice(stream_.get(), device_.get(), from_.get(), 16);
  CopyToHost(stream_.get(), to_.get(), device_.get(), 16);
  FillZero(stream_.get(), device_.get(), 16);
  EXPECT_EQ(to_.get()[3], 0) << "no thread has waited";
  ASSERT_TRUE(Synchronize(stream_.get()).ok());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(to_.get()[i], i + 1);
}

TEST_F(Streams, EventWaitsForEarlierWork) {
  from_.get()[0] = 5;
  CopyToDevice(stream_.get(), device_.get(), from_.get(), 4);
  CopyToHost(stream_.get(), to_.get(), device_.get(), 4);
  Event event = Event::Create().value();
  ASSERT_TRUE(event.Synchronize().ok()) << "nothing was recorded";
  EXPECT_EQ(to_.get()[0], 0);
  event.Record(stream_.get());
  CopyToHost(stream_.get(), to_.get() + 1, device_.get(), 4);
  ASSERT_TRUE(event.Synchronize().ok());
  EXPECT_EQ(to_.get()[0], 5);
  EXPECT_EQ(to_.get()[1], 0) << "after the event";
}

TEST_F(Streams, ForeignMemoryCanBePinned) {
  std::vector<int32_t> foreign(4, 7);
  PinnedRange range = PinnedRange::Create(foreign.data(), 16).value();
  CopyToDevice(stream_.get(), device_.get(), foreign.data(), 16);
  ASSERT_TRUE(Synchronize(stream_.get()).ok());
  EXPECT_EQ(device_.get()[3], 7);
}

using StreamsDeath = Streams;

TEST_F(StreamsDeath, CapturedWorkMustNotWait) {
  EXPECT_DEATH((void)Graph::Record(stream_.get(), [&] { (void)Synchronize(stream_.get()); }),
               "during a capture");
  EXPECT_DEATH((void)Graph::Record(stream_.get(), [&] { (void)Buffer<float>::Create(4); }),
               "during a capture");
}

TEST_F(StreamsDeath, HostMemoryMustNotChangeBeforeItIsCopied) {
  EXPECT_DEATH(
      {
        CopyToDevice(stream_.get(), device_.get(), from_.get(), 16);
        from_.get()[1] = 9;
        (void)Synchronize(stream_.get());
      },
      "host memory changed");
}

TEST_F(StreamsDeath, OnlyPinnedAndDeviceMemoryCanBeCopied) {
  int32_t stack[4] = {};
  EXPECT_DEATH(CopyToDevice(stream_.get(), device_.get(), stack, 16), "pinned memory");
  EXPECT_DEATH(CopyToHost(stream_.get(), to_.get(), device_.get() + 1, 16), "device memory");
}

}  // namespace
}  // namespace ringmaster::cuda
