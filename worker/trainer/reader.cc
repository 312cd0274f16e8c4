// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/reader.h"

#include <numeric>
#include <span>

namespace ringmaster::trainer {
namespace {

template <class T>
std::span<T> FirstOf(std::vector<T>& values, size_t count) {
  return std::span(values).first(count);
}

}  // namespace

MicroBatchReader::MicroBatchReader(const data::Dataset& dataset, int max_samples) : dataset_(dataset) {
  const data::Shape& shape = dataset.shape();
  const auto samples = static_cast<size_t>(max_samples);
  indices_.reserve(samples);
  if (shape.tokens) {
    tokens_.resize(samples * static_cast<size_t>(shape.context));
    targets_.resize(tokens_.size());
  } else {
    images_.resize(samples * static_cast<size_t>(shape.channels * shape.height * shape.width));
    targets_.resize(samples);
  }
}

engine::Batch MicroBatchReader::Train(uint64_t seed, int64_t epoch, int64_t begin, int64_t end) {
  const int64_t size = dataset_.size(data::Split::kTrain);
  indices_.clear();
  for (int64_t p = begin; p < end; ++p) indices_.push_back(data::Permute(seed, epoch, size, p));
  return Fill(data::Split::kTrain);
}

engine::Batch MicroBatchReader::Validation(int64_t begin, int64_t end) {
  indices_.resize(static_cast<size_t>(end - begin));
  std::iota(indices_.begin(), indices_.end(), begin);
  return Fill(data::Split::kValidation);
}

engine::Batch MicroBatchReader::Fill(data::Split split) {
  const data::Shape& shape = dataset_.shape();
  const size_t n = indices_.size();
  engine::Batch batch;
  batch.samples = static_cast<int>(n);
  data::Buffers buffers;
  if (shape.tokens) {
    const size_t tokens = n * static_cast<size_t>(shape.context);
    buffers.tokens = FirstOf(tokens_, tokens);
    buffers.targets = FirstOf(targets_, tokens);
  } else {
    buffers.images = FirstOf(images_, n * static_cast<size_t>(shape.channels * shape.height * shape.width));
    buffers.targets = FirstOf(targets_, n);
  }
  if (n > 0) dataset_.Read(split, indices_, buffers);
  batch.tokens = buffers.tokens;
  batch.images = buffers.images;
  batch.targets = buffers.targets;
  return batch;
}

}  // namespace ringmaster::trainer
