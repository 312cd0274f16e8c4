// SPDX-License-Identifier: Apache-2.0

// Which gangs of coscheduling are to be woken, and when. The plug-in tries a refused gang again when a pod is
// created or its PodGroup changes, but not when capacity becomes free. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::kube {

class SleepingGroups {
 public:
  // A gang is woken this long after it was woken before, when capacity has become free since, and after the
  // longer time in any case. The plug-in itself forgets a refusal after three seconds.
  static constexpr Duration kSoon = seconds(3);
  static constexpr Duration kAnyway = seconds(15);

  // Notes whether the job has a gang that waits for nodes.
  void Set(const std::string& job, bool waits, Time now) {
    if (waits)
      woken_.try_emplace(job, now);
    else
      woken_.erase(job);
  }
  void CapacityChanged(Time now) { changed_ = now; }

  // Returns the jobs whose gang is to be woken now.
  std::vector<std::string> Due(Time now) {
    std::vector<std::string> due;
    for (auto& [job, woken] : woken_) {
      if (now < NextOf(woken)) continue;
      woken = now;
      due.push_back(job);
    }
    return due;
  }
  // Returns when the next one is due; kNever: none.
  Time Next() const {
    Time next = kNever;
    for (const auto& [job, woken] : woken_) next = std::min(next, NextOf(woken));
    return next;
  }

 private:
  Time NextOf(Time woken) const { return woken + (changed_ >= woken ? kSoon : kAnyway); }

  std::map<std::string, Time> woken_;  // job -> when its gang was woken the last time, or began to wait
  Time changed_ = Time::min();
};

}  // namespace ringmaster::kube
