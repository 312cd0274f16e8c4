// SPDX-License-Identifier: Apache-2.0

// Captured work, by emulation and on a GPU.
#include "worker/compute/cuda/runtime/graph.h"

#include <gtest/gtest.h>

#include "tests/cuda/runtime/with_device.h"

namespace ringmaster::cuda {
namespace {

class Graphs : public WithDevice<testing::Test> {};

TEST_F(Graphs, CapturedWorkRunsWhenLaunched) {
  const OwnedStream stream = OwnedStream::Create().value();
  const Buffer<int32_t> device = Uploaded<int32_t>(stream.get(), {1, 0, 0, 0});
  const Pinned<int32_t> to = Pinned<int32_t>::Create(4).value();
  const auto recorded = Graph::Record(stream.get(), [&] {
    CopyOnDevice(stream.get(), device.get() + 1, device.get(), 4);
    CopyToHost(stream.get(), to.get(), device.get(), 16);
    FillZero(stream.get(), device.get(), 4);
  });
  ASSERT_TRUE(recorded.ok()) << recorded.error().message;
  ASSERT_TRUE(Synchronize(stream.get()).ok());
  EXPECT_EQ(to.get()[0], 0) << "captured, not run";
  recorded->Launch(stream.get());
  ASSERT_TRUE(Synchronize(stream.get()).ok());
  EXPECT_EQ(to.get()[0], 1);
  EXPECT_EQ(to.get()[1], 1);
  recorded->Launch(stream.get());
  ASSERT_TRUE(Synchronize(stream.get()).ok());
  EXPECT_EQ(to.get()[0], 0) << "a launch reads the current contents of memory";
}

}  // namespace
}  // namespace ringmaster::cuda
