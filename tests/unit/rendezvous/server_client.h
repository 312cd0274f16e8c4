// SPDX-License-Identifier: Apache-2.0

// A connection of an agent to a rendezvous server on this machine.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio.hpp>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/codec.h"

namespace ringmaster::rendezvous {

class Client {
 public:
  explicit Client(uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    const timeval limit{20, 0};  // reached only when the server is broken
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  void Send(const Message& message) { SendRaw(Encode(message)); }
  void SendRaw(const std::string& bytes) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }
  // nullopt: the server has closed the connection.
  std::optional<Message> Next() {
    for (;;) {
      auto next = decoder_.Next();
      EXPECT_TRUE(next.ok());
      if (next.value()) return *next.value();
      char buffer[4096];
      const ssize_t n = recv(socket_.native_handle(), buffer, sizeof(buffer), 0);
      // A server that closes with unread bytes resets the connection.
      if (n < 0 && errno != ECONNRESET) ADD_FAILURE() << "nothing came";
      if (n <= 0) return std::nullopt;
      decoder_.Feed({buffer, static_cast<size_t>(n)});
    }
  }
  // Of the message that Next returned last.
  const std::vector<int32_t>& slots() const { return decoder_.slots(); }
  template <class T>
  T Await() {
    for (;;) {
      auto message = Next();
      if (!message) {
        ADD_FAILURE() << "closed";
        return {};
      }
      if (const T* found = std::get_if<T>(&*message)) return *found;
    }
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  Decoder decoder_;
};

}  // namespace ringmaster::rendezvous
