// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/log_pipe.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <utility>

namespace ringmaster::agent {
namespace {

// A pipe that polls writable takes this many bytes without blocking; files and terminals always do.
constexpr size_t kSafeWrite = PIPE_BUF;

bool Writable(int fd) {
  pollfd wait = {fd, POLLOUT, 0};
  return ::poll(&wait, 1, 0) == 1 && (wait.revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) != 0;
}

bool IsLetter(char c) {
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z';
}

// Returns what follows the state of a progress bar in its line, such as an error: bars end without a newline.
// Two states have the same letters, and differ in digits and signs.
std::string_view BehindState(std::string_view line, std::string_view state) {
  size_t at = 0;
  for (const char c : state) {
    if (!IsLetter(c)) continue;
    while (at < line.size() && !IsLetter(line[at])) ++at;
    if (at == line.size() || line[at] != c) return line;  // another text
    ++at;
  }
  const auto rest = std::find_if(line.begin() + static_cast<std::ptrdiff_t>(at), line.end(), IsLetter);
  return line.substr(static_cast<size_t>(rest - line.begin()));
}

}  // namespace

void LogPipe::Attach(Fd source) {
  source_ = std::move(source);
  tail_.clear();
  unfinished_.clear();
  overwritten_.clear();
  carriage_return_ = false;
  line_begins_ = true;
}

int LogPipe::read_fd() const { return buffer_.size() >= kMaxBuffered ? -1 : source_.get(); }

int LogPipe::write_fd() const { return !buffer_.empty() || dropped_ > 0 ? target_fd_ : -1; }

void LogPipe::OnReadable() {
  char chunk[16 << 10];
  while (source_.valid() && buffer_.size() < kMaxBuffered) {
    const size_t room = std::min(sizeof chunk, kMaxBuffered - buffer_.size());
    const ssize_t got = ::read(source_.get(), chunk, room);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      source_.Reset();
      return;
    }
    const std::string_view bytes(chunk, static_cast<size_t>(got));
    bytes_read_ += bytes.size();
    Remember(bytes);
    Append(bytes);
  }
}

void LogPipe::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (returned_ && bytes.front() != '\n' && bytes.front() != '\r') {
      if (!line_.empty()) {
        state_ = std::exchange(line_, {});
        is_bar_ = true;
      }
      returned_ = false;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() >= kMaxLine) Emit(std::exchange(line_, {}));
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n')
      EndLine(returned_ && !is_bar_ ? "\r\n" : "\n");
    else
      returned_ = true;
    bytes.remove_prefix(end + 1);
  }
}

void LogPipe::Emit(std::string_view text) {
  if (line_begins_ && !text.empty()) buffer_ += prefix_;
  buffer_ += text;
  line_begins_ = text.empty() ? line_begins_ : text.back() == '\n';
}

void LogPipe::EndLine(std::string_view end) {
  // The final state may be written already.
  if (!is_bar_ || line_ != written_state_) Emit(line_ + std::string(end));
  line_.clear();
  state_.clear();
  written_state_.clear();
  state_written_at_.reset();
  partial_since_.reset();
  is_bar_ = false;
  returned_ = false;
}

void LogPipe::EmitPartial(Time now) {
  if (is_bar_) {
    if (state_.empty() || (state_written_at_ && now - *state_written_at_ < kPartialAge)) return;
    // What the bar follows in its line has no end.
    if (!line_begins_) Emit("\n");
    Emit(state_ + "\n");
    written_state_ = std::exchange(state_, {});
    state_written_at_ = now;
    return;
  }
  if (line_.empty() || returned_) return partial_since_.reset();
  if (!partial_since_) partial_since_ = now;
  if (now - *partial_since_ < kPartialAge) return;
  Emit(std::exchange(line_, {}));
  partial_since_.reset();
}

void LogPipe::Flush(Time now) {
  EmitPartial(now);
  while (true) {
    if (buffer_.size() >= kMaxBuffered && stuck_since_ && now - *stuck_since_ >= kPatience) {
      dropped_ += buffer_.size();
      dropped_total_ += buffer_.size();
      buffer_.clear();
    }
    if (buffer_.empty() && dropped_ == 0) return;
    if (!Writable(target_fd_)) {
      if (!stuck_since_) stuck_since_ = now;
      return;
    }
    std::string notice;
    if (dropped_ > 0) notice = fmt::format("\n[{} bytes of output dropped: not read in time]\n", dropped_);
    const std::string_view out = notice.empty() ? std::string_view(buffer_).substr(0, kSafeWrite) : notice;
    const ssize_t put = ::write(target_fd_, out.data(), out.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      if (!stuck_since_) stuck_since_ = now;
      return;
    }
    stuck_since_.reset();
    if (!notice.empty()) {
      dropped_ = 0;
    } else {
      // After an error (disk full, reader closed) the bytes are lost.
      buffer_.erase(0, put < 0 ? out.size() : static_cast<size_t>(put));
    }
  }
}

void LogPipe::Finish(Time now) {
  while (source_.valid()) {
    const size_t before = buffer_.size();
    OnReadable();
    const size_t after = buffer_.size();
    Flush(now);
    // Nothing more to read, or no room for it.
    if (after == before) break;
  }
  source_.Reset();
  if (!line_.empty() || !line_begins_) EndLine("\n");
  if (!unfinished_.empty()) Remember("\n");
  Flush(now);
}

void LogPipe::Remember(std::string_view bytes) {
  while (!bytes.empty()) {
    if (carriage_return_ && bytes.front() != '\n') {
      if (observer_ && !unfinished_.empty()) observer_(unfinished_);
      if (!unfinished_.empty()) overwritten_ = std::exchange(unfinished_, {});
    }
    carriage_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view line = bytes.substr(0, end);
    unfinished_ += line.substr(0, kMaxObserved - std::min(kMaxObserved, unfinished_.size()));
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n') {
      AddToTail(unfinished_);
      unfinished_.clear();
      overwritten_.clear();
    } else {
      carriage_return_ = true;
    }
    bytes.remove_prefix(end + 1);
  }
}

void LogPipe::AddToTail(std::string_view line) {
  if (observer_) observer_(line);
  if (!overwritten_.empty()) {
    line = BehindState(line, overwritten_);
    if (line.empty()) return;
  }
  if (tail_.size() == kTailLines) tail_.pop_front();
  tail_.emplace_back(line.substr(0, kMaxTailLine));
}

}  // namespace ringmaster::agent
