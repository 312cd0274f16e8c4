// SPDX-License-Identifier: Apache-2.0

// The picture of `ringmaster plot`: the losses of all runs on top of each other, and below them the gang of
// each run over time. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/history/recorded_run.h"
#include "cli/plot/picture.h"

namespace ringmaster::cli {

enum class ChartPart : uint8_t { kAll, kLoss, kGang };

// A run without events has no gang to show.
Picture DrawChart(const std::vector<RecordedRun>& runs, ChartPart part);

// Returns a sentence when the runs have steps in common and every loss of them is equal, bit for bit; empty
// otherwise, and for a single run.
std::string EqualLossesText(const std::vector<RecordedRun>& runs);

// Returns "7 generations, 3 failures, 3 recoveries of 24 ms (median)".
std::string GangText(const GangTimeline& timeline);

}  // namespace ringmaster::cli
