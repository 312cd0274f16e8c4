// SPDX-License-Identifier: Apache-2.0

// Field tables: one constexpr tuple per struct of training_job.h, in fields_training.h, fields_spec.h and
// fields_status.h. Decoding, encoding, defaults, bounds, the reference and the CRD schema are all generated
// from these tables. The default of a field is the value in a default-constructed struct, so it is defined in
// one place.
//
// To add a field, add a member in training_job.h and a line in the table. A test fails when a string, list or
// integer has no bound.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "api/schema.h"
#include "api/training_job.h"

namespace ringmaster::api {

template <class S, class M>
struct Field {
  const char* name;
  M S::*member;
  Rules rules;
  const char* help;
};

// A function and not a deduction guide, because clang 14, which builds the fuzzers, does not deduce
// aggregates.
template <class S, class M>
constexpr Field<S, M> F(const char* name, M S::*member, Rules rules, const char* help) {
  return {name, member, rules, help};
}

// Each struct has a specialization with `static constexpr auto kFields = std::tuple(F(...), ...)`, and
// optionally `kIgnored` (fields of the API server that are not read) and `kOpen` (unknown fields are
// skipped).
template <class S>
struct Table;

template <class S>
concept HasTable = requires {
  Table<S>::kFields;
};

// Calls visit(field) for every field of S, in order.
template <HasTable S, class Visit>
constexpr void ForEachField(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Table<S>::kFields);
}

}  // namespace ringmaster::api
