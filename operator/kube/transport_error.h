// SPDX-License-Identifier: Apache-2.0

// What a failed exchange means for whoever asked: surely not done, perhaps done, or given up. The HTTP
// library says at which stage it failed in words, and a number that has lost its category: the words decide.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster::kube {

struct TransportFailure {
  Error error;
  // The connection was lost while the request was being written: the server cannot have it whole, and most
  // often it is a pooled connection that was closed meanwhile. Sending again at once is right.
  bool send_again = false;
};

// `stage` and `number` as the library reports them; `gave_up`: we cancelled it.
TransportFailure ClassifyFailure(std::string_view stage, int number, bool gave_up);

}  // namespace ringmaster::kube
