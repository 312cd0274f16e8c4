// SPDX-License-Identifier: Apache-2.0

// Finds where two runs begin to differ, for people who search for an operation that is not deterministic.
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/compare/run_digests.h"
#include "cli/history/recorded_run.h"

namespace ringmaster::cli {

struct Comparison {
  // The first difference, for people, in a few lines; empty: what both runs have is equal.
  std::string difference;
  // What only one of the runs has, for people; empty: nothing, or the runs differ.
  std::string unpaired;
  // What both runs have and was equal before the first difference.
  int64_t micro_batches = 0;
  int64_t states = 0;
  int64_t last_step = -1;  // -1: no step
};

// Compares in the order of computation: the micro-batches of a step, its commit, the state after it. All
// records of a run must be equal, too, so workers that differ within a run are found as well.
Comparison CompareDigests(const RunDigests& first, const RunDigests& second);

// The same by the losses, gradient norms and learning rates that every run records.
Comparison CompareMetrics(const RecordedRun& first, const RecordedRun& second);

}  // namespace ringmaster::cli
