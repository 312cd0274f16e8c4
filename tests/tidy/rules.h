// SPDX-License-Identifier: Apache-2.0

// The house rules as functions from text to findings, so that each rule is itself tested. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::tidy {

struct Finding {
  int line = 0;  // 1-based; 0: the file as a whole
  std::string what;
};

// Who may include whom: folder -> folders it may name in #include "...". Folders not listed may include
// anything.
using Arrows = std::map<std::string, std::set<std::string>>;
const Arrows& HouseArrows();

// The folder of HouseArrows that a path belongs to (longest match); empty when none does.
std::string FolderOf(std::string_view path, const Arrows& arrows);

std::vector<Finding> WrongArrows(std::string_view path, std::string_view text, const Arrows& arrows);
std::vector<Finding> HeaderRules(std::string_view text);    // #pragma once, no using namespace
std::vector<Finding> LeftoverMarks(std::string_view text);  // notes to oneself
std::vector<Finding> TooLong(std::string_view text, int max_lines);
std::vector<Finding> Sleeps(
    std::string_view text);  // for tests; the pause of a loop that polls for an event is none
std::vector<Finding> RawMemory(std::string_view text);  // new and delete expressions

// The first five lines name the licence: "SPDX-License-Identifier: Apache-2.0".
std::vector<Finding> LicenceLine(std::string_view text);

// Targets of [text](target) that name a place in the repository: no scheme, no bare #anchor; anchors cut off.
std::vector<std::string> RelativeLinks(std::string_view markdown);

}  // namespace ringmaster::tidy
