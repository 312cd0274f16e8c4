// SPDX-License-Identifier: Apache-2.0

// Validates UTF-8 text and counts its characters. Pure functions.
#pragma once

#include <string_view>

#include "api/node.h"

namespace ringmaster::api {

// Returns the number of code points. REQUIRES: `text` is valid UTF-8.
int CodePoints(std::string_view text);

// Returns the position (column in bytes) of the first byte that is not UTF-8 or is a control character other
// than tab and line ends. Line 0 means that there is none.
Mark FindBadByte(std::string_view text);

std::string_view WithoutByteOrderMark(std::string_view text);

// Converts the column from bytes to characters, which editors count.
Mark InCharacters(std::string_view text, Mark mark);

}  // namespace ringmaster::api
