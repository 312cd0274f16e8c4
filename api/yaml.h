// SPDX-License-Identifier: Apache-2.0

// Parses YAML (JSON is YAML) to a tree with positions, as kubectl does, which reads YAML 1.1, so that a file
// means the same here and on a cluster. Pure function; does not throw.
#pragma once

#include <string_view>
#include <vector>

#include "api/load.h"
#include "api/node.h"

namespace ringmaster::api {

struct Parsed {
  Node root;
  std::vector<Problem> problems;
  bool whole = true;  // false: the text could not be parsed to its end, and `root` is unusable
};

// Problems: more than 1 MiB, invalid UTF-8, control characters, nesting beyond 64 levels (after alias
// expansion), aliases that contain themselves or expand to more than 100,000 values, several documents,
// duplicate keys, merges (<<) of a value that is no object, merges behind a key that they have, tags, keys
// that are neither text nor integers, and the plain scalars that scalar.h rejects.
Parsed ParseYaml(std::string_view text);

// Returns every document that is not empty, with positions in the whole text. After a document that is not
// whole there are no others.
std::vector<Parsed> ParseYamlDocuments(std::string_view text);

}  // namespace ringmaster::api
