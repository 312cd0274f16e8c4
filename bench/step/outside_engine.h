// SPDX-License-Identifier: Apache-2.0

// The parts of a step outside the engine, on arrays as large as the model's: exact numerics and the
// all-reduce.
#pragma once

#include <cstdint>

namespace ringmaster::bench {

// Quantise and add one gradient, decode the sum, and its norm. Seconds, minimum over the rounds, one thread.
double NumericsSeconds(int64_t elements, int rounds);

// All-reduce of the integer sums between two ranks of this machine (threads with a fabric each, over shared
// memory). Seconds: the slower rank's, minimum over the rounds.
double AllReduceSeconds(int64_t elements, int rounds);

}  // namespace ringmaster::bench
