// SPDX-License-Identifier: Apache-2.0

#include "api/update.h"

#include <algorithm>

#include "api/path.h"

namespace ringmaster::api {
namespace {

bool SaysMore(const Schema& schema) {
  return std::any_of(schema.fields.begin(), schema.fields.end(), [](const Schema& field) {
    return field.rules.change != Change::kInherited || SaysMore(field);
  });
}

void Collect(const Schema& schema, const std::string& path, std::vector<std::string> optional_parents,
             std::vector<GuardedField>& out) {
  for (const Schema& field : schema.fields) {
    const std::string child = path + "." + field.name;
    if (field.rules.change == Change::kAnytime) continue;
    if (field.rules.change == Change::kInherited && SaysMore(field)) {
      auto parents = optional_parents;
      if (field.optional) parents.push_back(child);
      Collect(field, child, std::move(parents), out);
    } else {
      out.push_back({child, &field, optional_parents, field.rules.change == Change::kNever});
    }
  }
}

// Returns null when the value is missing.
const Json& At(const Json& job, const std::string& path) {
  static const Json kNothing;
  const Json* value = &job;
  const auto segments = SplitPath(path);
  for (const PathSegment& segment : *segments) {
    const auto it = value->find(segment.text);
    if (it == value->end()) return kNothing;
    value = &*it;
  }
  return *value;
}

// Compares lists that are sets without regard to order.
bool Same(const Schema* schema, const Json& a, const Json& b) {
  if (a.is_object() && b.is_object() && a.size() == b.size()) {
    return std::all_of(a.items().begin(), a.items().end(), [&](const auto& member) {
      const auto it = b.find(member.key());
      return it != b.end() &&
             Same(schema == nullptr ? nullptr : schema->Find(member.key()), member.value(), *it);
    });
  }
  const bool unordered = schema != nullptr && schema->type == Type::kList &&
                         (schema->rules.unique || schema->rules.key != nullptr);
  if (!unordered || !a.is_array() || !b.is_array() || a.size() != b.size()) return a == b;
  return std::all_of(a.begin(), a.end(), [&](const Json& item) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Json& other) { return Same(&schema->item.front(), item, other); });
  });
}

bool IsStopped(const TrainingJob& job) {
  const auto& conditions = job.status.conditions;
  return job.spec.suspend &&
         std::any_of(conditions.begin(), conditions.end(), [](const Condition& condition) {
           return condition.type == "Suspended" && condition.status == "True";
         });
}

}  // namespace

const std::vector<GuardedField>& GuardedFields() {
  static const std::vector<GuardedField> kFields = [] {
    std::vector<GuardedField> fields;
    Collect(*JobSchema().Find("spec"), "spec", {}, fields);
    return fields;
  }();
  return kFields;
}

std::vector<Problem> ValidateUpdate(const TrainingJob& old, const TrainingJob& changed) {
  std::vector<Problem> problems = Validate(changed);
  const Json before = ToJson(old), after = ToJson(changed);
  const bool stopped = IsStopped(old);
  for (const GuardedField& field : GuardedFields()) {
    if (stopped && !field.never) continue;
    const bool both = std::all_of(field.optional_parents.begin(), field.optional_parents.end(),
                                  [&](const std::string& parent) {
                                    return !At(before, parent).is_null() && !At(after, parent).is_null();
                                  });
    if (both && !Same(field.schema, At(before, field.path), At(after, field.path)))
      problems.push_back({field.path, field.never ? kNeverChanges : kChangesWhenStopped});
  }
  return problems;
}

}  // namespace ringmaster::api
