// SPDX-License-Identifier: Apache-2.0

// What kind of refusal an answer of the world is. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "operator/core/model.h"

namespace ringmaster::core {

// nullopt: not a refusal, the same write may be taken the next time.
std::optional<RefusalKind> ClassifyRefusal(const Error& error);

// How long to wait after the n-th refusal in a row: nobody tells us when a quota is raised.
Duration RefusalPause(int32_t in_a_row);

}  // namespace ringmaster::core
