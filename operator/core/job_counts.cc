// SPDX-License-Identifier: Apache-2.0

#include "operator/core/job_counts.h"

#include <algorithm>

namespace ringmaster::core {

void JobCounts::Raise(const JobCounts& other) {
  restarts = std::max(restarts, other.restarts);
  charged = std::max(charged, other.charged);
  ended = ended || other.ended;
  stepped = stepped || other.stepped;
}

JobCounts JobCountsOf(const Job& job, const Status& status) {
  const Ledger& ledger = status.ledger;
  return {ledger.restarts.total, ledger.restarts.charged, status.ended(),
          job.in_place && (ledger.time_accounting == TimeAccounting::kProductive ||
                           ledger.goodput.productive > Duration{0})};
}

}  // namespace ringmaster::core
