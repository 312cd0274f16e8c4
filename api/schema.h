// SPDX-License-Identifier: Apache-2.0

// The field tables as one tree of plain values, which the checker, --set, the reference and the CRD use.
// Built once and immutable afterwards: thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ringmaster::api {

struct Schema;

// The format of a string. forms.h has the pattern and the message of each.
enum class Form : uint8_t {
  kText,           // anything without a NUL
  kDecimal,        // a number in a string: "3e-4"
  kSlots,          // int-or-string: "gpu" or a positive number
  kAutoSeconds,    // int-or-string: "auto" or a number
  kDnsLabel,       // my-job
  kDnsSubdomain,   // my-job.example.com
  kQualifiedName,  // example.com/name or name
  kLabelValue,
  kResource,    // rdma/ib
  kNetwork,     // namespace/name@interface
  kPattern,     // a regular expression in the syntax of RE2
  kTime,        // RFC 3339, in UTC
  kModule,      // of Python: torch.nn
  kAnnotation,  // like kQualifiedName, but the domain may have capitals: Example.COM/name
  kAny,         // text of other programs, not checked
};

// When a field of an existing job may change.
enum class Change : uint8_t {
  kInherited,  // like the enclosing object; at the top of the spec: only while the job is stopped
  kAnytime,
  kNever,
};

// Bounds of one value. For a list of scalars they apply to each item, for a map to each value.
struct Rules {
  bool required = false;
  int64_t min = std::numeric_limits<int64_t>::min();  // integers
  int64_t max = std::numeric_limits<int64_t>::max();
  int max_length = 0;            // strings, in code points
  const char* because = "";      // the reason for max_length, added to the message
  int max_items = 0;             // lists and maps
  bool unique = false;           // lists of scalars
  const char* key = nullptr;     // lists of objects: the member that identifies them; such lists merge by it
  const char* values = nullptr;  // strings: "a|b|c", the only ones allowed
  Form form = Form::kText;
  Form key_form = Form::kText;                                 // maps
  double at_least = -std::numeric_limits<double>::infinity();  // decimals
  double at_most = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  Change change = Change::kInherited;
  std::vector<Schema> (*known_fields)() = nullptr;  // kAnyObject: the fields with a schema
};

enum class Type : uint8_t { kObject, kList, kMap, kString, kInteger, kIntOrString, kBool, kAnyObject };

struct Schema {
  std::string name;
  Type type = Type::kObject;
  int bits = 0;  // integers: 32 or 64
  Rules rules;
  std::string help;
  Json default_value;                     // null: none, or empty
  bool optional = false;                  // a missing value differs from every value
  std::vector<Schema> fields;             // kObject, in the order of the table; kAnyObject: known_fields
  std::vector<Schema> item;               // kList and kMap: exactly one
  std::vector<std::string_view> ignored;  // kObject: fields of the API server that are not read
  bool open = false;                      // kObject: unknown fields are skipped instead of rejected

  const Schema* Find(std::string_view field) const;
};

// Returns the root: apiVersion, kind, metadata, spec, status.
const Schema& JobSchema();

// Returns the value that the API server sets for a missing field: its default, or, for an optional object,
// the defaults of its fields. Null when there is no default.
Json DefaultFor(const Schema& schema);

// Splits Rules::values.
std::vector<std::string_view> Values(const Rules& rules);

}  // namespace ringmaster::api
