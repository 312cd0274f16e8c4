// SPDX-License-Identifier: Apache-2.0

// The agent's end of the channel to a trainer, or to a program of the library, that runs in a thread of the
// test.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <string>
#include <variant>

#include "base/fd.h"
#include "rendezvous/codec.h"

namespace ringmaster {

class AgentEnd {
 public:
  AgentEnd() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    other_ = Fd(ends[0]);
    agent_ = Fd(ends[1]);
    const timeval limit{60, 0};  // reached only when the other end is broken
    ::setsockopt(agent_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  // The other end, once.
  Fd TakeOther() { return std::move(other_); }

  void Send(const rendezvous::Message& message) {
    const std::string frame = rendezvous::Encode(message);
    EXPECT_EQ(::send(agent_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }

  // Skips messages of other types.
  template <class T>
  T Await() {
    for (;;) {
      auto next = decoder_.Next();
      if (next.ok() && next->has_value()) {
        if (const T* found = std::get_if<T>(&**next)) return *found;
        continue;
      }
      char buffer[4096];
      const ssize_t got = ::recv(agent_.get(), buffer, sizeof buffer, 0);
      if (got <= 0) {
        ADD_FAILURE() << "nothing came";
        return {};
      }
      decoder_.Feed({buffer, static_cast<size_t>(got)});
    }
  }

 private:
  Fd other_;
  Fd agent_;
  rendezvous::Decoder decoder_;
};

}  // namespace ringmaster
