// SPDX-License-Identifier: Apache-2.0

// Image data sets: bytes with labels, in any of the supported file formats.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/data/dataset.h"
#include "worker/data/file_view.h"

namespace ringmaster::data {

// A part of the samples: image i starts at images[i * image_stride], and its label is labels[i *
// label_stride]. The bytes belong to `files` or `owned`.
struct ImagePart {
  std::string name;
  int64_t count = 0;
  size_t image_stride = 0;
  size_t label_stride = 0;
  std::span<const std::byte> images;  // from the first pixel of the first image
  std::span<const std::byte> labels;  // from the first label
  std::vector<FileView> files;
  std::vector<std::vector<std::byte>> owned;
};

struct ImageConstants {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};

// Without validation parts, the last `validation_fraction` of the training samples are held out. REQUIRES:
// all labels are below shape.classes.
std::unique_ptr<Dataset> MakeImageDataset(const Shape& shape, const ImageConstants& constants,
                                          std::vector<ImagePart> train, std::vector<ImagePart> validation,
                                          double validation_fraction);

// Opens a folder of the MNIST family: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain or .gz.
Result<std::unique_ptr<Dataset>> OpenIdx(const Config& config);

// Opens the binary version of CIFAR-10: data_batch_*.bin and test_batch.bin.
Result<std::unique_ptr<Dataset>> OpenCifar10(const Config& config);

}  // namespace ringmaster::data
