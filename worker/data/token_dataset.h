// SPDX-License-Identifier: Apache-2.0

// Text and token files as windows: sample i is tokens [i * context, (i + 1) * context] of the stream, the
// last one being only a target. Windows do not overlap; what is left at the end is not used.
#pragma once

#include <memory>

#include "base/result.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {

Result<std::unique_ptr<Dataset>> OpenTokens(const Config& config);

}  // namespace ringmaster::data
