// SPDX-License-Identifier: Apache-2.0

// The members of a log line that say which job it is about, and which pods and which gang of it. Every line
// of the operator about a job begins with them. Pure.
#pragma once

#include <fmt/format.h>

#include <string>

#include "operator/control/backend.h"
#include "rendezvous/messages.h"

namespace ringmaster::control {

inline std::string JobTag(const Key& key, int64_t attempt, rendezvous::Generation generation) {
  return fmt::format("job={} attempt={} generation={}", key.ToString(), attempt, generation);
}
inline std::string JobTag(const Key& key, const core::Status& status) {
  return JobTag(key, status.ledger.attempt, status.display.gang_generation);
}

}  // namespace ringmaster::control
