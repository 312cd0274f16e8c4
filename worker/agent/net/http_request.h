// SPDX-License-Identifier: Apache-2.0

// Reads one HTTP/1 request from the bytes of a connection, with limits. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ringmaster::agent {

struct HttpRequest {
  std::string method;
  std::string target;
  std::string authorization;  // the header of this name; empty: none
  std::string body;
};

class HttpRequestReader {
 public:
  static constexpr size_t kMaxHead = size_t{8} << 10;
  static constexpr size_t kMaxBody = size_t{64} << 10;

  // Takes what the connection has received. Bytes after the request are ignored: each connection has one.
  void Feed(std::string_view bytes);

  // The answer is due: the request is complete, or not to be answered by anything but an error.
  bool done() const { return part_ == Part::kDone; }
  // The status of the error; 0: none.
  int error() const { return error_; }
  // REQUIRES: done() and no error.
  const HttpRequest& request() const { return request_; }
  // Returns true once if the client waits for "100 Continue" before it sends the body.
  bool TakeExpectation();

 private:
  enum class Part { kHead, kBody, kDone };

  void OnLine(std::string_view line);
  void OnHeader(std::string_view name, std::string_view value);
  void EndHead();
  void Refuse(int status);

  Part part_ = Part::kHead;
  std::string line_;  // of the head, as far as it was received
  size_t head_ = 0;   // bytes of the head
  std::optional<size_t> length_;
  bool chunked_ = false;
  bool expects_ = false;
  int error_ = 0;
  HttpRequest request_;
};

}  // namespace ringmaster::agent
