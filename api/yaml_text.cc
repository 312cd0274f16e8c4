// SPDX-License-Identifier: Apache-2.0

#include "api/yaml_text.h"

#include <algorithm>

#include "api/scalar.h"

namespace ringmaster::api {
namespace {

bool IsPlain(const std::string& text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inner = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
  };
  if (text.empty() || !letter(text.front()) || !std::all_of(text.begin(), text.end(), inner)) return false;
  if (text == "null" || text == "Null" || text == "NULL") return false;
  const PlainScalar resolved = ResolvePlain(text);
  return resolved.refused.empty() && resolved.value.is_string();
}

std::string Scalar(const Json& value) {
  if (!value.is_string()) return DumpJson(value);  // [] and {} too
  const auto& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : DumpJson(value);
}

bool IsBlock(const Json& value) { return value.is_structured() && !value.empty(); }

// Appends the value to the current line of `out`; its other lines get `indent`.
void Write(const Json& value, const std::string& indent, std::string& out) {
  bool first = true;
  const auto begin_line = [&] {
    if (!first) out += indent;
    first = false;
  };
  if (!IsBlock(value)) {
    out.append(Scalar(value)).append("\n");
  } else if (value.is_array()) {
    for (const Json& item : value) {
      begin_line();
      out += "- ";
      Write(item, indent + "  ", out);
    }
  } else {
    for (const auto& [key, child] : value.items()) {
      begin_line();
      out.append(Scalar(key)).append(":");
      if (!IsBlock(child)) {
        out.append(" ").append(Scalar(child)).append("\n");
        continue;
      }
      const std::string inner = child.is_array() ? indent : indent + "  ";
      out.append("\n").append(inner);
      Write(child, inner, out);
    }
  }
}

}  // namespace

std::string YamlText(const Json& value) {
  std::string out;
  Write(value, "", out);
  return out;
}

}  // namespace ringmaster::api
