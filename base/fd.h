// SPDX-License-Identifier: Apache-2.0

// An owned file descriptor, closed on destruction. Move-only. Not thread-safe.
#pragma once

#include <unistd.h>

#include <utility>

namespace ringmaster {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Returns the descriptor and gives up ownership.
  int Release() { return std::exchange(fd_, -1); }
  // Closes the descriptor, if there is one.
  void Reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace ringmaster
