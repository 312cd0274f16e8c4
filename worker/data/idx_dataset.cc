// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>

#include "worker/data/folder.h"
#include "worker/data/gzip.h"
#include "worker/data/idx.h"
#include "worker/data/image_dataset.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace {

// Of Fashion-MNIST's training images; close enough for the rest of the family.
constexpr ImageConstants kFashionConstants{.mean = {0.2860F}, .deviation = {0.3530F}};

const char* const kRemedy = "copy or download it again";

// Returns "<folder>/<stem>", or the same with .gz; empty when neither exists.
Result<std::string> Find(const std::string& folder, const std::string& stem) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = folder + "/" + stem + suffix;
    RM_ASSIGN(const bool exists, FileExists(path));
    if (exists) return path;
  }
  return std::string();
}

struct IdxFile {
  std::vector<int64_t> dims;
  size_t file = 0;     // of the pool
  uint64_t first = 0;  // offset of its values
  size_t bytes = 0;    // of its values
};

// Parses the header of a file. If it is compressed, its content takes its place in the pool.
Result<IdxFile> Parse(FilePool* pool, size_t file) {
  const std::string& path = pool->path(file);
  const auto describe = [&](const Error& error) { return Problem(error.code, path, error.message, kRemedy); };
  const uint64_t size = pool->size(file);
  std::vector<std::byte> buffer;
  RM_ASSIGN(const std::span<const std::byte> start,
            pool->View(file, 0, static_cast<size_t>(std::min<uint64_t>(size, kIdxStart)), &buffer));
  if (!LooksLikeGzip(start)) {
    auto header = CheckIdx(start, size);
    if (!header.ok()) return describe(header.error());
    return IdxFile{std::move(header->dims), file, header->bytes, static_cast<size_t>(header->elements)};
  }
  if (size > static_cast<uint64_t>(kMaxGzippedIdx)) {
    return Problem(Code::kInvalid, path,
                   fmt::format("has {} bytes, too many to decompress into memory", size),
                   "decompress the file on disk (gunzip)");
  }
  RM_ASSIGN(const std::span<const std::byte> compressed,
            pool->View(file, 0, static_cast<size_t>(size), &buffer));
  auto array = ParseGzippedIdx(compressed);
  if (!array.ok()) return describe(array.error());
  const size_t bytes = array->values.size();
  pool->Replace(file, std::move(array->values));
  return IdxFile{std::move(array->dims), file, 0, bytes};
}

// Opens one file of the pair.
Result<IdxFile> Load(FilePool* pool, const std::string& path, size_t dims, const char* what) {
  RM_ASSIGN(const size_t file, pool->Add(path));
  RM_ASSIGN(IdxFile parsed, Parse(pool, file));
  if (parsed.dims.size() != dims) {
    return Problem(Code::kInvalid, path,
                   fmt::format("has {} dimensions; {} have {}", parsed.dims.size(), what, dims),
                   "check that images and labels are not swapped");
  }
  return parsed;
}

struct Pair {
  ImagePart part;
  int64_t height = 0;
  int64_t width = 0;
  std::string labels_path;
};

Result<Pair> LoadPair(FilePool* pool, const std::string& folder, const std::string& prefix,
                      WorkCounter* counter) {
  const std::string image_stem = prefix + "-images-idx3-ubyte";
  const std::string label_stem = prefix + "-labels-idx1-ubyte";
  Pair pair;
  RM_ASSIGN(const std::string images_path, Find(folder, image_stem));
  RM_ASSIGN(pair.labels_path, Find(folder, label_stem));
  for (const auto& [path, stem] :
       {std::pair{images_path, image_stem}, std::pair{pair.labels_path, label_stem}}) {
    if (path.empty()) {
      return Problem(Code::kNotFound, folder + "/" + stem + "[.gz]", "does not exist",
                     "give the folder with the four files of the MNIST layout");
    }
  }
  pair.part.name = prefix;
  RM_ASSIGN(const IdxFile images, Load(pool, images_path, 3, "images"));
  if (counter != nullptr) counter->Add(1);
  RM_ASSIGN(const IdxFile labels, Load(pool, pair.labels_path, 1, "labels"));
  if (counter != nullptr) counter->Add(1);
  if (images.dims[0] != labels.dims[0]) {
    return Problem(
        Code::kInvalid, images_path,
        fmt::format("has {} images, but {} has {} labels", images.dims[0], pair.labels_path, labels.dims[0]),
        kRemedy);
  }
  pair.height = images.dims[1];
  pair.width = images.dims[2];
  constexpr int64_t kMaxSide = 4096;
  if (pair.height > kMaxSide || pair.width > kMaxSide) {
    return Problem(Code::kInvalid, images_path, fmt::format("has images of {} x {}", pair.height, pair.width),
                   fmt::format("images of at most {0} x {0} are supported", kMaxSide));
  }
  pair.part.count = images.dims[0];
  pair.part.file = images.file;
  pair.part.first = images.first;
  pair.part.record = static_cast<size_t>(pair.height * pair.width);
  std::vector<std::byte> buffer;
  RM_ASSIGN(const std::span<const std::byte> values,
            pool->View(labels.file, labels.first, labels.bytes, &buffer));
  pair.part.labels.assign(values.begin(), values.end());
  return pair;
}

// Returns the number of classes: ten, or more if the training labels need more. Labels above nine must be
// contiguous: a gap shows a damaged byte.
Result<int> Classes(const Pair& train) {
  std::array<int64_t, 256> seen{};
  for (const std::byte label : train.part.labels) ++seen[std::to_integer<size_t>(label)];
  int top = 255;
  while (top > 0 && seen[static_cast<size_t>(top)] == 0) --top;
  for (int label = 1; top >= 10 && label < top; ++label) {
    if (seen[static_cast<size_t>(label)] > 0) continue;
    return Problem(Code::kInvalid, train.labels_path,
                   fmt::format("label {} is out of range: no sample has label {}", top, label), kRemedy);
  }
  return std::max(10, top + 1);
}

Status CheckLabels(const Pair& pair, int classes) {
  for (size_t i = 0; i < pair.part.labels.size(); ++i) {
    const int label = std::to_integer<int>(pair.part.labels[i]);
    if (label < classes) continue;
    return Problem(Code::kInvalid, pair.labels_path,
                   fmt::format("label {} of sample {} is out of range: the training data has {} classes",
                               label, i, classes),
                   kRemedy);
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<Dataset>> OpenIdx(const Config& config, WorkCounter* counter) {
  for (const std::string& folder : {config.path, config.validation_path}) {
    if (folder.empty()) continue;
    RM_TRY(
        CheckFolder(folder, "give the folder with train-images-idx3-ubyte and the files that belong to it"));
  }
  const std::string& folder = config.validation_path.empty() ? config.path : config.validation_path;
  RM_ASSIGN(const std::string test_images, Find(folder, "t10k-images-idx3-ubyte"));
  const bool held_out_files = !config.validation_path.empty() || !test_images.empty();
  if (counter != nullptr) counter->Begin(held_out_files ? 4 : 2);
  auto pool = std::make_unique<FilePool>();
  RM_ASSIGN(Pair train, LoadPair(pool.get(), config.path, "train", counter));
  RM_ASSIGN(const int classes, Classes(train));
  Shape shape{.tokens = false,
              .channels = 1,
              .height = static_cast<int>(train.height),
              .width = static_cast<int>(train.width),
              .classes = classes};
  std::vector<ImagePart> validation;
  if (held_out_files) {
    RM_ASSIGN(Pair held_out, LoadPair(pool.get(), folder, "t10k", counter));
    RM_TRY(CheckLabels(held_out, classes));
    if (held_out.height != train.height || held_out.width != train.width) {
      return Problem(Code::kInvalid, folder,
                     fmt::format("has validation images of {} x {}, training images are {} x {}",
                                 held_out.height, held_out.width, train.height, train.width),
                     "give files of the same data set");
    }
    validation.push_back(std::move(held_out.part));
  }
  std::vector<ImagePart> parts;
  parts.push_back(std::move(train.part));
  return MakeImageDataset(shape, kFashionConstants, std::move(pool), std::move(parts), std::move(validation),
                          config.validation_fraction);
}

}  // namespace ringmaster::data
