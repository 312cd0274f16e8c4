// SPDX-License-Identifier: Apache-2.0

// Any damage to a checkpoint is detected, and the previous one is loaded.
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    PublishSmall(folder_.path(), 1);
    PublishSmall(folder_.path(), 2);
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/step-000000000002")) {
      files_.push_back(entry.path().string());
    }
    std::sort(files_.begin(), files_.end());
    ASSERT_EQ(files_.size(), 7U);  // four, one, and one chunks, and the manifest; no lock file is left
  }

  void ExpectFallsBack(const std::string& what) {
    const auto loaded = LoadNewest(folder_.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << what << ": " << loaded.error().message;
    ASSERT_EQ(loaded->step, 1) << what;
    ASSERT_EQ(loaded->skipped.size(), 1U);
    EXPECT_NE(loaded->skipped[0].find("step-000000000002"), std::string::npos) << loaded->skipped[0];
    ExpectWhole(*loaded);
    EXPECT_FALSE(Load(folder_.path() + "/step-000000000002").ok()) << what;
  }

  Folder folder_;
  std::vector<std::string> files_;
};

TEST_F(Damage, EveryFlippedBitIsDetected) {
  for (const std::string& file : files_) {
    const std::string good = ReadText(file);
    ASSERT_FALSE(good.empty());
    // Every eleventh bit of the manifest; Manifest.AnyChangedBitOrLengthIsDetected tests all of them. A
    // sanitizer sees every seventh of these and of the chunks'.
    const size_t stride = (file.ends_with("MANIFEST") ? 11 : 1) * (kSanitized ? 7 : 1);
    for (size_t bit = 0; bit < good.size() * 8; bit += stride) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      WriteText(file, bad);
      ExpectFallsBack(fmt::format("{} bit {}", file, bit));
      if (HasFatalFailure()) return;
    }
    WriteText(file, good);
  }
  EXPECT_EQ(LoadNewest(folder_.path(), kModel)->step, 2);
}

TEST_F(Damage, EveryChangeOfLengthIsDetected) {
  for (const std::string& file : files_) {
    const std::string good = ReadText(file);
    for (size_t n = 0; n < good.size(); ++n) {
      WriteText(file, good.substr(0, n));
      ExpectFallsBack(fmt::format("{} cut to {}", file, n));
      if (HasFatalFailure()) return;
    }
    WriteText(file, good + "x");
    ExpectFallsBack(file + " with a byte more");
    fs::remove(file);
    ExpectFallsBack(file + " removed");
    fs::create_directory(file);
    const auto loaded = LoadNewest(folder_.path(), kModel);
    EXPECT_TRUE(!loaded.ok() || loaded->step == 1);
    fs::remove(file);
    WriteText(file, good);
  }
}

TEST_F(Damage, SwappedChunksAreDetected) {
  const std::string a = folder_.path() + "/step-000000000002/chunk-00000";
  const std::string b = folder_.path() + "/step-000000000002/chunk-00001";
  const std::string text = ReadText(a);
  WriteText(a, ReadText(b));
  WriteText(b, text);
  ExpectFallsBack("swapped");
}

TEST_F(Damage, AChunkOfAnotherStepIsDetected) {
  fs::copy_file(folder_.path() + "/step-000000000001/chunk-00000",
                folder_.path() + "/step-000000000002/chunk-00000", fs::copy_options::overwrite_existing);
  ExpectFallsBack("chunk of step 1");
}

// After a fallback to step 1, training reaches step 2 again and must repair its checkpoint instead of
// skipping it. Damaged checkpoints do not count towards those that are kept.
TEST_F(Damage, TheNextWriteOfTheStepRepairsIt) {
  WriteText(files_[0], "gone");
  PublishSmall(folder_.path(), 2, 1);
  const auto loaded = LoadNewest(folder_.path(), kModel);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->step, 2);
  ExpectWhole(*loaded);
  EXPECT_EQ(folder_.Names(), std::vector<std::string>{"step-000000000002"});
}

TEST_F(Damage, DamagedCheckpointsDoNotReplaceValidOnes) {
  PublishSmall(folder_.path(), 10);
  PublishSmall(folder_.path(), 20);
  EXPECT_EQ(List(folder_.path()), (std::vector<int64_t>{10, 20}));
  WriteText(folder_.path() + "/step-000000000020/chunk-00000", "gone");
  PublishSmall(folder_.path(), 15, 2);  // fell back to 10 and continued
  EXPECT_EQ(LoadNewest(folder_.path(), kModel)->step, 15);
  // 10 and 15 are the two valid ones: 10 was not removed in favour of the damaged 20.
  EXPECT_TRUE(Load(folder_.path() + "/step-000000000010").ok());
}

}  // namespace
}  // namespace ringmaster::checkpoint
