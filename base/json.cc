// SPDX-License-Identifier: Apache-2.0

#include "base/json.h"

#include <set>
#include <vector>

namespace ringmaster {
namespace {

constexpr int kMaxDepth = 64;

Error Member(const char* key, const char* what) { return {Code::kInvalid, fmt::format("{}: {}", key, what)}; }

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

Result<Json> ParseJson(std::string_view text) {
  std::string problem;
  std::vector<std::set<std::string>> keys;
  // The callback gets every key before its value and rejects duplicates; the parser alone would keep the last
  // one.
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth && problem.empty()) problem = fmt::format("nested deeper than {}", kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty()) {
      if (!keys.back().insert(parsed.get<std::string>()).second && problem.empty()) {
        problem = "duplicate key \"" + parsed.get<std::string>() + "\"";
      }
    }
    return true;
  };
  // Check the depth before parsing: the recursive destructor of a deeply nested value could overflow the
  // stack.
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return Error{Code::kInvalid, fmt::format("nested deeper than {}", kMaxDepth)};
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  try {
    Json value = Json::parse(text.begin(), text.end(), watch);
    if (!problem.empty()) return Error{Code::kInvalid, problem};
    return value;
  } catch (const Json::exception& e) {
    return Error{Code::kInvalid, std::string("not valid JSON: ") + e.what()};
  }
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Result<std::string> JsonString(const Json& object, const char* key) {
  const Json* member = Find(object, key);
  if (member == nullptr) return Member(key, "required");
  if (!member->is_string()) return Member(key, "must be a string");
  return member->get<std::string>();
}

Result<int64_t> JsonInt(const Json& object, const char* key) {
  const Json* member = Find(object, key);
  if (member == nullptr) return Member(key, "required");
  if (!member->is_number_integer()) return Member(key, "must be an integer");
  if (member->is_number_unsigned() && member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Member(key, "must fit 64 bits");
  }
  return member->get<int64_t>();
}

Result<uint64_t> JsonUint(const Json& object, const char* key) {
  const Json* member = Find(object, key);
  if (member == nullptr) return Member(key, "required");
  if (!member->is_number_unsigned() && !(member->is_number_integer() && member->get<int64_t>() >= 0)) {
    return Member(key, "must be an integer that is not negative");
  }
  return member->get<uint64_t>();
}

Result<double> JsonDouble(const Json& object, const char* key) {
  const Json* member = Find(object, key);
  if (member == nullptr) return Member(key, "required");
  if (!member->is_number()) return Member(key, "must be a number");
  return member->get<double>();
}

Result<bool> JsonBool(const Json& object, const char* key) {
  const Json* member = Find(object, key);
  if (member == nullptr) return Member(key, "required");
  if (!member->is_boolean()) return Member(key, "must be true or false");
  return member->get<bool>();
}

namespace json {

const Json& Child(const Json& object, std::string_view key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto it = object.find(key);
  return it == object.end() ? kNone : *it;
}

std::string_view Text(const Json& object, std::string_view key) {
  const Json& child = Child(object, key);
  return child.is_string() ? std::string_view(child.get_ref<const std::string&>()) : std::string_view();
}

int64_t Integer(const Json& object, std::string_view key, int64_t otherwise) {
  const Json& child = Child(object, key);
  return child.is_number_integer() ? child.get<int64_t>() : otherwise;
}

bool Flag(const Json& object, std::string_view key) {
  const Json& child = Child(object, key);
  return child.is_boolean() && child.get<bool>();
}

const Json& Items(const Json& object, std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json& child = Child(object, key);
  return child.is_array() ? child : kEmpty;
}

}  // namespace json

}  // namespace ringmaster
