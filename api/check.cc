// SPDX-License-Identifier: Apache-2.0

#include "api/check.h"

#include <algorithm>
#include <set>

#include "api/forms.h"
#include "api/path.h"
#include "api/suggest.h"
#include "api/text.h"

namespace ringmaster::api {
namespace {

class Checker {
 public:
  // `unknown`: null unless the object is stored.
  Checker(std::vector<Problem>& problems, std::vector<std::string>* unknown)
      : problems_(problems), unknown_(unknown) {}

  void Value(const Node& node, const Schema& schema, const Path& path) {
    if (node.reported) return;
    switch (schema.type) {
      case Type::kObject:
      case Type::kAnyObject:
        return Object(node, schema, path);
      case Type::kList:
        return List(node, schema, path);
      case Type::kMap:
        return Map(node, schema, path);
      case Type::kString:
        return String(node, schema, path);
      case Type::kInteger:
        return Integer(node, schema, path);
      case Type::kIntOrString:
        if (node.scalar.is_number_integer()) return FormOf(node, DumpJson(node.scalar), schema.rules, path);
        if (node.scalar.is_string()) return String(node, schema, path);
        return Add(path, node,
                   fmt::format("must {} (got {})", TextOf(schema.rules.form).words, Describe(node)));
      case Type::kBool:
        if (!node.scalar.is_boolean()) Add(path, node, "must be true or false (got " + Describe(node) + ")");
        return;
    }
  }

 private:
  // Whether the field is the labels or the annotations of the object itself.
  static bool IsTags(const Schema& schema, const Schema& field) {
    return schema.type == Type::kObject && schema.name == "metadata" && field.type == Type::kMap;
  }
  void Add(const Path& path, const Node& node, std::string message) {
    Add(path, node.mark, std::move(message));
  }
  void Add(const Path& path, Mark mark, std::string message) {
    if (problems_.size() >= kMaxProblems) return;
    problems_.push_back({path.ToString(), std::move(message), mark.line, mark.column});
  }

  void Object(const Node& node, const Schema& schema, const Path& path) {
    if (node.kind != Node::Kind::kObject) {
      return Add(path, node, "must be an object (got " + Describe(node) + ")");
    }
    for (const Member& member : node.members) {
      if (const Schema* field = schema.Find(member.key)) {
        if (unknown_ != nullptr && IsTags(schema, *field)) continue;
        if (!member.value.IsNull()) Value(member.value, *field, path.Child(member.key));
        continue;
      }
      const bool ignored =
          std::find(schema.ignored.begin(), schema.ignored.end(), member.key) != schema.ignored.end();
      if (ignored || schema.open || schema.type == Type::kAnyObject || member.value.reported) continue;
      if (unknown_ != nullptr) {
        if (unknown_->size() < kMaxProblems) unknown_->push_back(path.Child(member.key).ToString());
        continue;
      }
      Add(path.Child(member.key), member.mark, "unknown field" + SuggestField(schema, member.key));
    }
    for (const Schema& field : schema.fields) {
      if (!field.rules.required) continue;
      const Node* value = node.Find(field.name);
      if (value == nullptr || (value->IsNull() && !value->reported))
        Add(path.Child(field.name), node, "required");
    }
  }

  void List(const Node& node, const Schema& schema, const Path& path) {
    if (node.kind != Node::Kind::kList) return Add(path, node, "must be a list (got " + Describe(node) + ")");
    if (!Fits(node.items.size(), schema, node, path)) return;
    std::set<Json> seen;
    for (size_t i = 0; i < node.items.size(); ++i) {
      Value(node.items[i], schema.item.front(), path.Item(i));
      if (schema.rules.unique && !seen.insert(node.items[i].scalar).second) {
        Add(path.Item(i), node.items[i], "duplicate value " + Describe(node.items[i]));
      }
      const Node* key = schema.rules.key == nullptr ? nullptr : node.items[i].Find(schema.rules.key);
      if (key != nullptr && key->scalar.is_string() && !seen.insert(key->scalar).second) {
        Add(path.Item(i), node.items[i], fmt::format("duplicate {} {}", schema.rules.key, Describe(*key)));
      }
    }
  }

  void Map(const Node& node, const Schema& schema, const Path& path) {
    if (node.kind != Node::Kind::kObject) {
      return Add(path, node, "must be an object (got " + Describe(node) + ")");
    }
    if (!Fits(node.members.size(), schema, node, path)) return;
    for (const Member& member : node.members) {
      constexpr int kLongestKey = 317;  // a name of 63 after a domain of 253 and a slash
      Node key;
      key.scalar = member.key;
      key.mark = member.mark;
      if (CodePoints(member.key) > kLongestKey || !Matches(schema.rules.key_form, member.key)) {
        Add(path, key, fmt::format("key {} must {}", Describe(key), TextOf(schema.rules.key_form).words));
      }
      // As the API server does: the path is the map's, the message names the key.
      const size_t before = problems_.size();
      if (!member.value.IsNull()) Value(member.value, schema.item.front(), path);
      for (size_t i = before; i < problems_.size(); ++i) {
        problems_[i].message = fmt::format("value of {} {}", Describe(key), problems_[i].message);
      }
    }
  }

  bool Fits(size_t size, const Schema& schema, const Node& node, const Path& path) {
    if (size <= static_cast<size_t>(schema.rules.max_items)) return true;
    Add(path, node, fmt::format("must have at most {} entries (got {})", schema.rules.max_items, size));
    return false;
  }

  void Integer(const Node& node, const Schema& schema, const Path& path) {
    if (!node.scalar.is_number_integer()) {
      return Add(path, node, "must be an integer (got " + Describe(node) + ")");
    }
    const Rules& rules = schema.rules;
    const bool huge = node.scalar.is_number_unsigned() && node.scalar.get<uint64_t>() > INT64_MAX;
    const int64_t value = huge ? INT64_MAX : node.scalar.get<int64_t>();
    if (value < rules.min) Add(path, node, fmt::format("must be at least {} (got {})", rules.min, node.text));
    if (huge || value > rules.max) {
      Add(path, node, fmt::format("must be at most {} (got {})", rules.max, node.text));
    }
  }

  void String(const Node& node, const Schema& schema, const Path& path) {
    if (node.scalar.is_number() || node.scalar.is_boolean())
      return Add(path, node, fmt::format("must be a string: write \"{}\"", node.text));
    if (!node.scalar.is_string()) return Add(path, node, "must be a string (got " + Describe(node) + ")");
    const std::string& text = node.scalar.get_ref<const std::string&>();
    const Rules& rules = schema.rules;
    if (text.empty() && rules.required) return Add(path, node, "must not be empty");
    if (const int length = CodePoints(text); length > rules.max_length) {
      return Add(path, node,
                 fmt::format("must be at most {} characters (got {}){}{}", rules.max_length, length,
                             *rules.because ? ": " : "", rules.because));
    }
    if (rules.values != nullptr) {
      const auto values = Values(rules);
      if (std::find(values.begin(), values.end(), text) != values.end()) return;
      const std::string_view near = Nearest(text, values);
      return Add(path, node,
                 fmt::format("{} (got {}){}", OneOf(rules), Describe(node),
                             near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
    const bool not_given = text.empty() && schema.default_value.is_null();
    if (!not_given) FormOf(node, text, rules, path);
  }

  void FormOf(const Node& node, std::string_view text, const Rules& rules, const Path& path) {
    if (rules.form == Form::kPattern) {
      const std::string error = PatternError(text);
      if (!error.empty()) Add(path, node, "is not a valid regular expression: " + error);
      return;
    }
    if (!Matches(rules.form, text)) {
      return Add(path, node, fmt::format("must {} (got {})", TextOf(rules.form).words, Describe(node)));
    }
    if (rules.form != Form::kDecimal) return;
    const double value = *ParseDecimal(text);
    const auto must = [&](const char* what, double bound) {
      Add(path, node, fmt::format("must be {} {} (got {})", what, bound, Describe(node)));
    };
    if (value <= rules.above) return must("above", rules.above);
    if (value >= rules.below) return must("below", rules.below);
    if (value < rules.at_least) return must("at least", rules.at_least);
    if (value > rules.at_most) return must("at most", rules.at_most);
  }

  std::vector<Problem>& problems_;
  std::vector<std::string>* const unknown_;
};

}  // namespace

void CheckTree(const Node& node, const Schema& schema, std::vector<Problem>& problems) {
  Checker(problems, nullptr).Value(node, schema, Path{});
}

void CheckStored(const Node& node, const Schema& schema, std::vector<Problem>& problems,
                 std::vector<std::string>& unknown) {
  Checker(problems, &unknown).Value(node, schema, Path{});
}

std::string OneOf(const Rules& rules) {
  const auto values = Values(rules);
  if (values.size() == 1) return fmt::format("must be \"{}\"", values.front());
  std::string text = "must be one of ";
  bool first = true;
  for (const std::string_view value : values) {
    if (value.empty()) continue;
    if (!first) text += ", ";
    text += value;
    first = false;
  }
  return text;
}

}  // namespace ringmaster::api
