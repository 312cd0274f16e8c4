// SPDX-License-Identifier: Apache-2.0

// PartialSums records which micro-batches the gradient sums of a rank contain, so that a step that was
// interrupted need not compute them again.
//
// Exact sums do not depend on the order of their terms. After the loss of a member a survivor therefore keeps
// what its sums contain already, and adds only the other micro-batches of its new, larger share. Terms are
// recorded per bucket, because the interruption may come within a backward pass. Once a bucket is reduced
// over the members it holds terms of other ranks as well, and nothing of that attempt can be kept.
//
// A pure record: it knows neither the sums nor the device. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace ringmaster::trainer {

// Returns the first of the contiguous micro-batches that `owner` of `owners` owns.
inline int FirstMicroBatch(int micro_batches, int owners, int owner) {
  return static_cast<int>(int64_t{micro_batches} * owner / owners);
}

class PartialSums {
 public:
  PartialSums(int micro_batches, int buckets);

  // Begins an attempt at a step for the micro-batches [first, end). Keeps the terms of the previous attempt
  // if all of them are terms of this one: `version` identifies the parameters, and both attempts quantise
  // with the same exponents. Returns whether anything was kept.
  bool Begin(uint64_t version, const std::vector<int32_t>& exponents, int first, int end);

  // The bucket contains the micro-batch. REQUIRES: it did not.
  void Add(int micro_batch, int bucket);
  // The micro-batch is computed: its loss and its weight are known, and every bucket contains it.
  void Complete(int micro_batch, double loss, double weight = 1);
  // A bucket is going to hold terms of other ranks.
  void Reduce() { reduced_ = true; }
  // The sums are lost.
  void Forget();

  bool Contains(int micro_batch, int bucket) const { return contains_[Index(micro_batch, bucket)]; }
  // The bucket contains nothing: the next term overwrites it.
  bool Empty(int bucket) const { return terms_[static_cast<size_t>(bucket)] == 0; }
  bool IsComplete(int micro_batch) const { return complete_[static_cast<size_t>(micro_batch)]; }
  // REQUIRES: IsComplete.
  double loss(int micro_batch) const { return losses_[static_cast<size_t>(micro_batch)]; }
  double weight(int micro_batch) const { return weights_[static_cast<size_t>(micro_batch)]; }

 private:
  size_t Index(int micro_batch, int bucket) const {
    return static_cast<size_t>(micro_batch) * terms_.size() + static_cast<size_t>(bucket);
  }
  bool HasTermOutside(int first, int end) const;

  int micro_batches_;
  uint64_t version_ = 0;  // 0: no attempt
  std::vector<int32_t> exponents_;
  bool reduced_ = false;
  std::vector<bool> contains_;  // by micro-batch and bucket
  std::vector<int> terms_;      // by bucket
  std::vector<bool> complete_;  // by micro-batch
  std::vector<double> losses_;
  std::vector<double> weights_;
};

}  // namespace ringmaster::trainer
