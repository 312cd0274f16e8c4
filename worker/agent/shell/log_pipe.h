// SPDX-License-Identifier: Apache-2.0

// LogPipe copies one output stream of a trainer or a program to the agent's own, line by line and unchanged,
// or with a prefix for each line. Of a line that carriage returns overwrite, such as a progress bar, it
// writes the first state, then the newest one every kPartialAge, and the last one, each as a line. A line
// without an end is written as far as it is there after kPartialAge.
//
// It never blocks. A slow reader of the agent's output first slows the trainer down, because the pipe fills.
// When the reader takes nothing for kPatience, whole chunks are dropped, and a line reports the number of
// dropped bytes once the reader continues. So a stuck log collector cannot stop training. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/time.h"

namespace ringmaster::agent {

class LogPipe {
 public:
  static constexpr size_t kMaxBuffered = size_t{64} << 10;
  static constexpr size_t kMaxLine = size_t{16} << 10;  // longer lines are written in pieces
  static constexpr Duration kPatience = seconds(2);
  static constexpr Duration kPartialAge = seconds(5);
  static constexpr size_t kTailLines = 20;
  static constexpr size_t kMaxTailLine = 400;  // bytes of a line kept in the tail
  static constexpr size_t kMaxObserved = size_t{4} << 10;

  // Does not take ownership of `target_fd`.
  explicit LogPipe(int target_fd) : target_fd_(target_fd) {}

  // Starts every further line with this text.
  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }
  // Called with each line, without its newline and cut to kMaxObserved bytes. What a carriage return
  // overwrites is a line for the observer.
  void SetObserver(std::function<void(std::string_view)> observer) { observer_ = std::move(observer); }

  // Reads from the stream of a new incarnation from now on and clears the tail. Buffered bytes of the
  // previous stream remain. REQUIRES: `source` is non-blocking.
  void Attach(Fd source);

  // The fd to poll for POLLIN; -1 without a stream or while the buffer is full.
  int read_fd() const;
  // The fd to poll for POLLOUT; -1 when nothing is pending.
  int write_fd() const;

  void OnReadable();
  // Writes as much as possible without blocking. Call it when write_fd() is ready, and regularly, so that
  // kPatience is noticed.
  void Flush(Time now);
  // Reads what the dead trainer left in the pipe, completes a partial line, and closes the stream: a
  // grandchild may keep the other end open. Bytes that do not fit into the buffer are lost.
  void Finish(Time now);

  // Returns the newest lines, oldest first, each cut to kMaxTailLine bytes, without the states of progress
  // bars: what follows a state in its line is there.
  const std::deque<std::string>& tail() const { return tail_; }
  uint64_t dropped_bytes() const { return dropped_total_; }
  uint64_t bytes_read() const { return bytes_read_; }  // of all streams

 private:
  void Append(std::string_view bytes);
  // Writes text, which begins or continues a line.
  void Emit(std::string_view text);
  void EmitPartial(Time now);
  void EndLine(std::string_view end);
  void Remember(std::string_view bytes);
  void AddToTail(std::string_view line);

  Fd source_;
  int target_fd_;
  std::string prefix_;
  std::function<void(std::string_view)> observer_;
  bool line_begins_ = true;  // the next byte of the output is the first one of a line
  std::string buffer_;       // to be written
  std::string line_;         // of the current line, what is not in buffer_
  bool returned_ = false;    // a carriage return has come after line_
  std::string state_;        // of a progress bar: the newest complete one
  bool is_bar_ = false;      // a carriage return has overwritten a part of the current line
  std::string written_state_;
  std::optional<Time> state_written_at_;
  std::optional<Time> partial_since_;
  std::deque<std::string> tail_;
  std::string unfinished_;        // the last line, which has no newline yet
  std::string overwritten_;       // the state before it; empty: none
  bool carriage_return_ = false;  // it ends with one, which is not in it
  uint64_t bytes_read_ = 0;
  std::optional<Time> stuck_since_;
  uint64_t dropped_ = 0;  // not reported yet
  uint64_t dropped_total_ = 0;
};

}  // namespace ringmaster::agent
