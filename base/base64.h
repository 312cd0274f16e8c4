// SPDX-License-Identifier: Apache-2.0

// Base64 (RFC 4648, with padding) for binary values in JSON, such as transport addresses. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster {

std::string EncodeBase64(std::string_view bytes);
// Errors: kInvalid for a length that is not a multiple of 4 and for characters outside the alphabet.
Result<std::string> DecodeBase64(std::string_view text);

}  // namespace ringmaster
