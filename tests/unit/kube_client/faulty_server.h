// SPDX-License-Identifier: Apache-2.0

// A server whose behaviour a test defines per connection: it can respond in pieces, stop at any point, reset
// or stay silent. One thread per connection; loopback, a free port.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "tests/unit/kube_client/certificates.h"

namespace ringmaster::kube {

struct SeenRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class FaultyServer;

// Every member blocks, and returns false once the connection has ended.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual bool Write(std::string_view bytes) = 0;
  virtual size_t Read(char* buffer, size_t size) = 0;  // 0: the connection has ended
  virtual void Close() = 0;                            // normally: FIN
  virtual void Reset() = 0;                            // RST
  bool ReadRequest(SeenRequest& request, bool with_body = true);
  // Returns when the client has disconnected.
  void Linger();

 private:
  std::string buffer_;
};

struct ServerOptions {
  TestIdentity identity{};  // empty: plain
  std::string client_ca{};  // clients must send a certificate of this authority
  bool tls12 = false;       // at most
  std::string host = "127.0.0.1";
};

class FaultyServer {
 public:
  using Handler = std::function<void(Connection&, int index)>;  // index: 0 for the first connection
  using Options = ServerOptions;

  explicit FaultyServer(Handler handler, Options options = {});
  ~FaultyServer();
  FaultyServer(const FaultyServer&) = delete;
  FaultyServer& operator=(const FaultyServer&) = delete;

  uint16_t port() const { return port_; }
  std::string Url() const;
  int connections() const { return connections_; }

 private:
  void Accept();

  const Options options_;
  const Handler handler_;
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  bool closed_ = false;
  std::set<int> sockets_;  // open, to be shut down at the end
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// "HTTP/1.1 200 OK" with this body and Content-Length.
std::string Answer(int status, std::string_view body, std::string_view more_headers = {});
// The head of a chunked response, one chunk, and the end.
std::string ChunkedHead();
std::string Chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace ringmaster::kube
