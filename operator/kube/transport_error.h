// SPDX-License-Identifier: Apache-2.0

// Classifies a failed HTTP exchange: surely not done, perhaps done, or cancelled. The HTTP library reports
// the stage as text and an error number without its category, so the text decides. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::kube {

struct TransportFailure {
  Error error;
  // The connection broke while the request was being written. The server cannot have all of it, and most
  // often the server had closed a pooled connection: send it again at once.
  bool send_again = false;
};

// `stage` and `number` as the library reports them; `gave_up`: this process cancelled the exchange.
TransportFailure ClassifyFailure(std::string_view stage, int number, bool gave_up);

}  // namespace ringmaster::kube
