// SPDX-License-Identifier: Apache-2.0

// The patterns of .gitignore files, with git's meaning: the last one that matches decides. Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::cli::launch {

class IgnoreRules {
 public:
  // Adds the lines of a .gitignore in `folder`, a path below the root of the rules (empty: the root). Files
  // of deeper folders are added later, since later patterns win.
  void Add(std::string_view folder, std::string_view text);

  // Whether git ignores the path, which is relative to the root and has no leading slash. REQUIRES: no folder
  // above it is ignored; git does not look into those either.
  bool Ignores(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder;   // with a trailing slash, unless empty
    std::string pattern;  // without '!' and without the slashes around it
    bool negated = false;
    bool folders_only = false;
    bool anchored = false;  // matches the whole path below `folder`, not only the last name
  };
  std::vector<Rule> rules_;
};

// Whether the pattern of a .gitignore matches the text: `*` and `?` stop at slashes, `**` does not.
bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace ringmaster::cli::launch
