// SPDX-License-Identifier: Apache-2.0

// Tests the page shared by agent and trainer from both sides.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/agent/rig.h"
#include "worker/agent/trainer/death_watch.h"
#include "worker/agent/trainer/shared_page_memory.h"
#include "worker/agent/trainer/trainer_page.h"

namespace ringmaster::agent {
namespace {

// Runs `body` in a child process and returns its exit code.
int InChild(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(SharedPage, TheAgentSeesWhatTheTrainerPublishes) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->page().ready.load(), 0u);
  EXPECT_EQ(InChild([&] {
              auto trainer_page = TrainerPage::Attach(page->fd());
              if (!trainer_page.ok()) return 1;
              trainer_page->SetActivity(Activity::kSaving);
              trainer_page->SetGeneration((uint64_t{3} << 32) | 9);
              trainer_page->SetStep(41);
              for (int i = 0; i < 5; ++i) trainer_page->Heartbeat();
              return 0;
            }),
            0);
  EXPECT_EQ(page->page().ready.load(), 1u);
  EXPECT_EQ(page->page().activity.load(), static_cast<uint32_t>(Activity::kSaving));
  EXPECT_EQ(page->page().generation.load(), (uint64_t{3} << 32) | 9);
  EXPECT_EQ(page->page().step.load(), 41);
  EXPECT_EQ(page->page().heartbeat.load(), 5u);
}

TEST(SharedPage, TheTrainerSeesTheNoticeToLeave) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  const Time notice = Now();
  EXPECT_EQ(InChild([&] {
              auto trainer_page = TrainerPage::Attach(page->fd());
              if (!trainer_page.ok() || trainer_page->LeavingSince()) return 1;
              // As the agent does, in another process.
              page->page().leaving_since_ns.store(notice.time_since_epoch().count());
              return trainer_page->LeavingSince() == notice ? 0 : 2;
            }),
            0);
}

TEST(SharedPage, RefusesForeignPages) {
  const Fd small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_EQ(TrainerPage::Attach(small.get()).error().code, Code::kInvalid);
  ASSERT_EQ(::ftruncate(small.get(), 4096), 0);
  EXPECT_EQ(TrainerPage::Attach(small.get()).error().code, Code::kInvalid) << "no magic";
  EXPECT_FALSE(TrainerPage::Attach(-1).ok());
}

TEST(SharedPage, HasOnlyOneHolder) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(InChild([&] {
              auto first = TrainerPage::Attach(page->fd());
              auto second = TrainerPage::Attach(page->fd());
              return first.ok() && !second.ok() && second.error().code == Code::kConflict ? 0 : 1;
            }),
            0);
  // Its holder has died: no other process can attach it.
  EXPECT_FALSE(TrainerPage::Attach(page->fd()).ok());
}

TEST(SharedPage, OnlyTheMainThreadMayHoldIt) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  std::thread([&] { EXPECT_EQ(TrainerPage::Attach(page->fd()).error().code, Code::kInternal); }).join();
}

TEST(SharedPage, CannotBeResized) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  EXPECT_NE(::ftruncate(page->fd(), 0), 0);
}

TEST(DeathWatch, DetectsAnEarlierDeath) {
  auto page = SharedPageMemory::Create();
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(InChild([&] { return TrainerPage::Attach(page->fd()).ok() ? 0 : 1; }), 0);
  auto watch = DeathWatch::Start(page->page());
  ASSERT_TRUE(watch.ok());
  EXPECT_TRUE(WaitReadable((*watch)->event_fd()));
}

}  // namespace
}  // namespace ringmaster::agent
