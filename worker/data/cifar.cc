// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <filesystem>

#include "worker/data/folder.h"
#include "worker/data/image_dataset.h"

namespace ringmaster::data {
namespace {

constexpr size_t kPixels = size_t{3} * 32 * 32;
constexpr size_t kRecord = 1 + kPixels;  // a label, then the red, green and blue planes
constexpr int kClasses = 10;

// Of the training images, per channel.
constexpr ImageConstants kCifarConstants{.mean = {0.4914F, 0.4822F, 0.4465F},
                                         .deviation = {0.2470F, 0.2435F, 0.2616F}};

Result<ImagePart> Load(const std::string& path) {
  RM_ASSIGN(FileView file, FileView::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.empty()) return Problem(Code::kCorrupt, path, "is empty", "copy or download it again");
  if (bytes.size() % kRecord != 0) {
    return Problem(Code::kCorrupt, path,
                   fmt::format("has {} bytes, not a multiple of {}: it is truncated or not CIFAR-10",
                               bytes.size(), kRecord),
                   "copy or download it again");
  }
  ImagePart part;
  part.name = std::filesystem::path(path).filename().string();
  part.count = static_cast<int64_t>(bytes.size() / kRecord);
  part.image_stride = kRecord;
  part.label_stride = kRecord;
  part.images = bytes.subspan(1);
  part.labels = bytes;
  part.files.push_back(std::move(file));
  for (int64_t i = 0; i < part.count; ++i) {
    const int label = std::to_integer<int>(part.labels[static_cast<size_t>(i) * kRecord]);
    if (label < kClasses) continue;
    return Problem(Code::kInvalid, path,
                   fmt::format("label {} of sample {} is out of range (0 to 9)", label, i),
                   "check that it is CIFAR-10 in its binary version (not CIFAR-100), and download it again");
  }
  return part;
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenCifar10(const Config& config) {
  const char* remedy =
      "give the folder of the binary version (cifar-10-batches-bin), with data_batch_1.bin and so on";
  for (const std::string& folder : {config.path, config.validation_path}) {
    if (folder.empty() || IsFolder(folder)) continue;
    const bool file = IsFile(folder);
    return Problem(file ? Code::kInvalid : Code::kNotFound, folder, file ? "is a file" : "does not exist",
                   remedy);
  }
  RM_ASSIGN(const std::vector<std::string> files, FilesBelow(config.path, ".bin"));
  std::vector<ImagePart> train;
  for (const std::string& path : files) {
    const std::filesystem::path name(path);
    if (name.parent_path() != std::filesystem::path(config.path + "/").parent_path()) continue;
    if (!name.filename().string().starts_with("data_batch_")) continue;
    RM_ASSIGN(ImagePart part, Load(path));
    train.push_back(std::move(part));
  }
  if (train.empty()) return Problem(Code::kNotFound, config.path, "has no data_batch_*.bin", remedy);
  std::vector<ImagePart> validation;
  const std::string& folder = config.validation_path.empty() ? config.path : config.validation_path;
  const std::string test = folder + "/test_batch.bin";
  if (!config.validation_path.empty() || IsFile(test)) {
    RM_ASSIGN(ImagePart part, Load(test));
    validation.push_back(std::move(part));
  }
  const Shape shape{.tokens = false, .channels = 3, .height = 32, .width = 32, .classes = kClasses};
  return MakeImageDataset(shape, kCifarConstants, std::move(train), std::move(validation),
                          config.validation_fraction);
}

}  // namespace ringmaster::data
