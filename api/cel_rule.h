// SPDX-License-Identifier: Apache-2.0

// One rule between fields, and the lists of them. cel_rules.h is the interface.
#pragma once

#include <vector>

namespace ringmaster::api {

struct CelRule {
  const char* at;                  // path of the node that is `self`
  const char* field;               // path of the problem below `self`; empty: `self`
  std::vector<const char*> reads;  // fields below `self`; the rule is skipped when one of them is invalid
  const char* when;                // the rule is skipped unless this holds; empty: always checked
  const char* holds;
  const char* message;  // the server replaces {expression} by its value
  const char* reason = "FieldValueInvalid";
};

inline constexpr const char* kMissing = "FieldValueRequired";
inline constexpr const char* kForbidden = "FieldValueForbidden";

// The rules about framework mpi; cel_rules.cc has the others.
const std::vector<CelRule>& MpiRules();

}  // namespace ringmaster::api
