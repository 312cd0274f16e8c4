// SPDX-License-Identifier: Apache-2.0

// A short form for the names of many workers, as Slurm writes host names: consecutive names that differ only
// in their number become one name with the numbers in brackets, and a range for three or more in a row. The
// order is kept:
//
//   gpt-1-2, gpt-1-0, gpt-1-3, gpt-1-4, gpt-1-5  ->  gpt-1-[2,0,3-5]
//
// Names of pods contain no brackets, so a list of plain names is its own long form. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace ringmaster::cli {

std::vector<std::string> ShortNames(const std::vector<std::string>& names);

// The inverse of ShortNames. A text that it cannot have written, or one of more than a million names, stays
// as it is.
std::vector<std::string> LongNames(const std::vector<std::string>& names);

}  // namespace ringmaster::cli
