// SPDX-License-Identifier: Apache-2.0

// The texts that messages carry, within the limits that the decoder enforces (codec.h). Pure functions.
#pragma once

#include <cstddef>
#include <string>

namespace ringmaster::rendezvous {

// Returns free text as UTF-8 of at most `limit` bytes, without half a character at its end. JSON would
// replace each wrong byte by three.
std::string CutText(const std::string& text, size_t limit);

// Whether `text` is printable ASCII that JSON escapes to at most `limit` bytes.
bool IsPlain(const std::string& text, size_t limit);
// Returns text for which IsPlain holds: other characters become question marks, and the end is cut.
std::string PlainName(const std::string& text, size_t limit);

}  // namespace ringmaster::rendezvous
