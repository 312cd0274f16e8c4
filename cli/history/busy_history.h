// SPDX-License-Identifier: Apache-2.0

// The format of DIR/busy_times.jsonl: how long each worker was busy in the steps of a window of a second or
// more, one line of JSON each:
//
//   {"monotonicSeconds":29149.517,"step":120,"seconds":[0.01204,0.0345],"longest":[0.0139,0.0521],
//    "stragglers":[1],"generation":4294967298,"workers":["gpt-1-[0,1]"]}                    (in one line)
//   [29150.519,147,[0.01209,0.0351],[0.0142,0.0517],[1]]
//
// The first line, and the first of each generation, is an object; it names the workers in the short form of
// worker_names.h. The lines that follow are arrays of its first five values. seconds is the mean of a step
// and longest the longest step, by rank; null: no report. stragglers (ranks; rendezvous/straggler_rule.h) is
// absent when there are none. The reader also accepts files of objects only, which versions before this
// format wrote. Values; pure functions, except BusyHistory.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "rendezvous/busy_times.h"

namespace ringmaster::cli {

// Returns a line without a newline. `names`: it is the object with the generation and the workers.
std::string BusyLine(const rendezvous::GangBusyTimes& times, double monotonic_seconds, bool names);

// Adds the later window `times` of the same generation to `sum`.
void MergeBusyTimes(const rendezvous::GangBusyTimes& times, rendezvous::GangBusyTimes* sum);

// The newest windows of a file, for the page. Not thread-safe.
class BusyHistory {
 public:
  static constexpr size_t kWindows = 120;

  // Reads a line. A line that is no window, such as a torn one, changes nothing.
  void Read(std::string_view line);
  // The number of windows read.
  uint64_t count() const { return count_; }
  // {"reset":..,"workers":[..],"stragglers":[..],"windows":[[step,[seconds..],[longest..]],..]}: of the
  // newest kWindows windows of the newest generation those after the first `after`. reset: all of them.
  Json ToJson(uint64_t after) const;

 private:
  Json workers_ = Json::array();
  Json stragglers_ = Json::array();
  std::deque<Json> windows_;
  uint64_t count_ = 0;
};

}  // namespace ringmaster::cli
