// The display part of the status, computed from the ledger and the world. Pure.
#pragma once

#include "operator/core/model.h"

namespace ringmaster::core {

// The display that fits `observed` now; `observed.status` supplies the ledger and the times of the last
// transitions.
Display Summarize(const Observed& observed, Time now);

// Equal but for progress numbers, which are written at most once per interval.
bool EqualButProgress(const Display& a, const Display& b);

}  // namespace ringmaster::core
