// SPDX-License-Identifier: Apache-2.0

// Aborts from a thread that does not own the fabric. Run it under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "worker/fabric/fabric.h"

namespace ringmaster::fabric {
namespace {

FabricOptions Options() {
  FabricOptions options;
  options.transport = "shm";
  options.aborter = std::make_shared<Aborter>();
  return options;
}

// The trainer's channel thread aborts generations while the main thread destroys the fabric.
TEST(Aborter, MayAbortWhileTheFabricIsDestroyed) {
  const FabricOptions options = Options();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> aborts{0};
  std::thread channel([&] {
    while (!stop) options.aborter->Abort(++aborts);
  });
  for (int i = 0; i < 50; ++i) {
    const uint64_t before = aborts;
    const auto fabric = Fabric::Create(options);
    EXPECT_TRUE(fabric.ok());
    while (aborts < before + 3) std::this_thread::yield();
  }
  stop = true;
  channel.join();
}

TEST(Aborter, RemembersAnAbortForTheFabricToCome) {
  const FabricOptions options = Options();
  options.aborter->Abort(7);
  const auto fabric = Fabric::Create(options);
  ASSERT_TRUE(fabric.ok());
  const auto aborted = (*fabric)->Connect({7, 0, {(*fabric)->Address()}});
  ASSERT_FALSE(aborted.ok());
  EXPECT_EQ(aborted.error().code, Code::kCancelled);
  EXPECT_TRUE((*fabric)->Connect({8, 0, {(*fabric)->Address()}}).ok());
}

}  // namespace
}  // namespace ringmaster::fabric
