// SPDX-License-Identifier: Apache-2.0

// The rules over several fields of a TrainingJob, as a table. cel_rules.cc makes validations of them.
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

const std::vector<CelRule>& CrossFieldRules();

}  // namespace ringmaster::api
