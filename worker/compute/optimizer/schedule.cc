// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <numbers>

#include "base/check.h"
#include "base/portable_math.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {

double Schedule::At(int64_t step) const {
  CHECK(step >= 1, "step {}", step);
  if (step < warmup_steps) return base * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::kConstant || step == warmup_steps) return base;
  // Progress from the first step at the full rate (0) to the step after the last one (1). The last step would
  // otherwise train nothing with a final rate of zero.
  const int64_t first = std::max<int64_t>(warmup_steps, 1);
  const int64_t length = total_steps + 1 - first;
  const double done =
      length <= 0 ? 1 : std::clamp(static_cast<double>(step - first) / static_cast<double>(length), 0.0, 1.0);
  if (done == 1) return final;  // exact, independent of the rounding of cos
  const double left =
      kind == ScheduleKind::kLinear ? 1 - done : 0.5 * (1 + portable::SinCos(std::numbers::pi * done).cosine);
  return final + (base - final) * left;
}

}  // namespace ringmaster::optimizer
