// SPDX-License-Identifier: Apache-2.0

// A small HTTP server on Boost.Beast for probes, metrics and the live page: GET and HEAD, plain or TLS, on
// one thread. It expects hostile clients: heads and bodies are bounded, silent connections are closed, a
// client that does not read a stream loses it, and the number of connections is limited.
//
//   const http::Handler handler = [](const http::Request& request, http::Responder reply) {
//     reply({200, "text/plain; charset=utf-8", "ok"});
//   };
//   RM_ASSIGN(auto server, http::Server::Start({.host = "127.0.0.1"}, handler));
//
// The handler runs on the server's thread and must not block. It responds exactly once, at once or later,
// from any thread. After the destructor no handler runs, and late responses are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::http {

struct Request {
  std::string path;         // without the query
  std::string query;        // after the '?'
  std::string bearer = {};  // token of the Authorization header; must not be logged
  std::string host = {};    // Host header, with the port
  std::string origin = {};  // Origin header; browsers send it with requests of other pages
  std::string cookie = {};  // Cookie header; must not be logged
};

// A body that is sent piece by piece, such as server-sent events. Thread-safe; copies are the same stream.
// The stream ends when the last copy is destroyed.
class BodyStream {
 public:
  class Sink;
  explicit BodyStream(std::shared_ptr<Sink> sink) : sink_(std::move(sink)) {}  // for the server
  // Queues a piece and returns at once. Returns false when the connection has ended: the client went away, or
  // it read so slowly that more than kMaxQueuedBytes waited.
  bool Write(std::string piece) const;

  static constexpr size_t kMaxQueuedBytes = 8U << 20;

 private:
  std::shared_ptr<Sink> sink_;
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // more headers
  // If set, the body is what this function writes. Called once, on the server's thread, after the head was
  // sent; not called for HEAD.
  std::function<void(BodyStream)> stream = {};
};

using Responder = std::function<void(Response)>;
using Handler = std::function<void(const Request&, Responder)>;

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;         // 0: any free port
  std::string tls_cert_pem;  // with the key: TLS 1.2 or newer; both empty: plain HTTP
  std::string tls_key_pem;
  Duration idle_limit = seconds(30);  // to receive a request, and to send a response or a piece of a stream
  int max_connections = 128;
};

class Server {
  class Impl;

 public:
  // Errors: kUnavailable when it cannot listen on the address; kInvalid for an invalid certificate or key.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options, Handler handler);
  explicit Server(std::shared_ptr<Impl> impl);  // for Start
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ringmaster::http
