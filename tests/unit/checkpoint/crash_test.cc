// SPDX-License-Identifier: Apache-2.0

// A process that dies before any of its changes to the disk, or in the middle of a write, leaves a folder
// from which the old or the new checkpoint loads, and in which the next writer works normally.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/checkpoint/forwarding_files.h"
#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {
namespace {

constexpr int kDied = 77;

// Dies instead of making change number `dies_at` (from 0). With `half`, a write first writes half of its
// bytes.
class DyingFiles final : public ForwardingFiles {
 public:
  DyingFiles(int dies_at, bool half) : left_(dies_at), half_(half) {}

  Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) override {
    if (left_ == 0 && half_) (void)real_.Write(file, path, bytes.first(bytes.size() / 2));
    return ForwardingFiles::Write(file, path, bytes);
  }

 private:
  void BeforeChange() override {
    if (left_-- == 0) ::_exit(kDied);  // like kill -9: nothing is cleaned up
  }
  int left_;
  bool half_;
};

// Publishes `step` in a child process that dies at change n. Returns whether it died.
bool PublishAndDie(const std::string& folder, int64_t step, int keep, int n, bool half) {
  const pid_t child = ::fork();
  if (child == 0) {
    DyingFiles files(n, half);
    Publisher publisher(&files, folder, keep, "victim", kSmallChunk);
    ::_exit(publisher.Publish(MakeCopy(step)).ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 1);
  return WEXITSTATUS(status) == kDied;
}

void DieEverywhere(int keep, bool half, const std::function<void(const std::string&)>& prepare) {
  int n = 0;
  for (bool died = true; died; ++n) {
    SCOPED_TRACE(testing::Message() << "keep " << keep << " half " << half << " change " << n);
    const Folder folder;
    prepare(folder.path());
    died = PublishAndDie(folder.path(), 2, keep, n, half);
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_TRUE(loaded->step == 1 || loaded->step == 2) << loaded->step;
    ASSERT_TRUE(died || loaded->step == 2);
    ExpectWhole(*loaded);
    // The next process writes the step again and removes everything that the dead one left.
    PublishSmall(folder.path(), 2, keep);
    PublishSmall(folder.path(), 3, keep);
    ASSERT_EQ(LoadNewest(folder.path(), kModel)->step, 3);
    std::vector<std::string> names;
    for (int64_t step = keep == 1 ? 3 : 2; step <= 3; ++step)
      names.push_back(fmt::format("step-{:012}", step));
    ASSERT_EQ(folder.Names(), names);
  }
  EXPECT_GT(n, 25);  // otherwise this test tests nothing
}

TEST(Crash, AtEveryChangeWithOneKept) {
  for (const bool half : {false, true}) {
    DieEverywhere(1, half, [](const std::string& folder) { PublishSmall(folder, 1, 1); });
  }
}

TEST(Crash, AtEveryChangeWithTwoKept) {
  DieEverywhere(2, true, [](const std::string& folder) {
    PublishSmall(folder, 0, 2);
    PublishSmall(folder, 1, 2);
  });
}

TEST(Crash, AtEveryChangeWhileADamagedOneIsReplaced) {
  DieEverywhere(1, false, [](const std::string& folder) {
    PublishSmall(folder, 1, 2);
    PublishSmall(folder, 2, 2);
    WriteText(folder + "/step-000000000002/chunk-00003", "damaged");
  });
}

// The first checkpoint: a death leaves either none or a complete one.
TEST(Crash, AtEveryChangeOfTheFirst) {
  int n = 0;
  for (bool died = true; died; ++n) {
    const Folder folder;
    died = PublishAndDie(folder.path(), 2, 1, n, true);
    const auto loaded = LoadNewest(folder.path(), kModel);
    if (loaded.ok()) {
      ExpectWhole(*loaded);
    } else {
      ASSERT_TRUE(died);
      ASSERT_EQ(loaded.error().code, Code::kNotFound) << n << " " << loaded.error().message;
    }
  }
}

}  // namespace
}  // namespace ringmaster::checkpoint
