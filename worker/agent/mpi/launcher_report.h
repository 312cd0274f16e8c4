// SPDX-License-Identifier: Apache-2.0

// LauncherReport finds the words of a launcher of MPI that say why it fails, in the lines of its standard
// error.
//
// Open MPI writes reports between lines of dashes: the cause is the first paragraph of the report, advice
// follows, and so do reports of consequences. Hydra writes a line for each function that fails, the innermost
// first. Not thread-safe.
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace ringmaster::agent {

class LauncherReport {
 public:
  // Forgets the lines of the last launcher.
  void Clear() { *this = LauncherReport(); }
  // Takes the next line, without its newline.
  void Take(std::string_view line);
  // Returns the last line of `tail` that is not empty; or the cause, when that line belongs to a report.
  std::string Reason(const std::deque<std::string>& tail) const;

 private:
  void TakeReport(std::string_view line);
  void EndReport();

  bool in_report_ = false;
  bool paragraph_ended_ = false;
  std::string paragraph_;  // the first one of the report
  bool in_hydra_ = false;
  bool last_is_report_ = false;  // the last line that is not empty
  std::string cause_;            // of the newest report that has one
  std::string other_;            // the first paragraph of the newest report that is a consequence
};

// Whether the launcher cannot start these ranks at a later attempt either: an unknown option, a file of hosts
// that does not exist, too few slots.
bool IsHopeless(std::string_view reason);

}  // namespace ringmaster::agent
