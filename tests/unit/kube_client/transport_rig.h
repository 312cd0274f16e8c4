// SPDX-License-Identifier: Apache-2.0

// Shared by the transport's tests: clients of a server on loopback, and its first responses.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fd.h"
#include "operator/kube/cpprest_http.h"
#include "tests/unit/kube_client/faulty_server.h"
#include "tests/unit/kube_client/waiting.h"

namespace ringmaster::kube {

inline std::unique_ptr<HttpClient> Client(const std::string& url, const TransportOptions& options = {},
                                          std::shared_ptr<TokenSource> token = nullptr) {
  ClientConfig config;
  config.server = url;
  config.token = std::move(token);
  auto client = MakeHttpClient(config, options);
  EXPECT_TRUE(client.ok()) << client.error().message;
  return std::move(client).value();
}

inline TransportOptions Impatient() {
  TransportOptions options;
  options.silence = milliseconds(300);
  options.stream_silence = milliseconds(300);
  return options;
}

// Reads a request and writes this.
inline void AfterRequest(Connection& connection, std::string_view bytes) {
  SeenRequest request;
  if (!connection.ReadRequest(request)) return;
  connection.Write(bytes);
}

// A listener whose queue is full: the kernel drops new connections.
class FullListener {
 public:
  FullListener() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(::listen(listener_.get(), 0) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 4; ++i) {
      Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size);
      waiting_.push_back(std::move(fd));
    }
  }
  std::string Url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  Fd listener_;
  uint16_t port_ = 0;
  std::vector<Fd> waiting_;
};

}  // namespace ringmaster::kube
