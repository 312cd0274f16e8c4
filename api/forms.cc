// SPDX-License-Identifier: Apache-2.0

#include "api/forms.h"

#include <re2/re2.h>

#include <array>
#include <charconv>
#include <cmath>
#include <regex>

#include "api/load.h"

namespace ringmaster::api {
namespace {

#define RM_LABEL "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
#define RM_ANY_LABEL "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
#define RM_NAME_PART "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

constexpr std::array<FormText, 15> kForms = {{
    {"^[^\\x00]*$", "not contain a NUL character"},
    {"^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]{1,2})?$",
     "be a decimal number such as \"0.1\" or \"3e-4\""},
    {"^(gpu|[1-9][0-9]{0,2})$", "be \"gpu\" or a number from 1 to 999"},
    {"^(auto|0|[1-9][0-9]{0,5})$", "be \"auto\", 0 (off) or a number of seconds up to 999999"},
    {"^" RM_LABEL "$",
     "consist of lower-case letters, digits and '-', and start and end with a letter or digit"},
    {"^" RM_LABEL "([.]" RM_LABEL ")*$",
     "consist of lower-case letters, digits, '-' and '.', and start and end with a letter or digit"},
    {"^(" RM_LABEL "([.]" RM_LABEL ")*/)?" RM_NAME_PART "$", "be a name such as example.com/my-name"},
    {"^(" RM_NAME_PART ")?$",
     "consist of letters, digits, '-', '_' and '.', and start and end with a letter or digit"},
    {"^" RM_LABEL "([.]" RM_LABEL ")*/" RM_NAME_PART "$", "be a resource with its domain, such as rdma/ib"},
    {"^(" RM_LABEL "/)?" RM_LABEL "([.]" RM_LABEL ")*(@[A-Za-z0-9][-A-Za-z0-9_.]*)?$",
     "be a network attachment such as name, namespace/name or namespace/name@interface"},
    {"", "be a regular expression in the syntax of RE2"},
    {"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z$",
     "be a time such as 2026-01-02T03:04:05Z"},
    {"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$", "be the name of a Python module such as torch"},
    {"^(" RM_ANY_LABEL "([.]" RM_ANY_LABEL ")*/)?" RM_NAME_PART "$", "be a name such as example.com/my-name"},
    {"", "be text"},
}};

#undef RM_LABEL
#undef RM_ANY_LABEL
#undef RM_NAME_PART

}  // namespace

const FormText& TextOf(Form form) { return kForms.at(static_cast<size_t>(form)); }

bool Matches(Form form, std::string_view text) {
  static const std::array<std::regex, kForms.size()> kCompiled = [] {
    std::array<std::regex, kForms.size()> compiled;
    for (size_t i = 0; i < kForms.size(); ++i) {
      if (static_cast<Form>(i) != Form::kText) compiled.at(i) = std::regex(kForms.at(i).pattern);
    }
    return compiled;
  }();
  if (form == Form::kAny) return true;
  if (form == Form::kText) return text.find('\0') == std::string_view::npos;
  if (form == Form::kPattern) return PatternError(text).empty();
  if (text.size() > 1024) return false;
  return std::regex_match(text.begin(), text.end(), kCompiled.at(static_cast<size_t>(form)));
}

std::string PatternError(std::string_view text) {
  const RE2 compiled(re2::StringPiece(text.data(), text.size()), RE2::Quiet);
  return compiled.ok() ? std::string() : compiled.error();
}

Result<double> ParseDecimal(std::string_view text) {
  const Error error{Code::kInvalid, fmt::format("must {} (got \"{}\")", TextOf(Form::kDecimal).words, text)};
  if (!Matches(Form::kDecimal, text)) return error;
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return error;
  return value;
}

}  // namespace ringmaster::api
