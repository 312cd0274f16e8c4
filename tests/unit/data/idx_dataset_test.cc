// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Image i of 2 x 3 is filled with i, its label is i mod 10.
std::string Images(uint32_t count, uint32_t height = 2, uint32_t width = 3) {
  std::string data;
  for (uint32_t i = 0; i < count; ++i) data += std::string(height * width, static_cast<char>(i));
  return Idx({count, height, width}, data);
}

std::string Labels(uint32_t count) {
  std::string data;
  for (uint32_t i = 0; i < count; ++i) data += static_cast<char>(i % 10);
  return Idx({count}, data);
}

Config IdxConfig(const TempFolder& folder) {
  Config config;
  config.kind = Kind::kIdx;
  config.path = folder.path();
  config.validation_fraction = 0.25;
  return config;
}

void WriteTrain(const TempFolder& folder) {
  folder.Write("train-images-idx3-ubyte", Images(20));
  folder.Write("train-labels-idx1-ubyte.gz", Gzip(Labels(20)));
}

TEST(IdxDataset, ReadsScaledImagesAndLabels) {
  const TempFolder folder;
  WriteTrain(folder);
  folder.Write("t10k-images-idx3-ubyte.gz", Gzip(Images(5)));
  folder.Write("t10k-labels-idx1-ubyte", Labels(5));
  WorkCounter counter;
  const auto opened = Dataset::Open(IdxConfig(folder), &counter);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(counter.total, 4) << "files";
  EXPECT_EQ(counter.done, 4);
  const Dataset& data = **opened;
  EXPECT_EQ(data.shape(), (Shape{.tokens = false, .channels = 1, .height = 2, .width = 3, .classes = 10}));
  EXPECT_EQ(data.size(Split::kTrain), 20);
  EXPECT_EQ(data.size(Split::kValidation), 5);
  std::vector<float> images(2 * 6);
  std::vector<int32_t> targets(2);
  ASSERT_TRUE(
      data.Read(Split::kTrain, std::vector<int64_t>{17, 3}, {.images = images, .targets = targets}).ok());
  EXPECT_EQ(targets, (std::vector<int32_t>{7, 3}));
  EXPECT_EQ(images[0], (17.0F / 255.0F - 0.2860F) / 0.3530F);
  EXPECT_EQ(images[11], (3.0F / 255.0F - 0.2860F) / 0.3530F);
  ASSERT_TRUE(
      data.Read(Split::kValidation, std::vector<int64_t>{4, 0}, {.images = images, .targets = targets}).ok());
  EXPECT_EQ(targets, (std::vector<int32_t>{4, 0}));
}

TEST(IdxDataset, HoldsOutSamplesWithoutTestFiles) {
  const TempFolder folder;
  WriteTrain(folder);
  const auto opened = Dataset::Open(IdxConfig(folder));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->size(Split::kTrain), 15);
  EXPECT_EQ((*opened)->size(Split::kValidation), 5);
  std::vector<float> images(6);
  std::vector<int32_t> targets(1);
  ASSERT_TRUE((*opened)
                  ->Read(Split::kValidation, std::vector<int64_t>{0}, {.images = images, .targets = targets})
                  .ok());
  EXPECT_EQ(targets[0], 15 % 10);
}

TEST(IdxDataset, TheFingerprintDependsOnContentNotOnPathOrCompression) {
  const TempFolder a;
  const TempFolder b;
  WriteTrain(a);
  b.Write("train-images-idx3-ubyte.gz", Gzip(Images(20)));
  b.Write("train-labels-idx1-ubyte", Labels(20));
  EXPECT_EQ((*Dataset::Open(IdxConfig(a)))->Fingerprint(), (*Dataset::Open(IdxConfig(b)))->Fingerprint());
  std::string images = Images(20);
  images.back() = 'x';
  a.Write("train-images-idx3-ubyte", images);
  EXPECT_NE((*Dataset::Open(IdxConfig(a)))->Fingerprint(), (*Dataset::Open(IdxConfig(b)))->Fingerprint());
}

TEST(IdxDataset, ErrorsNameTheProblem) {
  const TempFolder folder;
  const Config config = IdxConfig(folder);
  Config missing = config;
  missing.path += "/nowhere";
  EXPECT_THAT(WhyNot(missing, Code::kNotFound),
              AllOf(HasSubstr("/nowhere: does not exist"), HasSubstr("give the folder")));
  EXPECT_THAT(WhyNot(config, Code::kNotFound), HasSubstr("train-images-idx3-ubyte[.gz]: does not exist"));
  const std::string images = folder.Write("train-images-idx3-ubyte", Images(20));
  EXPECT_THAT(WhyNot(config, Code::kNotFound), HasSubstr("train-labels-idx1-ubyte[.gz]: does not exist"));
  Config file = config;
  file.path = images;
  EXPECT_THAT(WhyNot(file, Code::kInvalid), HasSubstr("is a file"));

  folder.Write("train-labels-idx1-ubyte", Labels(19));
  EXPECT_THAT(WhyNot(config, Code::kInvalid), AllOf(HasSubstr("has 20 images"), HasSubstr("has 19 labels")));
  folder.Write("train-labels-idx1-ubyte", Images(20));
  EXPECT_THAT(WhyNot(config, Code::kInvalid), HasSubstr("swapped"));
  folder.Write("train-labels-idx1-ubyte", "");
  EXPECT_THAT(WhyNot(config, Code::kCorrupt), HasSubstr("is empty"));
  std::string labels = Labels(20);
  labels[8 + 3] = '\x50';
  folder.Write("train-labels-idx1-ubyte", labels);
  EXPECT_THAT(WhyNot(config, Code::kInvalid), HasSubstr("label 80 is out of range"));
  folder.Write("train-labels-idx1-ubyte", Labels(20));
  folder.Write("train-images-idx3-ubyte", Images(20).substr(0, 60));
  EXPECT_THAT(WhyNot(config, Code::kCorrupt),
              HasSubstr("is truncated: its header says 120 bytes, it has 44"));

  folder.Write("train-images-idx3-ubyte", Images(20));
  folder.Write("t10k-images-idx3-ubyte", Images(5, 3, 3));
  folder.Write("t10k-labels-idx1-ubyte", Labels(5));
  EXPECT_THAT(WhyNot(config, Code::kInvalid), HasSubstr("validation images of 3 x 3"));
  folder.Write("t10k-images-idx3-ubyte", Images(5));
  labels = Labels(5);
  labels.back() = '\x0b';
  folder.Write("t10k-labels-idx1-ubyte", labels);
  EXPECT_THAT(WhyNot(config, Code::kInvalid), HasSubstr("label 11 of sample 4 is out of range"));
  std::filesystem::remove(folder.path() + "/t10k-labels-idx1-ubyte");
  EXPECT_THAT(WhyNot(config, Code::kNotFound), HasSubstr("t10k-labels-idx1-ubyte[.gz]: does not exist"));
}

TEST(IdxDataset, LinksThatLeadNowhereAreNamed) {
  const TempFolder folder;
  WriteTrain(folder);
  std::filesystem::create_symlink("/nowhere/test", folder.path() + "/t10k-images-idx3-ubyte");
  EXPECT_THAT(WhyNot(IdxConfig(folder), Code::kNotFound),
              HasSubstr("/t10k-images-idx3-ubyte: is a link to /nowhere/test, which does not exist"));
  Config config = IdxConfig(folder);
  config.path = folder.path() + "/link";
  std::filesystem::create_symlink("/nowhere", config.path);
  EXPECT_THAT(WhyNot(config, Code::kNotFound),
              HasSubstr("/link: is a link to /nowhere, which does not exist"));
}

TEST(IdxDataset, MoreThanTenClassesWhenLabelsAreContiguous) {
  const TempFolder folder;
  std::string labels;
  for (char i = 0; i < 20; ++i)
    labels += static_cast<char>(i % 13 + 1);  // 1 to 13, no 0, as in EMNIST letters
  folder.Write("train-images-idx3-ubyte", Images(20));
  folder.Write("train-labels-idx1-ubyte", Idx({20}, labels));
  const auto opened = Dataset::Open(IdxConfig(folder));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->shape().classes, 14);
}

TEST(IdxDataset, ReadsTheFashionMnistPackage) {
  Config config;
  config.kind = Kind::kIdx;
  config.path = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(config.path)) GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  const auto opened = Dataset::Open(config);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->size(Split::kTrain), 60000);
  EXPECT_EQ((*opened)->size(Split::kValidation), 10000);
  EXPECT_EQ((*opened)->shape(),
            (Shape{.tokens = false, .channels = 1, .height = 28, .width = 28, .classes = 10}));
  // The constants are those of this data: mean 0, deviation 1.
  double sum = 0;
  double squares = 0;
  std::vector<float> image(28 * 28);
  std::vector<int32_t> target(1);
  for (int64_t i = 0; i < 60000; i += 20) {
    ASSERT_TRUE(
        (*opened)->Read(Split::kTrain, std::vector<int64_t>{i}, {.images = image, .targets = target}).ok());
    for (const float x : image) {
      sum += x;
      squares += double{x} * double{x};
    }
  }
  const double count = 3000.0 * 28 * 28;
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / count), 1, 0.02);
}

}  // namespace
}  // namespace ringmaster::data
