// SPDX-License-Identifier: Apache-2.0

// JSON without exceptions: a parser with limits, a canonical writer, and typed and lenient readers. Pure
// functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster {

using Json = nlohmann::json;

// Errors: kInvalid for invalid UTF-8, trailing text, a depth over 64 and duplicate keys. A syntax error names
// its line and column.
Result<Json> ParseJson(std::string_view text);

// Writes compact JSON with sorted keys: equal values give equal text. Replaces invalid UTF-8 in strings.
std::string DumpJson(const Json& value);

// Strict readers. Errors: kInvalid with the name of the key when the member is missing or has another type.
Result<std::string> JsonString(const Json& object, const char* key);
Result<int64_t> JsonInt(const Json& object, const char* key);
Result<uint64_t> JsonUint(const Json& object, const char* key);
Result<double> JsonDouble(const Json& object, const char* key);
Result<bool> JsonBool(const Json& object, const char* key);

// Lenient readers for documents whose shape another program decides, such as objects of the Kubernetes API: a
// member that is missing or has another type reads as empty. `object` may have any type. References and views
// point into `object`.
namespace json {

const Json& Child(const Json& object, std::string_view key);  // a null value when the member is missing
std::string_view Text(const Json& object, std::string_view key);
int64_t Integer(const Json& object, std::string_view key, int64_t otherwise = 0);
bool Flag(const Json& object, std::string_view key);
// The member if it is an array, otherwise an empty array.
const Json& Items(const Json& object, std::string_view key);

}  // namespace json

}  // namespace ringmaster
