// SPDX-License-Identifier: Apache-2.0

// UTF-8 text: what is none, and how many characters it has. Pure functions.
#pragma once

#include <string_view>

#include "api/node.h"

namespace ringmaster::api {

// Code points of valid UTF-8.
int CodePoints(std::string_view text);

// Place (column in bytes) of the first byte that is not UTF-8, or of a control character other than tab and
// line ends; line 0 when there is none.
Mark FindBadByte(std::string_view text);

std::string_view WithoutByteOrderMark(std::string_view text);

// The same place with its column in characters, as editors count, instead of bytes.
Mark InCharacters(std::string_view text, Mark mark);

}  // namespace ringmaster::api
