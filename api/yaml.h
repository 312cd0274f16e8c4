// SPDX-License-Identifier: Apache-2.0

// YAML text (or JSON, which is YAML) to a tree with places. Where YAML 1.1, which kubectl reads, and YAML 1.2
// disagree about a plain word, the word is refused with the remedy instead of guessed: then a file means the
// same here and on a cluster. Pure function; exceptions of the YAML library end here.
#pragma once

#include <string_view>
#include <vector>

#include "api/load.h"
#include "api/node.h"

namespace ringmaster::api {

struct Parsed {
  Node root;
  std::vector<Problem> problems;
  bool whole = true;  // false: the text could not be read to its end, `root` is of no use
};

// Refused: more than 1 MiB, invalid UTF-8, control characters, nesting beyond 64 levels (aliases followed),
// aliases that contain themselves or unfold to more than 100,000 values, several documents, duplicate keys,
// merge keys, tags, keys that are not plain text, and the plain scalars of scalar.h.
Parsed ParseYaml(std::string_view text);

}  // namespace ringmaster::api
