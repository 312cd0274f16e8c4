// SPDX-License-Identifier: Apache-2.0

// A small HTTP server for probes and metrics: GET and HEAD, plain or TLS, on one thread. It expects hostile
// clients: heads and bodies are bounded, silent connections are closed, and the number of connections is
// limited.
//
//   const HttpHandler handler = [](const HttpRequest& request, HttpResponder reply) {
//     reply({200, "text/plain; charset=utf-8", "ok"});
//   };
//   RM_ASSIGN(auto server, HttpServer::Start({.host = "127.0.0.1"}, handler));
//
// The handler runs on the server's thread and must not block. It responds exactly once, at once or later,
// from any thread. After the destructor no handler runs, and late responses are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::serve {

struct HttpRequest {
  std::string path;    // without the query
  std::string query;   // after the '?'
  std::string bearer;  // token of the Authorization header; must not be logged
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

using HttpResponder = std::function<void(HttpResponse)>;
using HttpHandler = std::function<void(const HttpRequest&, HttpResponder)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;         // 0: any free port
  std::string tls_cert_pem;  // with the key: TLS 1.2 or newer; both empty: plain HTTP
  std::string tls_key_pem;
  Duration idle_limit = seconds(30);  // to receive a request, and to send a response
  int max_connections = 128;
};

class HttpServer {
  class Impl;

 public:
  // Errors: kUnavailable when it cannot listen on the address; kInvalid for an invalid certificate or key.
  static Result<std::unique_ptr<HttpServer>> Start(HttpServerOptions options, HttpHandler handler);
  explicit HttpServer(std::shared_ptr<Impl> impl);  // for Start
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ringmaster::serve
