// SPDX-License-Identifier: Apache-2.0

#include "worker/data/image_dataset.h"

#include <algorithm>

#include "base/check.h"
#include "worker/data/fingerprint.h"

namespace ringmaster::data {
namespace {

int64_t Count(const std::vector<ImagePart>& parts) {
  int64_t count = 0;
  for (const ImagePart& part : parts) count += part.count;
  return count;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(const Shape& shape, const ImageConstants& constants, std::vector<ImagePart> train,
               std::vector<ImagePart> validation, double validation_fraction)
      : shape_(shape), parts_(std::move(train)), validation_(std::move(validation)) {
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

  void Read(Split split, std::span<const int64_t> indices, const Buffers& out) const override {
    const auto plane = static_cast<size_t>(shape_.height * shape_.width);
    const size_t pixels = plane * scaled_.size();
    CHECK(out.images.size() == indices.size() * pixels && out.targets.size() == indices.size(),
          "buffers of {} pixels and {} targets for {} samples", out.images.size(), out.targets.size(),
          indices.size());
    const bool apart = split == Split::kValidation && !validation_.empty();
    const std::vector<ImagePart>& parts = apart ? validation_ : parts_;
    for (size_t i = 0; i < indices.size(); ++i) {
      CHECK(indices[i] >= 0 && indices[i] < size(split), "sample {} of {}", indices[i], size(split));
      int64_t at = indices[i] + (split == Split::kValidation && !apart ? train_ : 0);
      auto part = parts.begin();
      for (; at >= part->count; ++part) at -= part->count;
      const std::byte* image = part->images.data() + static_cast<size_t>(at) * part->image_stride;
      float* to = out.images.data() + i * pixels;
      for (const auto& table : scaled_) {
        for (size_t p = 0; p < plane; ++p) *to++ = table[std::to_integer<size_t>(*image++)];
      }
      out.targets[i] = std::to_integer<int32_t>(part->labels[static_cast<size_t>(at) * part->label_stride]);
    }
  }

  uint64_t Fingerprint() const override {
    data::Fingerprint fingerprint;
    for (const int64_t number :
         {int64_t{shape_.channels}, int64_t{shape_.height}, int64_t{shape_.width}, train_, held_out_}) {
      fingerprint.Add(number);
    }
    for (const auto* parts : {&parts_, &validation_}) {
      for (const ImagePart& part : *parts) {
        fingerprint.Add(part.name);
        fingerprint.Add(part.count);
        fingerprint.AddSampled(part.images);
        fingerprint.AddSampled(part.labels);
      }
    }
    return fingerprint.value();
  }

 private:
  Shape shape_;
  std::vector<ImagePart> parts_;
  std::vector<ImagePart> validation_;
  int64_t train_ = 0;
  int64_t held_out_ = 0;
  std::vector<std::array<float, 256>> scaled_;  // (C, 256): the value of every byte
};

}  // namespace

std::unique_ptr<Dataset> MakeImageDataset(const Shape& shape, const ImageConstants& constants,
                                          std::vector<ImagePart> train, std::vector<ImagePart> validation,
                                          double validation_fraction) {
  return std::make_unique<ImageDataset>(shape, constants, std::move(train), std::move(validation),
                                        validation_fraction);
}

}  // namespace ringmaster::data
