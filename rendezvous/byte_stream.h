// SPDX-License-Identifier: Apache-2.0

// ByteStream is an accepted connection as a byte stream, plain or TLS. Not thread-safe; used on the server's
// thread, in its io_context. Every callback runs exactly once; after Close it reports an error.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace ringmaster::rendezvous {

class ByteStream {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~ByteStream() = default;
  virtual void Handshake(std::function<void(boost::system::error_code)> done) = 0;
  virtual void Read(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void Write(boost::asio::const_buffer all, Done done) = 0;
  virtual void Close() = 0;
};

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Errors: kInvalid when the certificate or the key cannot be parsed, or when they do not match.
Result<TlsContext> MakeTlsContext(const std::string& cert_pem, const std::string& key_pem);

// `tls` null: plain.
std::unique_ptr<ByteStream> MakeByteStream(boost::asio::ip::tcp::socket socket, TlsContext tls);

}  // namespace ringmaster::rendezvous
