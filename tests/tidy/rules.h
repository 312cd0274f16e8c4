// SPDX-License-Identifier: Apache-2.0

// The rules of tidy_test as functions from text to findings, so that rules_test can test each rule. Pure
// functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::tidy {

struct Finding {
  int line = 0;  // 1-based; 0: the whole file
  std::string what;
};

// Allowed includes: folder -> the other folders that it may name in #include "...". A listed folder covers
// its subfolders, except those that are listed themselves. Folders that are not covered may include anything.
using IncludeRules = std::map<std::string, std::set<std::string>>;
const IncludeRules& AllowedIncludes();

// Returns the folder of the rules that covers a path (the longest match); empty when none does.
std::string FolderOf(std::string_view path, const IncludeRules& rules);

std::vector<Finding> ForbiddenIncludes(std::string_view path, std::string_view text,
                                       const IncludeRules& rules);
std::vector<Finding> HeaderRules(std::string_view text);  // #pragma once, no using namespace
std::vector<Finding> TodoMarks(std::string_view text);    // notes for later
std::vector<Finding> TooLong(std::string_view text, int max_lines);
// Sleeps in tests, except the pause of a loop that polls for an event.
std::vector<Finding> Sleeps(std::string_view text);
// Output of the command line that does not go through cli/write_text.h.
std::vector<Finding> UnfilteredOutput(std::string_view text);
std::vector<Finding> RawMemory(std::string_view text);  // new and delete expressions, malloc

// Casts that could misalign an access or mistake a dynamic type, in folders where the undefined-behaviour
// sanitizer does not look for that (cmake/Compiler.cmake). Bytes may be read as characters, sockets'
// addresses as those of a family, and what dlsym returns as a function.
std::vector<Finding> UncheckedCasts(std::string_view text);

// Returns the patterns of those folders, as cmake/Compiler.cmake has them.
std::vector<std::string> UncheckedFolders(std::string_view cmake);

// Requires the licence in the first five lines: "SPDX-License-Identifier: Apache-2.0".
std::vector<Finding> LicenceLine(std::string_view text);

// Requires that a Python file with tests runs them when it is started: without that, it passes by doing
// nothing.
std::vector<Finding> NeverRuns(std::string_view text);

// Returns the targets of [text](target) that are paths in the repository, without anchors. Skips URLs, bare
// anchors and code blocks.
std::vector<std::string> RelativeLinks(std::string_view markdown);

}  // namespace ringmaster::tidy
