// SPDX-License-Identifier: Apache-2.0

// A small HTTP server for probes and metrics: GET only, plain or TLS, on one thread of its own. Hostile
// clients are expected: heads and bodies are bounded, silent connections are closed, and there is a limit to
// how many there are.
//
//   RM_ASSIGN(auto server, HttpServer::Start({.host = "127.0.0.1"}, [](const HttpRequest& query,
//   HttpResponder reply) {
//     reply({200, "text/plain; charset=utf-8", "ok"});
//   }));
//
// The handler runs on the server's thread and must not block; it answers at once or later, from any thread,
// exactly once. After the destructor returned no handler runs any more, and late answers are dropped.
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
  std::string query;   // behind the '?'
  std::string bearer;  // token of the Authorization header; never to be logged
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
  uint16_t port = 0;         // 0: any free one
  std::string tls_cert_pem;  // with the key: TLS 1.2 and newer; both empty: plain
  std::string tls_key_pem;
  Duration idle_limit = seconds(30);  // for a request to come, and for an answer to go
  int max_connections = 128;
};

class HttpServer {
  class Impl;

 public:
  // kUnavailable when the address cannot be listened on; kInvalid for a certificate or key that is none.
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
