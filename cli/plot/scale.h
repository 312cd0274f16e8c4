// SPDX-License-Identifier: Apache-2.0

// Numbers of axes: ticks, labels, and the reduction of a curve to what a row of pixels can show. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::cli {

// Round numbers within [low, high], about `count` of them. REQUIRES: low < high.
std::vector<double> TicksOf(double low, double high, int count);
// Powers of ten and their doubles and fivefolds within [low, high]. REQUIRES: 0 < low < high.
std::vector<double> LogTicksOf(double low, double high);

// "0.5", "1,000,000", "2e-05".
std::string TickLabel(double value);
// "9 ms", "1.4 s", "2m05s".
std::string TimeLabel(double seconds);

struct Range {
  double low = 0;
  double high = 1;
};

// The range of the finite losses; {0, 1} without one, and a little wider than a single value.
Range LossRange(const std::vector<const std::vector<rendezvous::StepRecord>*>& curves);

// One column of pixels of a curve.
struct Column {
  int64_t first_step = 0;
  double first = 0, low = 0, high = 0, last = 0;  // losses; NaN when no step has a number
};

// Returns at most `columns` columns of the steps in [begin, end], without those that have no step. The
// extremes of a column survive, so a spike of a single step among a million is visible.
std::vector<Column> Downsample(const std::vector<rendezvous::StepRecord>& steps, int64_t begin, int64_t end,
                               int columns);

}  // namespace ringmaster::cli
