// SPDX-License-Identifier: Apache-2.0

// The socket of a program's reports of progress: a Unix datagram socket for this user alone. Each message is
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

  static constexpr size_t kLongestPath = 107;  // that the address of a socket can have
  static constexpr std::string_view kName = "/progress";

  // Creates the socket in `folder`. REQUIRES: the path of `folder` and `name` fit into kLongestPath.
  static Result<ProgressSocket> Open(const std::string& folder, std::string_view name = kName);

  const std::string& path() const { return path_; }
  int fd() const { return socket_.get(); }
  // Passes the messages that have arrived to `take`, at most a few dozen per call.
  void Read(const std::function<void(std::string_view)>& take);

 private:
  ProgressSocket() = default;

  Fd socket_;
  std::string path_;
};

}  // namespace ringmaster::agent
