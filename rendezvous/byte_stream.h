// SPDX-License-Identifier: Apache-2.0

// ByteStream is an accepted connection as a byte stream, plain or TLS. It never blocks, and keeps no buffers
// while it is idle: thousands of connections are idle most of the time. Not thread-safe; used on the server's
// thread, in its io_context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"

namespace boost::asio::ssl {
class context;
}

namespace ringmaster::rendezvous {

class ByteStream {
 public:
  using Ready = std::function<void(boost::system::error_code)>;

  virtual ~ByteStream() = default;
  // Advances the handshake. Returns true when it is complete; false: call it again after WaitReadable.
  virtual Result<bool> Handshake() = 0;
  // Return the number of bytes received or sent; 0: none now. Errors: kGone at the end of the stream.
  virtual Result<size_t> Receive(char* into, size_t size) = 0;
  virtual Result<size_t> Send(const char* data, size_t size) = 0;
  // Whether Receive would return bytes that have left the socket already.
  virtual bool HasPending() const = 0;
  // Calls `ready` once, when Handshake or Receive can continue, or with an error after Close.
  virtual void WaitReadable(Ready ready) = 0;
  virtual void WaitWritable(Ready ready) = 0;
  // Returns when the newest bytes reached this machine, if some of them wait to be received from here;
  // Time::min(): none wait.
  virtual Time LastArrival(Time now) = 0;
  virtual void Close() = 0;
};

// Returns the port. Errors: kInvalid when `host` is not an address; kUnavailable when listening fails.
Result<uint16_t> ListenOn(boost::asio::ip::tcp::acceptor& acceptor, const std::string& host, uint16_t port);

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Errors: kInvalid when the certificate or the key cannot be parsed, or when they do not match.
Result<TlsContext> MakeTlsContext(const std::string& cert_pem, const std::string& key_pem);

// `tls` null: plain. The kernel ends a connection whose peer has not answered, or has not read, for
// kUserTimeoutMs.
inline constexpr int kUserTimeoutMs = 10'000;
std::unique_ptr<ByteStream> MakeByteStream(boost::asio::ip::tcp::socket socket, TlsContext tls);

}  // namespace ringmaster::rendezvous
