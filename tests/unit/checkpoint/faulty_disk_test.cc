// SPDX-License-Identifier: Apache-2.0

// File systems that are not a local disk: reads that fail once, no fsync for folders, no locks, and writes
// that fail at close.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>

#include "base/sanitizers.h"
#include "tests/unit/checkpoint/faulty_calls.h"
#include "tests/unit/checkpoint/snapshots.h"

// The calls cannot be replaced where a sanitizer replaces them.
#if !defined(RINGMASTER_ADDRESS_SANITIZER) && !defined(RINGMASTER_THREAD_SANITIZER)

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

bool IsIn(const Folder& folder, const std::string& path) { return path.starts_with(folder.path()); }

TEST(FaultyDisk, AReadThatFailsOnceDoesNotCostTheNewestCheckpoint) {
  for (const int error : {ESTALE, EIO, EINTR, ETIMEDOUT}) {
    for (const char* const file : {"MANIFEST", "chunk-00000", "chunk-00005"}) {
      const Folder folder;
      PublishSmall(folder.path(), 1);
      PublishSmall(folder.path(), 2);
      std::atomic<int> failures{0};
      const FaultyCalls faults([&](const std::string& call, const std::string& path) {
        const bool this_one = call == "read" && path.ends_with(std::string("step-000000000002/") + file);
        return this_one && failures++ == 0 ? error : 0;
      });
      const auto loaded = LoadNewest(folder.path(), kModel);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ(loaded->step, 2) << std::strerror(error) << " of " << file;
      EXPECT_THAT(loaded->skipped, IsEmpty());
      EXPECT_GE(failures, 1);
    }
  }
}

// Only damage, and a read that fails again and again, lead to an older checkpoint.
TEST(FaultyDisk, WhatThisProcessMayNotReadIsNotSkipped) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  PublishSmall(folder.path(), 2);
  for (const int error : {EACCES, EPERM, ENOMEM, EMFILE}) {
    const FaultyCalls faults([&](const std::string& call, const std::string& path) {
      return call == "read" && path.find("step-000000000002/chunk") != std::string::npos ? error : 0;
    });
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_FALSE(loaded.ok()) << std::strerror(error) << ": step " << loaded->step << " was loaded";
    EXPECT_THAT(loaded.error().message,
                AllOf(HasSubstr("step-000000000002"), HasSubstr(std::strerror(error))));
  }
}

TEST(FaultyDisk, ANewerFormatIsNotSkipped) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  fs::create_directory(folder.path() + "/step-000000000002");
  WriteText(folder.path() + "/step-000000000002/MANIFEST",
            SealManifest(R"({"format":2,"step":2,"model":"m","meta":{},"arrays":[]})"));
  const auto loaded = LoadNewest(folder.path(), kModel);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kInvalid);
  EXPECT_THAT(loaded.error().message, HasSubstr("has format 2"));
  // Nor is it replaced.
  Publisher publisher(&PosixFiles(), folder.path(), 1, "m", kSmallChunk);
  const Status published = publisher.Publish(MakeCopy(2));
  ASSERT_FALSE(published.ok());
  EXPECT_THAT(ReadText(folder.path() + "/step-000000000002/MANIFEST"), HasSubstr("\"format\":2"));
}

TEST(FaultyDisk, AFileSystemWithoutFsync) {
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    const Folder folder;
    const FaultyCalls faults([&](const std::string& call, const std::string& path) {
      return call == "fsync" && IsIn(folder, path) ? error : 0;
    });
    PublishSmall(folder.path(), 1);
    EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 1);
  }
}

TEST(FaultyDisk, AnFsyncThatFailsFailsTheWrite) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  const FaultyCalls faults([&](const std::string& call, const std::string& path) {
    return call == "fsync" && IsIn(folder, path) ? EIO : 0;
  });
  Publisher publisher(&PosixFiles(), folder.path(), 1, "m", kSmallChunk);
  const Status published = publisher.Publish(MakeCopy(2));
  ASSERT_FALSE(published.ok());
  EXPECT_THAT(published.error().message, HasSubstr("fsync " + folder.path()));
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 1);
}

TEST(FaultyDisk, AWriteThatFailsAtCloseFailsTheCheckpoint) {
  for (const int error : {ENOSPC, EDQUOT, EIO}) {
    const Folder folder;
    PublishSmall(folder.path(), 1);
    {
      std::atomic<int> failures{0};
      const FaultyCalls faults([&](const std::string& call, const std::string& path) {
        const bool this_one = call == "close" && IsIn(folder, path) && path.ends_with("chunk-00003");
        return this_one && failures++ == 0 ? error : 0;
      });
      Publisher publisher(&PosixFiles(), folder.path(), 2, "m", kSmallChunk);
      const Status published = publisher.Publish(MakeCopy(2));
      ASSERT_FALSE(published.ok()) << std::strerror(error);
      EXPECT_THAT(published.error().message,
                  AllOf(HasSubstr("close"), HasSubstr("chunk-00003"), HasSubstr(std::strerror(error))));
    }
    EXPECT_EQ(folder.Names(), std::vector<std::string>{"step-000000000001"});
    PublishSmall(folder.path(), 2);
    EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 2);
  }
}

TEST(FaultyDisk, AFileSystemWithoutLocks) {
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    const Folder folder;
    const FaultyCalls faults([&](const std::string& call, const std::string& path) {
      return call == "flock" && IsIn(folder, path) ? error : 0;
    });
    for (int64_t step = 1; step <= 4; ++step) PublishSmall(folder.path(), step);
    EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 4);
    EXPECT_EQ(folder.Names().size(), 2U);
  }
}

}  // namespace
}  // namespace ringmaster::checkpoint

#endif
