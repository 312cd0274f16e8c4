// SPDX-License-Identifier: Apache-2.0

// The progress of a job over its steps, as status.progress had it at each write that was seen. A cluster
// keeps only the newest value, so the curve begins when it is first watched. Long curves are thinned: at most
// kMaxPoints points, one per `stride` writes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::cli {

class ProgressCurve {
 public:
  static constexpr size_t kMaxPoints = 2000;

  struct Point {
    int64_t step = 0;
    double loss = 0;  // NaN where a value is missing
    double samples_per_second = 0;
    double goodput = 0;
  };

  // Ignores a point that is not after the newest one.
  void Add(const Point& point);
  void Clear();

  size_t stride() const { return stride_; }
  size_t size() const { return points_.size(); }
  // Returns the points from index `first` on, in the format of StepBuckets::Json.
  std::string Json(size_t first) const;
  std::string JsonOfRange(int64_t from_step, int64_t to_step) const;

 private:
  std::string Json(size_t first, size_t last) const;

  std::vector<Point> points_;
  size_t stride_ = 1;
  size_t skipped_ = 0;  // points since the last one that was kept
  int64_t newest_ = -1;
};

}  // namespace ringmaster::cli
