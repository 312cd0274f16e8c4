// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/byte_stream.h"

#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace ringmaster::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(tcp::socket socket) : socket_(std::move(socket)) {}
  void Handshake(std::function<void(error_code)> done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void Read(asio::mutable_buffer into, Done done) override { socket_.async_read_some(into, std::move(done)); }
  void Write(asio::const_buffer all, Done done) override { asio::async_write(socket_, all, std::move(done)); }
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsStream final : public ByteStream {
 public:
  TlsStream(tcp::socket socket, TlsContext tls) : tls_(std::move(tls)), stream_(std::move(socket), *tls_) {}
  void Handshake(std::function<void(error_code)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void Read(asio::mutable_buffer into, Done done) override { stream_.async_read_some(into, std::move(done)); }
  void Write(asio::const_buffer all, Done done) override { asio::async_write(stream_, all, std::move(done)); }
  // Without a TLS shutdown: the length prefix of a frame reveals truncation, and a shutdown would wait for
  // the peer.
  void Close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  const TlsContext tls_;  // outlives the stream
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

Result<TlsContext> MakeTlsContext(const std::string& cert_pem, const std::string& key_pem) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  error_code error;
  context->use_certificate_chain(asio::buffer(cert_pem), error);
  if (error) return Error{Code::kInvalid, "certificate: " + error.message()};
  context->use_private_key(asio::buffer(key_pem), asio::ssl::context::pem, error);
  if (error) return Error{Code::kInvalid, "private key: " + error.message()};
  return context;
}

std::unique_ptr<ByteStream> MakeByteStream(tcp::socket socket, TlsContext tls) {
  if (tls) return std::make_unique<TlsStream>(std::move(socket), std::move(tls));
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace ringmaster::rendezvous
