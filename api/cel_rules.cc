// SPDX-License-Identifier: Apache-2.0

#include "api/cel_rules.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <vector>

#include "api/cross_field_rules.h"
#include "api/forms.h"
#include "api/path.h"
#include "api/update.h"

namespace ringmaster::api {
namespace {

// ---- rules of a single field

std::string Quoted(std::string_view text) { return fmt::format("'{}'", text); }

bool MayBeMissing(const Schema& field) { return !field.rules.required && DefaultFor(field).is_null(); }

// Formats a number with a decimal point, so that CEL parses it as a double.
std::string Double(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Bound {
  const char* words;
  const char* op;
  double value;
};

// Returns the bounds of a decimal.
std::vector<Bound> BoundsOf(const Rules& rules) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<Bound> bounds;
  if (rules.above > -kNone) bounds.push_back({"above", ">", rules.above});
  if (rules.below < kNone) bounds.push_back({"below", "<", rules.below});
  if (rules.at_least > -kNone) bounds.push_back({"at least", ">=", rules.at_least});
  if (rules.at_most < kNone) bounds.push_back({"at most", "<=", rules.at_most});
  return bounds;
}

std::string IsDecimal(const std::string& self) {
  return fmt::format("{}.matches('{}')", self, TextOf(Form::kDecimal).pattern);
}

// Returns an expression for "the scalar `self` is valid by itself". It omits what the schema enforces before
// any rule runs, such as the type.
std::string IsValidAlone(const Schema& schema, const std::string& self) {
  const Rules& rules = schema.rules;
  std::string valid;
  const auto also = [&](const std::string& text) { valid += (valid.empty() ? "" : " && ") + text; };
  if (schema.type == Type::kInteger) {
    if (rules.min > std::numeric_limits<int64_t>::min()) also(fmt::format("{} >= {}", self, rules.min));
    if (rules.max < std::numeric_limits<int64_t>::max()) also(fmt::format("{} <= {}", self, rules.max));
  } else if (rules.values != nullptr) {
    std::string values;
    for (const std::string_view value : Values(rules)) values += (values.empty() ? "" : ", ") + Quoted(value);
    also(fmt::format("{} in [{}]", self, values));
  } else if (rules.form == Form::kDecimal) {
    also(IsDecimal(self));
    for (const Bound& bound : BoundsOf(rules))
      also(fmt::format("double({}) {} {}", self, bound.op, Double(bound.value)));
  } else if (*TextOf(rules.form).pattern != '\0' && rules.form != Form::kText) {
    const std::string text = schema.type == Type::kString ? self : fmt::format("string({})", self);
    also(fmt::format("{}.matches('{}')", text, TextOf(rules.form).pattern));
    if (MayBeMissing(schema)) valid = fmt::format("({} == '' || {})", self, valid);
  }
  return valid;
}

// Adds the rules of a decimal or of a regular expression.
void AddOwnRules(const Schema& schema, Json& out) {
  if (schema.type != Type::kString) return;
  if (schema.rules.form == Form::kDecimal) {
    for (const Bound& bound : BoundsOf(schema.rules)) {
      const std::string message = fmt::format("must be {} {}", bound.words, bound.value);
      out.push_back({{"rule", fmt::format("!{} || double(self) {} {}", IsDecimal("self"), bound.op,
                                          Double(bound.value))},
                     {"message", message},
                     {"messageExpression", fmt::format("'{} (got \"' + self + '\")'", message)}});
    }
  } else if (schema.rules.form == Form::kPattern) {
    out.push_back({{"rule", "''.matches(self) || !''.matches(self)"},
                   {"message", "is not a valid regular expression"}});
  }
}

// ---- rules over several fields

const Schema& Below(const Schema& schema, std::string_view path) {
  const Schema* node = &schema;
  const auto segments = SplitPath(path);
  for (const PathSegment& segment : *segments) node = node->Find(segment.text);
  return *node;
}

std::string Expression(const CelRule& rule, const Schema& schema) {
  std::string condition = rule.when;
  for (const char* read : rule.reads) {
    const Schema& field = Below(schema, read);
    const std::string self = fmt::format("self.{}", read);
    std::string valid = IsValidAlone(field, self);
    if (valid.empty()) continue;
    if (MayBeMissing(field)) valid = fmt::format("(!has({}) || ({}))", self, valid);
    condition += (condition.empty() ? "" : " && ") + valid;
  }
  return condition;
}

// Returns "'must be %s (got %s)'.format([a, b])" for "must be {a} (got {b})"; empty without braces. Uses
// format and not string concatenation, because the server cannot bound the cost of concatenating a number
// that was converted to text.
std::string MessageExpression(std::string_view message) {
  std::string text, values;
  while (true) {
    const size_t open = message.find('{');
    for (const char c : message.substr(0, open)) text += c == '\'' ? std::string("\\'") : std::string(1, c);
    if (open == std::string_view::npos) break;
    const size_t close = message.find('}', open);
    text += "%s";
    values.append(values.empty() ? "" : ", ").append(message.substr(open + 1, close - open - 1));
    message.remove_prefix(close + 1);
  }
  return values.empty() ? std::string() : fmt::format("'{}'.format([{}])", text, values);
}

// Returns the message for a server that cannot evaluate the message expression.
std::string PlainMessage(std::string_view message) {
  std::string text(message.substr(0, message.find(" (got ")));
  const size_t open = text.find('{');
  if (open != std::string::npos) text.resize(open);
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

Json ToJson(const CelRule& rule, const Schema& schema) {
  const std::string condition = Expression(rule, schema);
  Json out = {{"rule", condition.empty() ? rule.holds : fmt::format("!({}) || ({})", condition, rule.holds)},
              {"message", PlainMessage(rule.message)},
              {"reason", rule.reason}};
  if (*rule.field != '\0') out["fieldPath"] = fmt::format(".{}", rule.field);
  if (std::string expression = MessageExpression(rule.message); !expression.empty())
    out["messageExpression"] = std::move(expression);
  return out;
}

// ---- immutable fields

// Returns an expression for "the field is equal in both, or missing from both".
std::string IsUnchanged(const Schema& field, const std::string& current, const std::string& old) {
  if (!MayBeMissing(field)) return fmt::format("{} == {}", current, old);
  return fmt::format("has({0}) == has({1}) && (!has({0}) || {0} == {1})", current, old);
}

// Adds the rule of the root about changes; no other node has both spec and status. It is one rule, since the
// API server evaluates every rule again with each status write: there, the first comparison decides it. The
// message names the first field that may not change, which the field path of a rule cannot. The server limits
// its cost, so it does not name all of them.
void AddChanges(Json& out) {
  constexpr const char* kStopped =
      "(oldSelf.spec.suspend && has(oldSelf.status) && has(oldSelf.status.conditions) && "
      "oldSelf.status.conditions.exists(c, c.type == 'Suspended' && c.status == 'True'))";
  std::string never, while_running, first_never, first_while_running;
  for (const GuardedField& field : GuardedFields()) {
    std::string rule;
    // Another rule covers an object that is missing from one of the two.
    for (const std::string& parent : field.optional_parents)
      rule += fmt::format("!has(self.{0}) || !has(oldSelf.{0}) || ", parent);
    rule += IsUnchanged(*field.schema, "self." + field.path, "oldSelf." + field.path);
    (field.never ? never : while_running) += fmt::format(" && ({})", rule);
    (field.never ? first_never : first_while_running) +=
        fmt::format("!({}) ? '{}' : ", rule, field.path.substr(std::strlen("spec.")));
  }
  out.push_back({{"rule", fmt::format("self.spec == oldSelf.spec || ({} && ({} || ({})))", never.substr(4),
                                      kStopped, while_running.substr(4))},
                 {"fieldPath", ".spec"},
                 {"message", "a field cannot be changed, or only while the job is stopped"},
                 {"messageExpression",
                  fmt::format("!({}) ? ({}'') + ': {}' : ({}'') + ': {}'", never.substr(4), first_never,
                              kNeverChanges, first_while_running, kChangesWhenStopped)},
                 {"reason", "FieldValueForbidden"}});
}

}  // namespace

Json CelRulesAt(const Schema& schema, const std::string& path) {
  Json out = Json::array();
  AddOwnRules(schema, out);
  for (const CelRule& rule : CrossFieldRules()) {
    if (path == rule.at) out.push_back(ToJson(rule, schema));
  }
  if (path.empty()) AddChanges(out);
  return out;
}

}  // namespace ringmaster::api
