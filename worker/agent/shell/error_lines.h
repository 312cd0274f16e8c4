// SPDX-License-Identifier: Apache-2.0

// ErrorLines finds the line of a program's standard error that says why the program failed.
//
// That is the last line, except with torchrun: it ends with a frame of `=` around a report that does not
// have the exception of the rank, and before it comes a traceback of torchrun that is longer than the tail
// of LogPipe. So ErrorLines remembers the candidates while the lines pass. Not thread-safe.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/time.h"

namespace ringmaster::agent {

class ErrorLines {
 public:
  // Forgets the lines of the last program.
  void Clear() { *this = ErrorLines(); }
  // Takes the next line, without its newline.
  void Take(std::string_view line, Time now);
  // Returns the last line of `tail` that is not empty. If it has only `=` and `-`, returns the best
  // candidate: the signal that ended the rank, by the report of torchrun; the newest exception of Python; the
  // newest other line that is not by torchrun; the newest one of its log.
  std::string Reason(const std::deque<std::string>& tail) const;

 private:
  void TakeReport(std::string_view text);
  void TakeException(std::string_view line, Time now);

  bool in_traceback_ = false;
  bool in_report_ = false;  // of torchrun, after its traceback
  std::string signal_;
  std::string exception_;
  Time exception_at_{};
  std::string other_;
  std::string torchrun_;
};

}  // namespace ringmaster::agent
