// SPDX-License-Identifier: Apache-2.0

#include "worker/data/image_dataset.h"

#include <algorithm>

#include "base/check.h"
#include "worker/data/content_hasher.h"
#include "worker/data/fingerprint.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace {

int64_t Count(const std::vector<ImagePart>& parts) {
  int64_t count = 0;
  for (const ImagePart& part : parts) count += part.count;
  return count;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(const Shape& shape, const ImageConstants& constants, std::unique_ptr<FilePool> pool,
               std::vector<ImagePart> train, std::vector<ImagePart> validation, double validation_fraction)
      : shape_(shape), pool_(std::move(pool)), parts_(std::move(train)), validation_(std::move(validation)) {
    const int64_t count = Count(parts_);
    held_out_ = validation_.empty() ? static_cast<int64_t>(static_cast<double>(count) * validation_fraction)
                                    : Count(validation_);
    train_ = validation_.empty() ? count - held_out_ : count;
    scaled_.resize(static_cast<size_t>(shape.channels));
    for (size_t c = 0; c < scaled_.size(); ++c) {
      for (size_t byte = 0; byte < 256; ++byte) {
        scaled_[c][byte] = (static_cast<float>(byte) / 255.0F - constants.mean[c]) / constants.deviation[c];
      }
    }
  }

  const Shape& shape() const override { return shape_; }
  int64_t size(Split split) const override { return split == Split::kTrain ? train_ : held_out_; }

  // Computes the fingerprint and checks labels. Call it once, before the first use.
  Status Sample() {
    data::Fingerprint fingerprint;
    for (const int64_t number :
         {int64_t{shape_.channels}, int64_t{shape_.height}, int64_t{shape_.width}, train_, held_out_}) {
      fingerprint.Add(number);
    }
    for (const auto* parts : {&parts_, &validation_}) {
      for (const ImagePart& part : *parts) {
        fingerprint.Add(part.name);
        fingerprint.Add(part.count);
        const uint64_t bytes = static_cast<uint64_t>(part.count) * part.record;
        RM_TRY(SampleRange(part, part.first + part.pixels, bytes - part.pixels, &fingerprint));
        if (part.labels.empty()) {
          RM_TRY(SampleRange(part, part.first, bytes, &fingerprint));
          if (pool_->held(part.file)) {
            std::vector<std::byte> unused;
            RM_ASSIGN(const std::span<const std::byte> all,
                      pool_->View(part.file, part.first, bytes, &unused));
            RM_TRY(CheckLabelsIn(part, part.first, all));
          }
        } else {
          fingerprint.Add(static_cast<int64_t>(part.labels.size()));
          for (const Piece& piece : SamplePieces(part.labels.size()))
            fingerprint.Add(std::span(part.labels).subspan(piece.offset, piece.bytes));
        }
      }
    }
    fingerprint_ = fingerprint.value();
    return Ok();
  }

  Status Read(Split split, std::span<const int64_t> indices, const Buffers& out) const override {
    const auto plane = static_cast<size_t>(shape_.height * shape_.width);
    const size_t pixels = plane * scaled_.size();
    CHECK(out.images.size() == indices.size() * pixels && out.targets.size() == indices.size(),
          "buffers of {} pixels and {} targets for {} samples", out.images.size(), out.targets.size(),
          indices.size());
    for (const int64_t index : indices) {
      CHECK(index >= 0 && index < size(split), "sample {} of {}", index, size(split));
      const auto [part, at] = Find(split, index);
      pool_->Announce(part->file, part->first + static_cast<uint64_t>(at) * part->record, part->record);
    }
    std::vector<std::byte> buffer;
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto [part, at] = Find(split, indices[i]);
      const uint64_t offset = part->first + static_cast<uint64_t>(at) * part->record;
      RM_ASSIGN(const std::span<const std::byte> record,
                pool_->View(part->file, offset, part->record, &buffer));
      const std::byte* image = record.data() + part->pixels;
      float* to = out.images.data() + i * pixels;
      for (const auto& table : scaled_) {
        for (size_t p = 0; p < plane; ++p) *to++ = table[std::to_integer<size_t>(*image++)];
      }
      const std::byte label = part->labels.empty() ? record.front() : part->labels[static_cast<size_t>(at)];
      RM_TRY(CheckLabel(*part, at, label));
      out.targets[i] = std::to_integer<int32_t>(label);
    }
    return Ok();
  }

  Comparison* comparison() const override { return pool_->comparison(); }
  uint64_t Fingerprint() const override { return fingerprint_; }

  Result<ContentHash> HashContent(const ContentHashOptions& options) const override {
    ContentHasher hasher(*pool_, options, fingerprint_);
    for (const int64_t number :
         {int64_t{shape_.channels}, int64_t{shape_.height}, int64_t{shape_.width}, train_, held_out_}) {
      hasher.Add(number);
    }
    for (const auto* parts : {&parts_, &validation_}) {
      for (const ImagePart& part : *parts) {
        hasher.Add(part.name);
        RM_TRY(hasher.AddRange(part.file, part.first, static_cast<uint64_t>(part.count) * part.record));
        hasher.AddBytes(part.labels);
      }
    }
    return hasher.value();
  }

 private:
  struct Place {
    const ImagePart* part;
    int64_t at;
  };

  // Returns where sample `index` is.
  Place Find(Split split, int64_t index) const {
    const bool apart = split == Split::kValidation && !validation_.empty();
    const std::vector<ImagePart>& parts = apart ? validation_ : parts_;
    int64_t at = index + (split == Split::kValidation && !apart ? train_ : 0);
    auto part = parts.begin();
    for (; at >= part->count; ++part) at -= part->count;
    return {&*part, at};
  }

  // Adds the size and the sampled pieces of a range of the part's file, and checks the labels in them.
  Status SampleRange(const ImagePart& part, uint64_t offset, uint64_t bytes,
                     data::Fingerprint* fingerprint) const {
    std::vector<std::byte> buffer;
    fingerprint->Add(static_cast<int64_t>(bytes));
    for (const Piece& piece : SamplePieces(bytes)) {
      RM_ASSIGN(const std::span<const std::byte> view,
                pool_->View(part.file, offset + piece.offset, piece.bytes, &buffer));
      fingerprint->Add(view);
      if (part.labels.empty()) RM_TRY(CheckLabelsIn(part, offset + piece.offset, view));
    }
    return Ok();
  }

  // Checks the labels of the records that begin in `bytes`, which are at `offset` of the part's file.
  Status CheckLabelsIn(const ImagePart& part, uint64_t offset, std::span<const std::byte> bytes) const {
    const uint64_t past = (offset - part.first) % part.record;
    uint64_t at = past == 0 ? 0 : part.record - past;
    for (; at < bytes.size(); at += part.record) {
      const auto sample = static_cast<int64_t>((offset - part.first + at) / part.record);
      RM_TRY(CheckLabel(part, sample, bytes[at]));
    }
    return Ok();
  }

  Status CheckLabel(const ImagePart& part, int64_t sample, std::byte label) const {
    const int value = std::to_integer<int>(label);
    if (value < shape_.classes) return Ok();
    return Problem(
        Code::kInvalid, pool_->path(part.file),
        fmt::format("label {} of sample {} is out of range (0 to {})", value, sample, shape_.classes - 1),
        "check the kind of the data, and download it again");
  }

  Shape shape_;
  std::unique_ptr<FilePool> pool_;
  std::vector<ImagePart> parts_;
  std::vector<ImagePart> validation_;
  int64_t train_ = 0;
  int64_t held_out_ = 0;
  std::vector<std::array<float, 256>> scaled_;  // (C, 256): the value of every byte
  uint64_t fingerprint_ = 0;
};

}  // namespace

Result<std::unique_ptr<Dataset>> MakeImageDataset(const Shape& shape, const ImageConstants& constants,
                                                  std::unique_ptr<FilePool> pool,
                                                  std::vector<ImagePart> train,
                                                  std::vector<ImagePart> validation,
                                                  double validation_fraction) {
  auto dataset = std::make_unique<ImageDataset>(shape, constants, std::move(pool), std::move(train),
                                                std::move(validation), validation_fraction);
  RM_TRY(dataset->Sample());
  return std::unique_ptr<Dataset>(std::move(dataset));
}

}  // namespace ringmaster::data
