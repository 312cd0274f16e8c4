// SPDX-License-Identifier: Apache-2.0

// Saving and loading take the memory of one copy of the state, and no more.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "tests/sanitized.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace ringmaster::checkpoint {
namespace {

constexpr int64_t kStateBytes = int64_t{192} << 20;
constexpr int64_t kOverheadBytes = int64_t{24} << 20;  // of threads, the allocator, and one chunk

// The peak of the resident memory of this process; 0: unknown.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) << 10;
  return 0;
}

// Returns by how much `work` raises the peak of a process, measured in a child.
int64_t PeakOf(const std::function<bool(int64_t* before)>& work) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int64_t before = PeakBytes();
    const int64_t more = work(&before) ? PeakBytes() - before : -1;
    const bool sent = ::write(ends[1], &more, sizeof more) == sizeof more;
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t more = -1;
  EXPECT_EQ(::read(ends[0], &more, sizeof more), static_cast<ssize_t>(sizeof more));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return more;
}

TEST(Memory, SavingAndLoadingTakeOneCopyOfTheState) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory for themselves";
  if (PeakBytes() == 0) GTEST_SKIP() << "/proc/self/status has no VmHWM";
  const Folder folder;
  const int64_t save = PeakOf([&](int64_t* before) {
    Snapshot snapshot;
    snapshot.model = kModel;
    std::vector<std::vector<std::byte>> arrays;
    for (const char* name : {"params", "adamw.m", "adamw.v"}) {
      arrays.emplace_back(static_cast<size_t>(kStateBytes / 3), std::byte{1});
      snapshot.arrays.push_back({name, "f32", arrays.back()});
    }
    *before = PeakBytes();
    auto writer = Writer::Create(folder.path(), 1, "m");
    for (snapshot.step = 1; snapshot.step <= 3; ++snapshot.step)
      if (!writer.ok() || !(*writer)->Start(snapshot).ok() || !(*writer)->Wait().ok()) return false;
    return true;
  });
  EXPECT_GE(save, kStateBytes / 2);  // the copy is counted
  EXPECT_LE(save, kStateBytes * 11 / 10 + kOverheadBytes);
  const int64_t load = PeakOf([&](int64_t*) { return LoadNewest(folder.path(), kModel).ok(); });
  EXPECT_GE(load, kStateBytes / 2);
  EXPECT_LE(load, kStateBytes * 11 / 10 + kOverheadBytes);
}

}  // namespace
}  // namespace ringmaster::checkpoint
