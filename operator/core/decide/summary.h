// SPDX-License-Identifier: Apache-2.0

// Summarize: the display part of the status, computed from the ledger and from what was observed. Pure.
#pragma once

#include "operator/core/model.h"

namespace ringmaster::core {

// Returns the display for `observed` and `ledger`. The times of the last transitions come from
// `observed.status`.
Display Summarize(const Observed& observed, const Ledger& ledger, Time now);

// Returns the current display with Admitted set to the reason why the spec is invalid.
Display SummarizeInvalid(const Observed& observed, Time now);

// Whether two displays differ at most in details, which are written once per interval: progress, pod counts,
// and the message of a condition whose reason is the same.
bool EqualIgnoringDetails(const Display& a, const Display& b);

// Returns the condition reason of a refusal.
Reason ReasonOf(RefusalKind kind);

}  // namespace ringmaster::core
