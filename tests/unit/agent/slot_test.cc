// SPDX-License-Identifier: Apache-2.0

// The page between agent and trainer, from both sides.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/agent/rig.h"
#include "worker/agent/sentinel.h"
#include "worker/agent/slot_page.h"
#include "worker/agent/trainer_side.h"

namespace ringmaster::agent {
namespace {

// Runs `body` in a child and gives its exit code.
int InChild(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Slot, TheAgentSeesWhatTheTrainerPublishes) {
  auto page = SlotPage::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->slot().ready.load(), 0u);
  EXPECT_EQ(InChild([&] {
              auto slot = TrainerSlot::Attach(page->fd());
              if (!slot.ok()) return 1;
              slot->SetActivity(Activity::kSaving);
              slot->SetGeneration((uint64_t{3} << 32) | 9);
              slot->SetStep(41);
              for (int i = 0; i < 5; ++i) slot->Heartbeat();
              return 0;
            }),
            0);
  EXPECT_EQ(page->slot().ready.load(), 1u);
  EXPECT_EQ(page->slot().activity.load(), static_cast<uint32_t>(Activity::kSaving));
  EXPECT_EQ(page->slot().generation.load(), (uint64_t{3} << 32) | 9);
  EXPECT_EQ(page->slot().step.load(), 41);
  EXPECT_EQ(page->slot().heartbeat.load(), 5u);
}

TEST(Slot, RefusesWhatIsNoPageOfOurs) {
  const Fd small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_EQ(TrainerSlot::Attach(small.get()).error().code, Code::kInvalid);
  ASSERT_EQ(::ftruncate(small.get(), 4096), 0);
  EXPECT_EQ(TrainerSlot::Attach(small.get()).error().code, Code::kInvalid) << "no magic";
  EXPECT_FALSE(TrainerSlot::Attach(-1).ok());
}

TEST(Slot, HasOneHolderOnly) {
  auto page = SlotPage::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(InChild([&] {
              auto first = TrainerSlot::Attach(page->fd());
              auto second = TrainerSlot::Attach(page->fd());
              return first.ok() && !second.ok() && second.error().code == Code::kConflict ? 0 : 1;
            }),
            0);
  // Its holder has died: nobody can take it up again as if nothing had happened.
  EXPECT_FALSE(TrainerSlot::Attach(page->fd()).ok());
}

TEST(Slot, OnlyTheMainThreadMayHoldIt) {
  auto page = SlotPage::Create();
  ASSERT_TRUE(page.ok());
  std::thread([&] { EXPECT_EQ(TrainerSlot::Attach(page->fd()).error().code, Code::kInternal); }).join();
}

TEST(Slot, CannotBeResized) {
  auto page = SlotPage::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_NE(::ftruncate(page->fd(), 0), 0);
}

TEST(Sentinel, TellsOfADeathThatCameBeforeIt) {
  auto page = SlotPage::Create();
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(InChild([&] { return TrainerSlot::Attach(page->fd()).ok() ? 0 : 1; }), 0);
  auto sentinel = Sentinel::Start(page->slot());
  ASSERT_TRUE(sentinel.ok());
  EXPECT_TRUE(WaitReadable((*sentinel)->event_fd()));
}

}  // namespace
}  // namespace ringmaster::agent
