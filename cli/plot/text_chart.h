// SPDX-License-Identifier: Apache-2.0

// The chart of `ringmaster plot` in a terminal: the losses in Braille dots, a line per worker, the
// recoveries. Pure function.
#pragma once

#include <string>
#include <vector>

#include "cli/history/recorded_run.h"
#include "cli/plot/chart.h"
#include "cli/plot/terminal.h"

namespace ringmaster::cli {

// No line is wider than traits.width, which counts as at least 40. Without Unicode, the dots are characters
// that differ per run.
std::string TextChart(const std::vector<RecordedRun>& runs, ChartPart part, const TerminalTraits& traits);

}  // namespace ringmaster::cli
