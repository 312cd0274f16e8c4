// SPDX-License-Identifier: Apache-2.0

// The steps of a run, summarized in at most a few thousand buckets for a chart. A bucket covers `stride`
// neighbouring steps, a power of two, so a run of any length is drawn quickly and no spike is lost: a bucket
// has the extremes of the loss. Not thread-safe.
//
// Goodput is the share of the time since the first step began that was spent in steps of usual length: a step
// counts at most twice the median (cli/run/goodput.h). A step has no recorded time of day, so its time is
// counted from the event of its generation on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::cli {

class StepBuckets {
 public:
  static constexpr size_t kMaxBuckets = 2000;

  void Add(std::vector<rendezvous::StepRecord> records);
  // When the generations of the newest run were formed, in seconds. Steps up to `resumed_from` belong to
  // earlier runs.
  void SetGenerations(std::map<rendezvous::Generation, double> formed, int64_t resumed_from);
  void Clear();

  const std::vector<rendezvous::StepRecord>& steps() const { return steps_; }
  // The smallest power of two with at most kMaxBuckets buckets for `count` steps.
  static size_t StrideFor(size_t count);

  // Returns the buckets of the steps with index `first` and above, as the JSON object of columns
  // {"stride":..,"from":<index of the first bucket>,"step":[..],"loss":[..],"low":[..],"high":[..],"lr":[..],
  // "rate":[..],"goodput":[..]}. A loss that is not a number is null.
  std::string Json(size_t first, size_t stride) const;
  // The same for the steps from..to, with the stride for that range.
  std::string JsonOfRange(int64_t from_step, int64_t to_step) const;

  double Goodput() const;
  double SamplesPerSecond() const;  // of the newest steps

 private:
  std::string Json(size_t first, size_t last, size_t stride) const;
  void CountUseful(size_t first);

  std::vector<rendezvous::StepRecord> steps_;
  std::vector<double> elapsed_;  // from the begin of the first step to the commit of this one
  std::vector<double> useful_;   // sum of the steps up to this one, at most twice the median each
  std::map<rendezvous::Generation, double> formed_;
  int64_t resumed_from_ = 0;
  double median_ = 0;
  size_t median_of_ = 0;  // number of steps when it was computed
};

}  // namespace ringmaster::cli
