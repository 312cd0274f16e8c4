// SPDX-License-Identifier: Apache-2.0

// A client that sends and receives bytes, for tests of HTTP servers. Loopback only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/http/server.h"

namespace ringmaster::http {

inline constexpr int kLimitMs = 20'000;  // for events that are immediate unless there is a bug

inline Fd Connect(uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

inline void Send(const Fd& fd, const std::string& text) {
  ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Reads until the connection ends or the text contains `enough`.
inline std::string Receive(const Fd& fd, const std::string& enough = "") {
  std::string text;
  char buffer[4096];
  pollfd wait{fd.get(), POLLIN, 0};
  while (poll(&wait, 1, kLimitMs) == 1) {
    const ssize_t n = recv(fd.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (!enough.empty() && text.find(enough) != std::string::npos) return text;
  }
  return text + "<nothing more came, and no end>";
}

inline std::string Get(uint16_t port, const std::string& target, const std::string& more = "") {
  const Fd fd = Connect(port);
  Send(fd, "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + more + "\r\n");
  return Receive(fd);
}

inline std::unique_ptr<Server> Start(Handler handler, ServerOptions options = {}) {
  auto server = Server::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok());
  return std::move(server).value();
}

}  // namespace ringmaster::http
