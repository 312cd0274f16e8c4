// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/byte_stream.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kKeepAliveIdleSeconds = 20;
constexpr int kKeepAliveIntervalSeconds = 5;

Error Ended() { return {Code::kGone, "closed by the other side"}; }

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    Set(IPPROTO_TCP, TCP_NODELAY, 1);
    Set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
    Set(SOL_SOCKET, SO_KEEPALIVE, 1);
    Set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
    Set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  }
  Result<bool> Handshake() override { return true; }
  Result<size_t> Receive(char* into, size_t size) override {
    const ssize_t got = ::recv(socket_.native_handle(), into, size, 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return size_t{0};
    return Ended();
  }
  Result<size_t> Send(const char* data, size_t size) override {
    const ssize_t put = ::send(socket_.native_handle(), data, size, MSG_NOSIGNAL);
    if (put >= 0) return static_cast<size_t>(put);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return Ended();
  }
  bool HasPending() const override { return false; }
  void WaitReadable(Ready ready) override { socket_.async_wait(tcp::socket::wait_read, std::move(ready)); }
  void WaitWritable(Ready ready) override { socket_.async_wait(tcp::socket::wait_write, std::move(ready)); }
  Time LastArrival(Time now) override {
    int unread = 0;
    if (!HasPending() && (::ioctl(socket_.native_handle(), FIONREAD, &unread) != 0 || unread == 0))
      return Time::min();
    tcp_info info = {};
    socklen_t size = sizeof info;
    // Best effort: a connection without this information counts as silent.
    if (::getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return Time::min();
    return now - milliseconds(info.tcpi_last_data_recv);
  }
  // Without a TLS shutdown: the length prefix of a frame reveals truncation, and a shutdown would wait for
  // the peer.
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 protected:
  int fd() { return socket_.native_handle(); }

 private:
  void Set(int level, int option, int value) {
    // Best effort: without the option a dead peer is noticed later.
    ::setsockopt(socket_.native_handle(), level, option, &value, sizeof value);
  }

  tcp::socket socket_;
};

// OpenSSL reads and writes the socket itself: asio's stream keeps four buffers of 17 KiB per connection.
class TlsStream final : public PlainStream {
 public:
  TlsStream(tcp::socket socket, TlsContext tls) : PlainStream(std::move(socket)), tls_(std::move(tls)) {
    ssl_.reset(SSL_new(tls_->native_handle()));
    CHECK(ssl_ != nullptr, "SSL_new");
    CHECK(SSL_set_fd(ssl_.get(), fd()) == 1, "SSL_set_fd");
    SSL_set_accept_state(ssl_.get());
  }
  Result<bool> Handshake() override {
    ERR_clear_error();
    const int rc = SSL_do_handshake(ssl_.get());
    if (rc == 1) return true;
    if (MustWait(rc)) return false;
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    return Error{Code::kGone,
                 std::string("TLS: ") + (reason != nullptr ? reason : "closed by the other side")};
  }
  Result<size_t> Receive(char* into, size_t size) override {
    ERR_clear_error();
    size_t got = 0;
    const int rc = SSL_read_ex(ssl_.get(), into, size, &got);
    if (rc == 1) return got;
    if (MustWait(rc)) return size_t{0};
    return Ended();
  }
  Result<size_t> Send(const char* data, size_t size) override {
    ERR_clear_error();
    size_t put = 0;
    const int rc = SSL_write_ex(ssl_.get(), data, size, &put);
    if (rc == 1) return put;
    const int why = SSL_get_error(ssl_.get(), rc);
    if (why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ) return size_t{0};
    return Ended();
  }
  bool HasPending() const override { return SSL_has_pending(ssl_.get()) == 1; }
  void WaitReadable(Ready ready) override {
    wants_write_ ? PlainStream::WaitWritable(std::move(ready)) : PlainStream::WaitReadable(std::move(ready));
  }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  bool MustWait(int rc) {
    const int why = SSL_get_error(ssl_.get(), rc);
    wants_write_ = why == SSL_ERROR_WANT_WRITE;
    return wants_write_ || why == SSL_ERROR_WANT_READ;
  }

  const TlsContext tls_;  // outlives the session
  std::unique_ptr<SSL, Free> ssl_;
  bool wants_write_ = false;  // what Handshake or Receive waits for
};

}  // namespace

Result<uint16_t> ListenOn(tcp::acceptor& acceptor, const std::string& host, uint16_t port) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return Error{Code::kInvalid, host + ": not an address: " + error.message()};
  const tcp::endpoint endpoint(address, port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) port = acceptor.local_endpoint(error).port();
  if (error) {
    return Error{Code::kUnavailable, fmt::format("cannot listen on {}:{}: {}", host, port, error.message())};
  }
  return port;
}

Result<TlsContext> MakeTlsContext(const std::string& cert_pem, const std::string& key_pem) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(
      native, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Agents do not resume sessions, so none is kept.
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_read_ahead(native, 1);  // one system call per record instead of two
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
