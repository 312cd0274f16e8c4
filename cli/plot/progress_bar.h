// SPDX-License-Identifier: Apache-2.0

// ProgressBar shows on stderr that a long operation continues. It shows nothing for the first kQuiet. Then it
// redraws a bar in place on a terminal; elsewhere it prints a line every kLineInterval. A separate thread
// draws, so that the bar moves even while the operation waits for a disk. The destructor removes the bar.
//
// Not thread-safe; only one bar may exist at a time, and nothing else may write to stderr.
#pragma once

#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "base/time.h"
#include "base/work_counter.h"

namespace ringmaster::cli {

// "reading the data [####....]  43 %  0:12", of at most `columns` columns. `percent` -1: without a bar.
std::string ProgressBarText(std::string_view title, int percent, Duration elapsed, int columns);

class ProgressBar {
 public:
  static constexpr Duration kQuiet = seconds(2);
  static constexpr Duration kLineInterval = seconds(5);

  // `title`: what runs: "reading the data".
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // The operation counts here.
  WorkCounter* counter() { return &counter_; }

 private:
  void Run();

  const std::string title_;
  const bool terminal_;
  const Time began_ = Now();
  WorkCounter counter_;
  Mutex mutex_;
  CondVar ended_changed_;
  bool ended_ RM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace ringmaster::cli
