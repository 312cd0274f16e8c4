// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/partial_sums.h"

#include <algorithm>

#include "base/check.h"

namespace ringmaster::trainer {

PartialSums::PartialSums(int micro_batches, int buckets)
    : micro_batches_(micro_batches),
      contains_(static_cast<size_t>(micro_batches) * static_cast<size_t>(buckets)),
      terms_(static_cast<size_t>(buckets)),
      complete_(static_cast<size_t>(micro_batches)),
      losses_(static_cast<size_t>(micro_batches)),
      weights_(static_cast<size_t>(micro_batches)) {}

bool PartialSums::Begin(uint64_t version, const std::vector<int32_t>& exponents, int first, int end) {
  if (reduced_ || version_ != version || exponents_ != exponents || HasTermOutside(first, end)) Forget();
  version_ = version;
  exponents_ = exponents;
  return std::ranges::any_of(terms_, [](int terms) { return terms > 0; });
}

void PartialSums::Add(int micro_batch, int bucket) {
  CHECK(!Contains(micro_batch, bucket));
  contains_[Index(micro_batch, bucket)] = true;
  ++terms_[static_cast<size_t>(bucket)];
}

void PartialSums::Complete(int micro_batch, double loss, double weight) {
  complete_[static_cast<size_t>(micro_batch)] = true;
  losses_[static_cast<size_t>(micro_batch)] = loss;
  weights_[static_cast<size_t>(micro_batch)] = weight;
}

void PartialSums::Forget() {
  version_ = 0;
  reduced_ = false;
  std::fill(contains_.begin(), contains_.end(), false);
  std::fill(terms_.begin(), terms_.end(), 0);
  std::fill(complete_.begin(), complete_.end(), false);
}

bool PartialSums::HasTermOutside(int first, int end) const {
  for (int v = 0; v < micro_batches_; ++v) {
    if (v >= first && v < end) continue;
    for (int bucket = 0; bucket < static_cast<int>(terms_.size()); ++bucket)
      if (Contains(v, bucket)) return true;
  }
  return false;
}

}  // namespace ringmaster::trainer
