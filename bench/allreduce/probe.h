// SPDX-License-Identifier: Apache-2.0

// The current state of the machine. Virtual machines change between states in which the same program is twice
// as fast or as slow; a number without its state says little.
#pragma once

namespace ringmaster::bench {

// Prints, for two processes, microseconds per exchange of a cache line and GB/s of both summing private
// arrays.
void PrintProbe();

}  // namespace ringmaster::bench
