// SPDX-License-Identifier: Apache-2.0

// Text and token files as samples: sample i is tokens [i * context, (i + 1) * context] of the stream; its
// last token is only a target. Samples do not overlap otherwise; a rest at the end is not used.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/work_counter.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {

Result<std::unique_ptr<Dataset>> OpenTokens(const Config& config, WorkCounter* counter);

}  // namespace ringmaster::data
