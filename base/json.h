// SPDX-License-Identifier: Apache-2.0

// JSON glue: parse without exceptions, within limits, duplicate keys refused. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster {

using Json = nlohmann::json;

// Refuses: invalid UTF-8, trailing text, depth over 64, duplicate keys. The message names line and column.
Result<Json> ParseJson(std::string_view text);

// Compact, keys sorted: equal values give equal text. Invalid UTF-8 in strings is replaced, never thrown on.
std::string DumpJson(const Json& value);

// Typed member access: kInvalid with the key's name when the member is missing or of another type.
Result<std::string> JsonString(const Json& object, const char* key);
Result<int64_t> JsonInt(const Json& object, const char* key);
Result<uint64_t> JsonUint(const Json& object, const char* key);
Result<double> JsonDouble(const Json& object, const char* key);
Result<bool> JsonBool(const Json& object, const char* key);

// Lenient readers for documents whose shape another program decides, such as objects of the Kubernetes API: a
// member that is missing or has another type reads as empty. `object` may be of any type.
namespace json {

const Json& Child(const Json& object, std::string_view key);  // null when there is none
std::string_view Text(const Json& object, std::string_view key);
int64_t Integer(const Json& object, std::string_view key, int64_t otherwise = 0);
bool Flag(const Json& object, std::string_view key);
// The member if it is an array, otherwise an empty array.
const Json& Items(const Json& object, std::string_view key);

}  // namespace json

}  // namespace ringmaster
