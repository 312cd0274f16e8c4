// SPDX-License-Identifier: Apache-2.0

// Carries one output stream of a trainer to the agent's own: line by line, as it is, byte for byte.
//
// Nothing here blocks. A reader of our logs that is slow first slows the trainer down (its pipe fills); one
// that takes nothing for kPatience is given up on: whole chunks are dropped, and counted in a line once it
// reads again. So a stuck log collector cannot stop the training. Main thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/time.h"

namespace ringmaster::agent {

class LogPipe {
 public:
  static constexpr size_t kMaxBuffered = size_t{64} << 10;
  static constexpr size_t kMaxLine = size_t{16} << 10;  // a longer one goes out in pieces
  static constexpr Duration kPatience = seconds(2);
  static constexpr size_t kTailLines = 20;
  static constexpr size_t kMaxTailLine = 400;  // bytes of a line that the tail keeps

  // Writes to `target_fd`, which is not owned.
  explicit LogPipe(int target_fd) : target_fd_(target_fd) {}

  // A new incarnation's stream (non-blocking); the tail starts afresh. What is buffered of the last one
  // stays.
  void Attach(Fd source);

  // To poll for POLLIN; -1 without a stream or while the buffer is full.
  int read_fd() const;
  // To poll for POLLOUT; -1 when nothing waits to be written.
  int write_fd() const;

  void OnReadable();
  // Writes what can be written without blocking. Call when write_fd is ready, and now and then for kPatience.
  void Flush(Time now);
  // Takes what the dead trainer left in the pipe, ends a partial line, and lets go of the stream: a
  // grandchild may hold it open for ever. What a full buffer cannot take is lost.
  void Finish(Time now);

  // The newest lines, oldest first, each cut to kMaxTailLine bytes.
  const std::deque<std::string>& tail() const { return tail_; }
  uint64_t dropped_bytes() const { return dropped_total_; }

 private:
  // Bytes that may go out now: all whole lines, or everything when there is no newline in kMaxLine.
  size_t Ready() const;
  void Remember(std::string_view bytes);
  void AddToTail(std::string_view line);

  Fd source_;
  int target_fd_;
  std::string buffer_;
  std::deque<std::string> tail_;
  std::string unfinished_;  // the line at the end of the tail that has no newline yet
  std::optional<Time> stuck_since_;
  uint64_t dropped_ = 0;  // not yet told
  uint64_t dropped_total_ = 0;
};

}  // namespace ringmaster::agent
