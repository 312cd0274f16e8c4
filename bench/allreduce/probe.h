// SPDX-License-Identifier: Apache-2.0

// What kind of machine this is at the moment. Virtual machines move between states in which the same program
// is twice as fast or slow; a number without its state says little.
#pragma once

namespace ringmaster::bench {

// Two processes: microseconds per exchange of a cache line, and GB/s of both summing private arrays.
void PrintProbe();

}  // namespace ringmaster::bench
