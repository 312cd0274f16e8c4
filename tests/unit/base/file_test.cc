// SPDX-License-Identifier: Apache-2.0

#include "base/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace ringmaster {
namespace {

class FileTest : public testing::Test {
 protected:
  const TempFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(FileTest, WritesAtomicallyAndReadsBack) {
  const std::string path = folder_ + "/a";
  ASSERT_TRUE(WriteFileAtomic(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomic(path, "two").ok());
  EXPECT_EQ(ReadFile(path).value(), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, ReturnsTheCodeOfTheFailure) {
  EXPECT_EQ(ReadFile(folder_ + "/none").error().code, Code::kNotFound);
  EXPECT_EQ(ReadFile(folder_).error().code, Code::kInvalid);
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/big", std::string(100, 'x')).ok());
  EXPECT_EQ(ReadFile(folder_ + "/big", 99).error().code, Code::kExhausted);
  EXPECT_FALSE(WriteFileAtomic(folder_ + "/none/a", "x").ok());
  EXPECT_FALSE(MakeFolder(folder_ + "/big/x").ok());
}

TEST_F(FileTest, AFullDiskIsExhausted) {
  // Every write to /dev/full fails with ENOSPC.
  const auto status = WriteFileDurable("/dev/full", std::as_bytes(std::span("x", 1)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace ringmaster
