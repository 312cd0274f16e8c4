// SPDX-License-Identifier: Apache-2.0

// The output of the program of rank 0, which a terminal shows as torchrun and mpirun do. Its agent writes it
// to a log, among lines of the agent. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace ringmaster::cli {

class ProgramOutput {
 public:
  // Most lines that one call of Read prints; of more, the newest.
  static constexpr size_t kMostLines = 200;

  // What the logs of the folder have so far is of an earlier run.
  explicit ProgramOutput(std::string folder);

  // Rank 0 is in this pod from now on.
  void Follow(const std::string& pod) { pod_ = pod; }
  // Calls `print` with each new line of the program. `all`: also with one that has no end yet.
  void Read(const std::function<void(std::string_view line)>& print, bool all = false);

 private:
  const std::string folder_;
  std::string pod_;
  std::map<std::string, int64_t> read_;  // bytes of each log, by pod
};

// Returns what a terminal would show of a line: its text after the last carriage return, without control
// characters.
std::string Shown(std::string_view line);
// Whether the line is of the agent, or of the library in the program.
bool IsOwnLine(std::string_view line);

}  // namespace ringmaster::cli
