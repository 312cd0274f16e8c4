// SPDX-License-Identifier: Apache-2.0

// Two attempts of one run live at once, since a node that was declared dead is not. Whenever the newer one
// takes the folder over, the older one changes nothing afterwards.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <thread>
#include <utility>

#include "tests/unit/checkpoint/forwarding_files.h"
#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/attempt.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Lets a newer attempt take the folder over, and publish, before change number `at` (from 0).
class TakenOverFiles final : public ForwardingFiles {
 public:
  TakenOverFiles(std::string folder, int at) : folder_(std::move(folder)), left_(at) {}
  bool taken() const { return left_ < 0; }
  void Join() {
    if (child_.joinable()) child_.join();
  }

 private:
  void BeforeChange() override {
    if (left_-- != 0) return;
    // In another process, since it waits for the lock of the folder, if this one holds it.
    child_ = std::thread([folder = folder_] {
      const auto attempt = TakeFolder(folder, "newer");
      ASSERT_TRUE(attempt.ok()) << attempt.error().message;
    });
  }

  const std::string folder_;
  int left_;
  std::thread child_;
};

TEST(TwoAttempts, TheOlderOneWritesNothingAfterTheNewerOneBegan) {
  const Folder folder;
  const std::string older = TakeFolder(folder.path(), "older").value();
  const std::string newer = TakeFolder(folder.path(), "newer").value();
  EXPECT_NE(older, newer);
  EXPECT_EQ(OwnerOf(folder.path()).value(), newer);
  Copy copy = MakeCopy(5);
  copy.attempt = older;
  Publisher publisher(&PosixFiles(), folder.path(), 1, "older", kSmallChunk);
  const Status published = publisher.Publish(copy);
  ASSERT_FALSE(published.ok());
  EXPECT_EQ(published.error().code, Code::kGone);
  EXPECT_THAT(published.error().message, HasSubstr("newer attempt"));
  EXPECT_THAT(List(folder.path()), ElementsAre());
  copy.attempt = newer;
  Publisher owner(&PosixFiles(), folder.path(), 1, "newer", kSmallChunk);
  EXPECT_TRUE(owner.Publish(copy).ok());
}

// Whenever the folder changes hands during a publication, it is published before the newer attempt looks, or
// not at all; and old checkpoints are removed only by the owner.
TEST(TwoAttempts, AtEachChangeOfAPublication) {
  for (int at = 0;; ++at) {
    const Folder folder;
    for (const int64_t step : {1, 2}) PublishSmall(folder.path(), step, 5);
    Copy copy = MakeCopy(3);
    copy.attempt = TakeFolder(folder.path(), "older").value();
    TakenOverFiles files(folder.path(), at);
    Publisher publisher(&files, folder.path(), 1, "older", kSmallChunk);
    const Status published = publisher.Publish(copy);
    files.Join();
    if (!files.taken()) {
      EXPECT_GT(at, 10);
      break;
    }
    const std::vector<int64_t> left = List(folder.path());
    const std::string owner = OwnerOf(folder.path()).value();
    EXPECT_THAT(owner, HasSubstr("newer"));
    if (!published.ok()) {
      EXPECT_EQ(published.error().code, Code::kGone) << published.error().message;
      EXPECT_THAT(left, ElementsAre(1, 2)) << at;
    }
    // From now on the older attempt changes nothing.
    copy.step = 4;
    EXPECT_EQ(publisher.Publish(copy).error().code, Code::kGone);
    EXPECT_EQ(List(folder.path()), left);
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ExpectWhole(*loaded);
  }
}

// The holder of the lock is declared stuck, and a newer attempt takes the folder over, when the older attempt
// has found another checkpoint in the place of the one that it wanted to write.
class TakenOverAtMove final : public ForwardingFiles {
 public:
  explicit TakenOverAtMove(std::string folder) : folder_(std::move(folder)) {}
  bool taken() const { return taken_; }
  Status Rename(const std::string& from, const std::string& to) override {
    const Status moved = ForwardingFiles::Rename(from, to);
    if (to == folder_ + "/" + StepName(3) && !std::exchange(taken_, true)) {
      const auto attempt = TakeFolder(folder_, "newer", milliseconds(1));
      EXPECT_TRUE(attempt.ok()) << attempt.error().message;
    }
    return moved;
  }

 private:
  const std::string folder_;
  bool taken_ = false;
};

// What is in the place of its checkpoint is of the newer attempt, and has another state.
TEST(TwoAttempts, TheOlderOneDiscardsNothingOfTheNewerOne) {
  const Folder folder;
  const std::string older = TakeFolder(folder.path(), "older").value();
  Copy other = MakeCopy(3);
  other.state = "of the newer";
  ASSERT_TRUE(Publisher(&PosixFiles(), folder.path(), 2, "newer", kSmallChunk).Publish(other).ok());
  Copy copy = MakeCopy(3);
  copy.attempt = older;
  copy.state = "of the older";
  TakenOverAtMove files(folder.path());
  const Status published = Publisher(&files, folder.path(), 2, "older", kSmallChunk).Publish(copy);
  EXPECT_TRUE(files.taken());
  ASSERT_FALSE(published.ok());
  EXPECT_EQ(published.error().code, Code::kGone) << published.error().message;
  const auto kept = ReadManifest(folder.path() + "/" + StepName(3));
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->state, "of the newer");
}

// Stops the process before change number `at` (from 0), with the locks that it holds.
class StoppingFiles final : public ForwardingFiles {
 public:
  explicit StoppingFiles(int at) : left_(at) {}

 private:
  void BeforeChange() override {
    if (left_-- == 0) ::raise(SIGSTOP);
  }
  int left_;
};

Copy CopyOfAttempt(int64_t step, const std::string& attempt, const std::string& state) {
  Copy copy = MakeCopy(step);
  copy.attempt = attempt;
  copy.state = state;
  return copy;
}

// The node of the older attempt is slow, and was declared dead, at each moment of a publication. It continues
// when the newer attempt has loaded a checkpoint and published others.
TEST(TwoAttempts, AProcessThatWasStoppedAtEachChangePublishesNothingLater) {
  constexpr int kOk = 10;
  constexpr int kGone = 11;
  int at = 0;
  for (bool stopped = true; stopped; ++at) {
    SCOPED_TRACE(at);
    const Folder folder;
    for (const int64_t step : {1, 2}) PublishSmall(folder.path(), step, 2);
    const std::string older = TakeFolder(folder.path(), "older").value();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      StoppingFiles files(at);
      Publisher publisher(&files, folder.path(), 2, "older", kSmallChunk);
      const Status published = publisher.Publish(CopyOfAttempt(3, older, "of the older"));
      ::_exit(published.ok() ? kOk : published.error().code == Code::kGone ? kGone : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    stopped = WIFSTOPPED(status);
    if (!stopped) break;
    const auto newer = TakeFolder(folder.path(), "newer", milliseconds(1));
    ASSERT_TRUE(newer.ok()) << newer.error().message;
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    Publisher publisher(&PosixFiles(), folder.path(), 2, "newer", kSmallChunk);
    for (int64_t step = loaded->step + 1; step <= 4; ++step) {
      // One of the older attempt may be published by now, and it would be another state.
      const Status published = publisher.Publish(CopyOfAttempt(step, *newer, "of the newer"));
      ASSERT_TRUE(published.ok()) << published.error().message;
    }
    const auto before = List(folder.path());
    ::kill(child, SIGCONT);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    // It has published before it was stopped, or not at all.
    EXPECT_EQ(WEXITSTATUS(status), loaded->step == 3 ? kOk : kGone);
    EXPECT_EQ(List(folder.path()), before);
    EXPECT_THAT(before, ElementsAre(3, 4));
    const auto kept = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    EXPECT_EQ(kept->state, "of the newer");
    ExpectWhole(*kept);
    EXPECT_EQ(ReadManifest(folder.path() + "/" + StepName(3))->state,
              loaded->step == 3 ? "of the older" : "of the newer");
  }
  EXPECT_GT(at, 20);
}

}  // namespace
}  // namespace ringmaster::checkpoint
