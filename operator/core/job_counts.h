// SPDX-License-Identifier: Apache-2.0

// JobCounts: the parts of a job's status that metrics count. No part ever decreases, so the difference of two
// values of one job is what happened in between. Pure.
#pragma once

#include <cstdint>

#include "operator/core/job.h"
#include "operator/core/status.h"

namespace ringmaster::core {

struct JobCounts {
  int32_t restarts = 0;
  int32_t charged = 0;  // of these
  bool ended = false;
  bool stepped = false;  // only in place: a step was committed
  // Raises each part to at least that of `other`.
  void Raise(const JobCounts& other);
  bool operator==(const JobCounts&) const = default;
};

JobCounts JobCountsOf(const Job& job, const Status& status);

}  // namespace ringmaster::core
