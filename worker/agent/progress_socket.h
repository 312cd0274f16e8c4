// SPDX-License-Identifier: Apache-2.0

// The socket of a program's reports of progress: a Unix datagram socket in a private folder. Each message is
// text as in program_progress.h. Move-only; not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::agent {

class ProgressSocket {
 public:
  static constexpr size_t kMaxMessage = size_t{4} << 10;  // longer messages are dropped

  // Creates a folder that only this user can enter, and the socket in it. The folder is in `folder`, or where
  // temporary files are when that is empty, too long for the address of a socket, or not writable.
  // Errors: kUnavailable when no folder is writable.
  static Result<ProgressSocket> Open(const std::string& folder);

  ProgressSocket(ProgressSocket&& other) = default;
  ProgressSocket& operator=(ProgressSocket&& other) = delete;
  ~ProgressSocket();  // removes the socket and its folder

  const std::string& path() const { return path_; }
  int fd() const { return socket_.get(); }
  // Passes the messages that have arrived to `take`, at most a few dozen per call.
  void Read(const std::function<void(std::string_view)>& take);

 private:
  ProgressSocket() = default;

  Fd socket_;
  std::string folder_;
  std::string path_;
};

}  // namespace ringmaster::agent
