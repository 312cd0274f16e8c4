// SPDX-License-Identifier: Apache-2.0

// What the log of a worker records about its memberships, and the end of the log. On a cluster this is the
// only place where every generation is recorded with its time:
//
//   TIME ... generation=4294967299 rank=1 world=4 transport=rc         a trainer became a member
//   TIME ... generation 4294967299 ended: unavailable: ...             it lost a peer
//   TIME ... trainer member=.. pid=.. lost evidence=mutex ...          its agent noticed its death, or a hang
//   TIME ... trainer member=.. pid=.. ended code=137                   it ended
//   TIME ... signal 15: leaving                                        the pod is being deleted
//   TIME ... program pid=.. rank=1 of 4 started, incarnation 3         the same for other frameworks
//   TIME ... program pid=.. ended code=1
//
// A program may print the same words. It can only spoil the picture of its job, so this is no authority.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

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

class WorkerLog {
 public:
  static constexpr size_t kLines = 300;
  static constexpr size_t kLineBytes = 2000;
  static constexpr size_t kMarks = 4000;

  // Reads a line with its time, as the API server returns it for timestamps=true. A line that is not newer
  // than `known` is skipped: a log that is requested again begins with lines that were read before.
  void Add(std::string_view line, kube::WallTime known = {});

  const std::vector<LogMark>& marks() const { return marks_; }
  uint64_t marked() const { return marked_; }  // number of marks so far; grows with each
  kube::WallTime newest() const { return newest_; }
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

  std::vector<LogMark> marks_;
  uint64_t marked_ = 0;
  Lines tail_;
  std::deque<Lines> failures_;  // the tail after each of the newest marks of a lost or ended process
  kube::WallTime newest_{};
};

}  // namespace ringmaster::cli
