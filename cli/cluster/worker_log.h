// SPDX-License-Identifier: Apache-2.0

// What the log of a worker records about its memberships and its progress, and the end of the log. On a
// cluster this is the only place where every generation is recorded with its time, and the only one with a
// history of steps:
//
//   TIME ... generation=4294967299 rank=1 world=4 transport=rc         a trainer became a member
//   TIME ... generation 4294967299 ended: unavailable: ...             it lost a peer
//   TIME ... trainer member=.. pid=.. lost evidence=mutex ...          its agent noticed its death, or a hang
//   TIME ... trainer member=.. pid=.. ended code=137                   it ended
//   TIME ... signal 15: leaving                                        the pod is being deleted
//   TIME ... program pid=.. rank=1 of 4 started, incarnation 3         the same for other frameworks
//   TIME ... program pid=.. ended code=1
//   TIME ... step=1200 steps=3000 loss=2.31 ...                        worker/trainer/progress_log.h
//
// A program may print the same words. It can only spoil the picture of its job, so this is no authority, and
// everything is bounded.
//
// Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/history/busy_windows.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

struct LogMark {
  enum class Kind : uint8_t { kMember, kPeerLost, kLost, kEnded, kLeaving };
  Kind kind = Kind::kMember;
  kube::WallTime at{};
  uint64_t generation = 0;    // kMember, kPeerLost
  int rank = 0;               // kMember
  int world = 0;              // kMember
  int exit_code = 0;          // kEnded
  std::string evidence = {};  // kLost
  std::string text = {};      // for people
};

// A line about progress. NaN: it has no such value.
struct LogStep {
  int64_t step = 0;
  double loss = NAN;
  double learning_rate = NAN;
  double samples_per_second = NAN;
  double validation = NAN;
  int64_t validation_step = 0;
};

class WorkerLog {
 public:
  static constexpr size_t kLines = 300;
  static constexpr size_t kLineBytes = 2000;
  static constexpr size_t kMarks = 4000;
  static constexpr size_t kSteps = 20'000;  // that are not taken yet
  static constexpr size_t kBusy = 480;      // a pod may have several trainers

  // Reads a line with its time, as the API server returns it for timestamps=true. A line that is not newer
  // than `known` is skipped: a log that is requested again begins with lines that were read before.
  void Add(std::string_view line, kube::WallTime known = {});

  const std::vector<LogMark>& marks() const { return marks_; }
  uint64_t marked() const { return marked_; }  // number of marks so far; grows with each
  kube::WallTime newest() const { return newest_; }
  // Returns the progress that was read since the last call, oldest first.
  std::vector<LogStep> TakeSteps() { return std::exchange(steps_, {}); }
  // The newest busy times, oldest first, and the number of them so far.
  const std::deque<BusyReport>& busy() const { return busy_; }
  uint64_t busy_read() const { return busy_read_; }
  // The last lines, without times and without control characters.
  std::string Tail() const;
  // The same up to a failure. `reported`: when the operator learned of it, to the second.
  std::string TailOfFailure(kube::WallTime reported) const;

 private:
  struct Line {
    kube::WallTime at{};
    std::string text;
  };
  using Lines = std::deque<Line>;

  void Mark(std::string_view text);
  void ReadStep(std::string_view text);

  std::vector<LogMark> marks_;
  uint64_t marked_ = 0;
  std::vector<LogStep> steps_;
  std::deque<BusyReport> busy_;
  uint64_t busy_read_ = 0;
  Lines tail_;
  std::deque<Lines> failures_;  // the tail after each of the newest marks of a lost or ended process
  kube::WallTime newest_{};
};

using WorkerLogs = std::map<std::string, const WorkerLog*>;  // by pod

}  // namespace ringmaster::cli
