// SPDX-License-Identifier: Apache-2.0

// Image data sets: bytes with labels, in any of the supported file formats.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_counter.h"
#include "worker/data/dataset.h"
#include "worker/data/file_pool.h"

namespace ringmaster::data {

// A part of the samples: record i is `record` bytes of the file at first + i * record, and its pixels start
// `pixels` bytes into it. The label is labels[i], or the first byte of the record when `labels` is empty.
struct ImagePart {
  std::string name;
  int64_t count = 0;
  size_t file = 0;  // of the pool
  uint64_t first = 0;
  size_t record = 0;
  size_t pixels = 0;
  std::vector<std::byte> labels;
};

struct ImageConstants {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};

// Without validation parts, the last `validation_fraction` of the training samples are held out. A label
// outside shape.classes is an error when its sample is read; MakeImageDataset finds it earlier in files that
// the pool holds in memory and in the sampled pieces of others.
Result<std::unique_ptr<Dataset>> MakeImageDataset(const Shape& shape, const ImageConstants& constants,
                                                  std::unique_ptr<FilePool> pool,
                                                  std::vector<ImagePart> train,
                                                  std::vector<ImagePart> validation,
                                                  double validation_fraction);

// Opens a folder of the MNIST family: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain or .gz.
// `counter` counts files, here and below; it may be null.
Result<std::unique_ptr<Dataset>> OpenIdx(const Config& config, WorkCounter* counter);

// Opens the binary version of CIFAR-10: data_batch_*.bin and test_batch.bin.
Result<std::unique_ptr<Dataset>> OpenCifar10(const Config& config, WorkCounter* counter);

}  // namespace ringmaster::data
