// SPDX-License-Identifier: Apache-2.0

// Measures the parts of a step outside the engine, on arrays of the model's size: exact numerics and the
// all-reduce.
#pragma once

#include <cstdint>

namespace ringmaster::bench {

// Returns the seconds to quantise and add one gradient, decode the sum, and compute its norm: the minimum
// over the rounds, on one thread.
double NumericsSeconds(int64_t elements, int rounds);

// Returns the seconds of an all-reduce of integer sums between two ranks of this machine (threads, each with
// a fabric, over shared memory): those of the slower rank, minimum over the rounds.
double AllReduceSeconds(int64_t elements, int rounds);

}  // namespace ringmaster::bench
