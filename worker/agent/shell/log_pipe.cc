// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/log_pipe.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ringmaster::agent {
namespace {

// A pipe that polls writable takes this many bytes without blocking; files and terminals always do.
constexpr size_t kSafeWrite = PIPE_BUF;

bool Writable(int fd) {
  pollfd wait = {fd, POLLOUT, 0};
  return ::poll(&wait, 1, 0) == 1 && (wait.revents & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) != 0;
}

}  // namespace

void LogPipe::Attach(Fd source) {
  source_ = std::move(source);
  tail_.clear();
  unfinished_.clear();
  carriage_return_ = false;
  line_begins_ = true;
}

int LogPipe::read_fd() const { return buffer_.size() >= kMaxBuffered ? -1 : source_.get(); }

int LogPipe::write_fd() const { return Ready() > 0 || dropped_ > 0 ? target_fd_ : -1; }

size_t LogPipe::Ready() const {
  const size_t newline = buffer_.rfind('\n');
  const size_t whole = newline == std::string::npos ? 0 : newline + 1;
  return buffer_.size() - whole >= kMaxLine || !source_.valid() ? buffer_.size() : whole;
}

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
  if (prefix_.empty()) {
    buffer_ += bytes;
    return;
  }
  while (!bytes.empty()) {
    if (line_begins_) buffer_ += prefix_;
    const size_t newline = bytes.find('\n');
    line_begins_ = newline != std::string_view::npos;
    const size_t size = line_begins_ ? newline + 1 : bytes.size();
    buffer_ += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
}

void LogPipe::Flush(Time now) {
  while (true) {
    if (buffer_.size() >= kMaxBuffered && stuck_since_ && now - *stuck_since_ >= kPatience) {
      dropped_ += buffer_.size();
      dropped_total_ += buffer_.size();
      buffer_.clear();
    }
    const size_t ready = Ready();
    if (ready == 0 && dropped_ == 0) return;
    if (!Writable(target_fd_)) {
      if (!stuck_since_) stuck_since_ = now;
      return;
    }
    std::string notice;
    if (dropped_ > 0) notice = fmt::format("\n[{} bytes of output dropped: not read in time]\n", dropped_);
    const std::string_view out =
        notice.empty() ? std::string_view(buffer_).substr(0, std::min(ready, kSafeWrite)) : notice;
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
  if (!unfinished_.empty()) {
    buffer_ += '\n';
    Remember("\n");
  }
  Flush(now);
}

void LogPipe::Remember(std::string_view bytes) {
  while (!bytes.empty()) {
    if (carriage_return_ && bytes.front() != '\n') {
      if (observer_ && !unfinished_.empty()) observer_(unfinished_);
      unfinished_.clear();
    }
    carriage_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view line = bytes.substr(0, end);
    unfinished_ += line.substr(0, kMaxObserved - std::min(kMaxObserved, unfinished_.size()));
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\n') {
      AddToTail(unfinished_);
      unfinished_.clear();
    } else {
      carriage_return_ = true;
    }
    bytes.remove_prefix(end + 1);
  }
}

void LogPipe::AddToTail(std::string_view line) {
  if (observer_) observer_(line);
  if (tail_.size() == kTailLines) tail_.pop_front();
  tail_.emplace_back(line.substr(0, kMaxTailLine));
}

}  // namespace ringmaster::agent
