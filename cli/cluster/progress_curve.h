// SPDX-License-Identifier: Apache-2.0

// The progress of a job over its steps, merged from the logs of its workers and from what status.progress had
// at each write that was seen. Points arrive in any order, and a step may arrive several times: from several
// logs, or because it was done again after a failure; it counts once, and the first value of it stays.
//
// Long curves are thinned: at most kMaxPoints points, the newest of each `stride` steps, with the extremes of
// the loss. Not thread-safe.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace ringmaster::cli {

class ProgressCurve {
 public:
  static constexpr size_t kMaxPoints = 2000;
  static constexpr size_t kMaxValidations = 500;
  static constexpr int64_t kMaxStride = int64_t{1} << 53;

  // NaN where a value is missing.
  struct Point {
    int64_t step = 0;
    double loss = NAN;
    double samples_per_second = NAN;
    double goodput = NAN;
    double learning_rate = NAN;
  };

  // REQUIRES: the step is at least 0.
  void Add(const Point& point);
  void AddValidation(int64_t step, double loss);
  void Clear();

  // Rises with each change. `rewritten` only rises with those that change more than the last point or append
  // points: a reader of version v that has n points needs those from n - 1 on, unless the curve was
  // rewritten.
  uint64_t version() const { return version_; }
  uint64_t rewritten() const { return rewritten_; }
  int64_t stride() const { return stride_; }
  size_t size() const { return points_.size(); }
  // Returns the points from index `first` on, in the format of StepBuckets::Json. A learning rate or goodput
  // that a point does not have is that of the point before.
  std::string Json(size_t first) const;
  std::string JsonOfRange(int64_t from_step, int64_t to_step) const;
  std::vector<double> Losses() const;
  // {"step":[..],"loss":[..]}, as page_json.h's ValidationJson; null without a validation.
  ringmaster::Json Validations() const;

 private:
  struct Entry {
    Point point;
    double low = NAN;  // of the losses of all points that this one stands for
    double high = NAN;
  };
  using Points = std::map<int64_t, Entry>;  // by step / stride_

  static bool Merge(const Entry& entry, Entry* into);
  void Thin();
  std::string Json(Points::const_iterator first, Points::const_iterator last, size_t from) const;

  Points points_;
  int64_t stride_ = 1;
  std::map<int64_t, double> validations_;
  uint64_t version_ = 0;
  uint64_t rewritten_ = 0;
};

}  // namespace ringmaster::cli
