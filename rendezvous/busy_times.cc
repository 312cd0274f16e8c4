// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/busy_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ringmaster::rendezvous {
namespace {

constexpr int64_t kMaxWindowSteps = int64_t{1} << 40;  // sums of them do not overflow

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds >= 0 && seconds < 1e9; }

}  // namespace

double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<double> ImbalanceOf(const GangBusyTimes& times) {
  std::vector<double> seconds;
  for (const RankBusyTime& rank : times.ranks)
    if (rank.steps > 0) seconds.push_back(rank.seconds);
  if (seconds.size() < 2) return std::nullopt;
  const double slowest = *std::max_element(seconds.begin(), seconds.end());
  const double median = LowerMedian(std::move(seconds));
  return median > 0 ? std::optional(slowest / median) : std::nullopt;
}

BusyWindow::BusyWindow(Generation generation, std::vector<std::string> pods) {
  times_.generation = generation;
  times_.ranks.resize(pods.size());
  times_.pods = std::make_shared<const std::vector<std::string>>(std::move(pods));
}

void BusyWindow::Add(size_t rank, const BusyTime& busy) {
  if (busy.steps < 1 || busy.micro_batches < 1 || !IsTime(busy.seconds) || !IsTime(busy.longest)) return;
  RankBusyTime& sum = times_.ranks[rank];
  if (sum.steps == 0) ++reported_;
  const int64_t steps = std::min(busy.steps, kMaxWindowSteps);
  const auto before = static_cast<double>(sum.steps);
  const auto added = static_cast<double>(steps);
  sum.seconds = (sum.seconds * before + busy.seconds * added) / (before + added);
  sum.steps = std::min(sum.steps + steps, kMaxWindowSteps);
  sum.longest = std::max(sum.longest, busy.longest);
  sum.micro_batches = busy.micro_batches;
  times_.step = std::max(times_.step, busy.step);
}

std::optional<GangBusyTimes> BusyWindow::Close(Time now) {
  if (!began_) began_ = now;
  const Duration age = now - *began_;
  const bool complete = reported_ == times_.ranks.size();
  if (reported_ == 0 || age < (complete ? kLeast : kLongest)) return std::nullopt;
  GangBusyTimes closed = times_;
  times_.ranks.assign(times_.ranks.size(), {});
  reported_ = 0;
  began_ = now;
  return closed;
}

}  // namespace ringmaster::rendezvous
