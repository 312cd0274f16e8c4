// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>

#include <fstream>

#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

using testing::HasSubstr;

// Returns `count` records: label i mod 10, planes filled with i, i + 1, i + 2.
std::string Records(int first, int count) {
  std::string out;
  for (int i = first; i < first + count; ++i) {
    out += static_cast<char>(i % 10);
    for (int plane = 0; plane < 3; ++plane) out += std::string(1024, static_cast<char>(i + plane));
  }
  return out;
}

Config CifarConfig(const TempFolder& folder) {
  Config config;
  config.kind = Kind::kCifar10;
  config.path = folder.path();
  config.validation_fraction = 0.5;
  return config;
}

TEST(Cifar, ReadsAcrossBatchBoundaries) {
  const TempFolder folder;
  folder.Write("data_batch_1.bin", Records(0, 3));
  folder.Write("data_batch_2.bin", Records(3, 4));
  folder.Write("test_batch.bin", Records(50, 2));
  folder.Write("batches.meta.txt", "airplane\n");
  WorkCounter counter;
  const auto opened = Dataset::Open(CifarConfig(folder), &counter);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(counter.total, 3) << "files";
  EXPECT_EQ(counter.done, 3);
  const Dataset& data = **opened;
  EXPECT_EQ(data.shape(), (Shape{.tokens = false, .channels = 3, .height = 32, .width = 32, .classes = 10}));
  EXPECT_EQ(data.size(Split::kTrain), 7);
  EXPECT_EQ(data.size(Split::kValidation), 2);
  std::vector<float> images(2 * 3072);
  std::vector<int32_t> targets(2);
  ASSERT_TRUE(
      data.Read(Split::kTrain, std::vector<int64_t>{2, 3}, {.images = images, .targets = targets}).ok());
  EXPECT_EQ(targets, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(images[0], (2.0F / 255.0F - 0.4914F) / 0.2470F);
  EXPECT_EQ(images[3072 + 1024], (4.0F / 255.0F - 0.4822F) / 0.2435F);
  EXPECT_EQ(images[2 * 3072 - 1], (5.0F / 255.0F - 0.4465F) / 0.2616F);
  ASSERT_TRUE(
      data.Read(Split::kValidation, std::vector<int64_t>{1, 0}, {.images = images, .targets = targets}).ok());
  EXPECT_EQ(targets, (std::vector<int32_t>{1, 0}));
}

TEST(Cifar, ALabelOutOfRangeInALargeFileIsFoundWhenItIsRead) {
  const TempFolder folder;
  const std::string path = folder.Write("data_batch_1.bin", "");
  const uint64_t count = (70 << 20) / 3073;
  std::filesystem::resize_file(path, count * 3073);
  const int64_t bad = 9000;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(bad * 3073);
    file.put(10);
  }
  const auto opened = Dataset::Open(CifarConfig(folder));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::vector<float> images(3072);
  std::vector<int32_t> targets(1);
  const auto read = [&](int64_t index) {
    return (*opened)->Read(Split::kTrain, std::vector<int64_t>{index},
                           {.images = images, .targets = targets});
  };
  EXPECT_TRUE(read(bad - 1).ok());
  const Status found = read(bad);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("data_batch_1.bin: label 10 of sample 9000 is out of range"));
}

TEST(Cifar, ErrorsNameTheProblem) {
  const TempFolder folder;
  const Config config = CifarConfig(folder);
  folder.Write("data_batch_1", "a pickle");
  EXPECT_THAT(WhyNot(config, Code::kNotFound), HasSubstr("binary version"));
  folder.Write("data_batch_1.bin", Records(0, 3).substr(0, 9000));
  EXPECT_THAT(WhyNot(config, Code::kCorrupt),
              HasSubstr("data_batch_1.bin: has 9000 bytes, not a multiple of 3073"));
  folder.Write("data_batch_1.bin", "");
  EXPECT_THAT(WhyNot(config, Code::kCorrupt), HasSubstr("is empty"));
  std::string bad = Records(0, 3);
  bad[3073] = 99;
  folder.Write("data_batch_1.bin", bad);
  EXPECT_THAT(WhyNot(config, Code::kInvalid), HasSubstr("label 99 of sample 1 is out of range"));
  folder.Write("data_batch_1.bin", Records(0, 3));
  folder.Write("test_batch.bin", "short");
  EXPECT_THAT(WhyNot(config, Code::kCorrupt), HasSubstr("test_batch.bin"));
}

}  // namespace
}  // namespace ringmaster::data
