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

// What the text of a string must look like. forms.h gives the pattern and the words for each.
enum class Form : uint8_t {
  kText,
  kDecimal,        // a number in a string: "3e-4"
  kSlots,          // int-or-string: "gpu" or a positive number
  kAutoSeconds,    // int-or-string: "auto" or a number
  kDnsLabel,       // my-job
  kDnsSubdomain,   // my-job.example.com
  kQualifiedName,  // example.com/name or name
  kLabelValue,
  kResource,  // rdma/ib
  kNetwork,   // namespace/name@interface
};

// Bounds of one value. In a list of scalars they hold for each item, in a map for each value.
struct Rules {
  bool required = false;
  int64_t min = std::numeric_limits<int64_t>::min();  // integers
  int64_t max = std::numeric_limits<int64_t>::max();
  int max_length = 0;            // strings, in code points
  int max_items = 0;             // lists and maps
  bool unique = false;           // lists of scalars
  const char* values = nullptr;  // strings: "a|b|c", the only ones allowed
  Form form = Form::kText;
  Form key_form = Form::kText;                                 // maps
  double at_least = -std::numeric_limits<double>::infinity();  // decimals
  double at_most = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
};

enum class Type : uint8_t { kObject, kList, kMap, kString, kInteger, kIntOrString, kBool, kAnyObject };

struct Schema {
  std::string name;
  Type type = Type::kObject;
  int bits = 0;  // integers: 32 or 64
  Rules rules;
  std::string help;
  Json default_value;                     // null: none, or empty
  std::vector<Schema> fields;             // kObject, in the order of the table
  std::vector<Schema> item;               // kList and kMap: exactly one
  std::vector<std::string_view> ignored;  // kObject: known to the API server, of no meaning here
  bool open = false;                      // kObject: unknown fields are skipped, not refused

  const Schema* Find(std::string_view field) const;
};

// The root: apiVersion, kind, metadata, spec, status.
const Schema& JobSchema();

// Rules::values, split.
std::vector<std::string_view> Values(const Rules& rules);

}  // namespace ringmaster::api
