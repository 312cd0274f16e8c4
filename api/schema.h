// SPDX-License-Identifier: Apache-2.0

// What the field tables say, as one tree of plain values: the form in which the checker, --set, the
// reference and the CRD read them. Built once from the tables; immutable afterwards, so any thread may read.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ringmaster::api {

struct Schema;

// What the text of a string must look like. forms.h gives the pattern and the words for each.
enum class Form : uint8_t {
  kText,           // anything without a NUL
  kDecimal,        // a number in a string: "3e-4"
  kSlots,          // int-or-string: "gpu" or a positive number
  kAutoSeconds,    // int-or-string: "auto" or a number
  kDnsLabel,       // my-job
  kDnsSubdomain,   // my-job.example.com
  kQualifiedName,  // example.com/name or name
  kLabelValue,
  kResource,  // rdma/ib
  kNetwork,   // namespace/name@interface
  kPattern,   // a regular expression in the syntax of RE2
  kTime,      // RFC 3339, in UTC
  kAny,       // what others wrote: nothing is asked of it
};

// When a field of an existing job may change.
enum class Change : uint8_t {
  kInherited,  // as the object around it; at the top of the spec: only while the job is stopped
  kAnytime,
  kNever,
};

// Bounds of one value. In a list of scalars they hold for each item, in a map for each value.
struct Rules {
  bool required = false;
  int64_t min = std::numeric_limits<int64_t>::min();  // integers
  int64_t max = std::numeric_limits<int64_t>::max();
  int max_length = 0;            // strings, in code points
  const char* because = "";      // why max_length is what it is, where people would ask
  int max_items = 0;             // lists and maps
  bool unique = false;           // lists of scalars
  const char* key = nullptr;     // lists of objects: the member that tells them apart; such lists merge by it
  const char* values = nullptr;  // strings: "a|b|c", the only ones allowed
  Form form = Form::kText;
  Form key_form = Form::kText;                                 // maps
  double at_least = -std::numeric_limits<double>::infinity();  // decimals
  double at_most = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  Change change = Change::kInherited;
  std::vector<Schema> (*known_fields)() = nullptr;  // kAnyObject: the part of it that we read
};

enum class Type : uint8_t { kObject, kList, kMap, kString, kInteger, kIntOrString, kBool, kAnyObject };

struct Schema {
  std::string name;
  Type type = Type::kObject;
  int bits = 0;  // integers: 32 or 64
  Rules rules;
  std::string help;
  Json default_value;                     // null: none, or empty
  bool optional = false;                  // leaving it out means something else than any value of it
  std::vector<Schema> fields;             // kObject, in the order of the table; kAnyObject: known_fields
  std::vector<Schema> item;               // kList and kMap: exactly one
  std::vector<std::string_view> ignored;  // kObject: known to the API server, of no meaning here
  bool open = false;                      // kObject: unknown fields are skipped, not refused

  const Schema* Find(std::string_view field) const;
};

// The root: apiVersion, kind, metadata, spec, status.
const Schema& JobSchema();

// What the API server fills in where a field is left out: for an object that may be left out, the defaults of
// the fields in it. Null when there is nothing to fill in.
Json FilledIn(const Schema& schema);

// Rules::values, split.
std::vector<std::string_view> Values(const Rules& rules);

}  // namespace ringmaster::api
