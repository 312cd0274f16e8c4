// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <filesystem>

#include "worker/data/folder.h"
#include "worker/data/image_dataset.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace {

constexpr size_t kPixels = size_t{3} * 32 * 32;
constexpr size_t kRecord = 1 + kPixels;  // a label, then the red, green and blue planes
constexpr int kClasses = 10;

// Of the training images, per channel.
constexpr ImageConstants kCifarConstants{.mean = {0.4914F, 0.4822F, 0.4465F},
                                         .deviation = {0.2470F, 0.2435F, 0.2616F}};

Result<ImagePart> Load(FilePool* pool, const std::string& path, WorkCounter* counter) {
  RM_ASSIGN(const size_t file, pool->Add(path));
  const uint64_t bytes = pool->size(file);
  if (bytes == 0) return Problem(Code::kCorrupt, path, "is empty", "copy or download it again");
  if (bytes % kRecord != 0) {
    return Problem(
        Code::kCorrupt, path,
        fmt::format("has {} bytes, not a multiple of {}: it is truncated or not CIFAR-10", bytes, kRecord),
        "copy or download it again");
  }
  ImagePart part;
  part.name = std::filesystem::path(path).filename().string();
  part.count = static_cast<int64_t>(bytes / kRecord);
  part.file = file;
  part.record = kRecord;
  part.pixels = 1;
  if (counter != nullptr) counter->Add(1);
  return part;
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenCifar10(const Config& config, WorkCounter* counter) {
  const char* remedy =
      "give the folder of the binary version (cifar-10-batches-bin), with data_batch_1.bin and so on";
  for (const std::string& folder : {config.path, config.validation_path}) {
    if (!folder.empty()) RM_TRY(CheckFolder(folder, remedy));
  }
  RM_ASSIGN(std::vector<std::string> files, FilesBelow(config.path, ".bin"));
  std::erase_if(files, [&](const std::string& path) {
    const std::filesystem::path name(path);
    return name.parent_path() != std::filesystem::path(config.path + "/").parent_path() ||
           !name.filename().string().starts_with("data_batch_");
  });
  if (files.empty()) return Problem(Code::kNotFound, config.path, "has no data_batch_*.bin", remedy);
  const std::string& folder = config.validation_path.empty() ? config.path : config.validation_path;
  const std::string test = folder + "/test_batch.bin";
  RM_ASSIGN(const bool test_exists, FileExists(test));
  const bool has_test = !config.validation_path.empty() || test_exists;
  if (counter != nullptr) counter->Begin(static_cast<int64_t>(files.size()) + (has_test ? 1 : 0));
  auto pool = std::make_unique<FilePool>();
  std::vector<ImagePart> train;
  for (const std::string& path : files) {
    RM_ASSIGN(ImagePart part, Load(pool.get(), path, counter));
    train.push_back(std::move(part));
  }
  std::vector<ImagePart> validation;
  if (has_test) {
    RM_ASSIGN(ImagePart part, Load(pool.get(), test, counter));
    validation.push_back(std::move(part));
  }
  const Shape shape{.tokens = false, .channels = 3, .height = 32, .width = 32, .classes = kClasses};
  return MakeImageDataset(shape, kCifarConstants, std::move(pool), std::move(train), std::move(validation),
                          config.validation_fraction);
}

}  // namespace ringmaster::data
