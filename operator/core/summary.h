// SPDX-License-Identifier: Apache-2.0

// The display part of the status, computed from the ledger and the world. Pure.
#pragma once

#include "operator/core/model.h"

namespace ringmaster::core {

// The display that fits `observed` and `ledger` now; `observed.status` supplies the times of the last
// transitions.
Display Summarize(const Observed& observed, const Ledger& ledger, Time now);

// The display as it stands, with Admitted saying why the wish cannot be carried out.
Display SummarizeInvalid(const Observed& observed, Time now);

// Equal but for numbers and words, which are written at most once per interval: progress, counts of pods, the
// message of a condition whose reason is the same.
bool EqualIgnoringDetails(const Display& a, const Display& b);

// The reason under which a refusal appears.
Reason ReasonOf(RefusalKind kind);

}  // namespace ringmaster::core
