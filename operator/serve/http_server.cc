// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/http_server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"

namespace ringmaster::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint64_t kMaxBodyBytes = 4096;
constexpr uint32_t kMaxHeadBytes = 16384;

HttpRequest ToRequest(const http::request<http::string_body>& request) {
  HttpRequest result;
  const std::string target(request.target());
  const size_t mark = target.find('?');
  result.path = target.substr(0, mark);
  if (mark != std::string::npos) result.query = target.substr(mark + 1);
  const std::string authorization(request[http::field::authorization]);
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.starts_with(kScheme)) result.bearer = authorization.substr(kScheme.size());
  return result;
}

// The server's view of plain and TLS connections.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Begin() = 0;
  virtual void Close() = 0;
};

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpServerOptions options, HttpHandler handler)
      : options_(std::move(options)), handler_(std::move(handler)), acceptor_(io_), pause_(io_) {}

  Status Listen() {
    if (!options_.tls_cert_pem.empty()) RM_TRY(LoadCertificate());
    error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (!error) acceptor_.open(tcp::endpoint(address, options_.port).protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind({address, options_.port}, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error)
      return Error{Code::kUnavailable,
                   fmt::format("cannot listen on {}:{}: {}", options_.host, options_.port, error.message())};
    port_ = acceptor_.local_endpoint().port();
    return Ok();
  }

  void Run() {
    Accept();
    thread_ = std::thread([this] { io_.run(); });
  }

  void Stop() {
    asio::post(io_, [this] {
      closed_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      for (Connection* connection : std::list<Connection*>(connections_)) connection->Close();
    });
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return port_; }
  const HttpServerOptions& options() const { return options_; }
  const HttpHandler& handler() const { return handler_; }
  asio::io_context& io() { return io_; }
  void Add(Connection* connection) { connections_.push_back(connection); }
  void Remove(Connection* connection) { connections_.remove(connection); }

 private:
  Status LoadCertificate() {
    tls_.emplace(asio::ssl::context::tls_server);
    tls_->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    error_code error;
    tls_->use_certificate_chain(asio::buffer(options_.tls_cert_pem), error);
    if (error) return Error{Code::kInvalid, "certificate: " + error.message()};
    tls_->use_private_key(asio::buffer(options_.tls_key_pem), asio::ssl::context::pem, error);
    if (error) return Error{Code::kInvalid, "private key: " + error.message()};
    return Ok();
  }

  void Accept();

  const HttpServerOptions options_;
  const HttpHandler handler_;
  asio::io_context io_{1};
  std::optional<asio::ssl::context> tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;  // after a failed accept
  uint16_t port_ = 0;
  bool closed_ = false;
  std::list<Connection*> connections_;  // oldest first; each removes itself
  std::thread thread_;
};

namespace {

// A connection: the TLS handshake, then requests and responses in turn. Its callbacks keep it alive.
template <class Owner, class Stream>
class Session : public Connection, public std::enable_shared_from_this<Session<Owner, Stream>> {
 public:
  template <class... Args>
  explicit Session(Owner& owner, Args&&... args) : owner_(owner), stream_(std::forward<Args>(args)...) {
    owner_.Add(this);
  }
  ~Session() override { owner_.Remove(this); }

  void Begin() override {
    Expire();
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](error_code error) {
                                if (!error) self->Read();
                              });
    } else {
      Read();
    }
  }

  void Close() override {
    closed_ = true;
    beast::get_lowest_layer(stream_).close();
    const auto last = std::move(waiting_);  // may destroy this
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  void Expire() { beast::get_lowest_layer(stream_).expires_after(owner_.options().idle_limit); }

  void Read() {
    Expire();
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(kMaxBodyBytes);
    http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](error_code error, size_t) {
      if (error || self->closed_) return;
      self->Handle();
    });
  }

  void Handle() {
    const auto& request = parser_->get();
    keep_alive_ = request.keep_alive();
    version_ = request.version();
    head_only_ = request.method() == http::verb::head;
    if (request.method() != http::verb::get && !head_only_)
      return Write({405, "text/plain; charset=utf-8", "only GET and HEAD are supported\n"});
    // The response may come from another thread, and after the server has ended.
    auto reply = [weak = this->weak_from_this(), server = owner_.weak_from_this()](HttpResponse answer) {
      const auto alive = server.lock();
      if (!alive) return;
      asio::post(alive->io(), [weak, answer = std::move(answer)]() mutable {
        const auto self = weak.lock();
        if (self && !self->closed_) self->Write(std::move(answer));
      });
    };
    // While the handler works, no operation of the connection keeps it alive.
    waiting_ = this->shared_from_this();
    owner_.handler()(ToRequest(request), std::move(reply));
  }

  void Write(HttpResponse answer) {
    waiting_.reset();
    Expire();
    response_ = {};
    response_.result(static_cast<unsigned>(answer.status));
    response_.version(version_);
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(keep_alive_);
    response_.body() = std::move(answer.body);
    response_.prepare_payload();
    if (head_only_) response_.body().clear();
    http::async_write(stream_, response_, [self = this->shared_from_this()](error_code error, size_t) {
      if (error || self->closed_) return;
      if (self->keep_alive_) return self->Read();
      beast::get_lowest_layer(self->stream_).close();
    });
  }

  Owner& owner_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::shared_ptr<Session> waiting_;
  unsigned version_ = 11;
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool closed_ = false;
};

}  // namespace

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (closed_) return;
    if (error) {
      // Usually out of descriptors: wait until some are closed.
      pause_.expires_after(std::chrono::milliseconds(100));
      return pause_.async_wait([this](error_code) {
        if (!closed_) Accept();
      });
    }
    // Idle connections must not keep a probe out: close the oldest.
    if (connections_.size() >= static_cast<size_t>(options_.max_connections)) connections_.front()->Close();
    if (tls_)
      std::make_shared<Session<Impl, beast::ssl_stream<beast::tcp_stream>>>(*this, std::move(socket), *tls_)
          ->Begin();
    else
      std::make_shared<Session<Impl, beast::tcp_stream>>(*this, std::move(socket))->Begin();
    Accept();
  });
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options, HttpHandler handler) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(handler));
  RM_TRY(impl->Listen());
  impl->Run();
  return std::make_unique<HttpServer>(std::move(impl));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->Stop(); }
uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace ringmaster::serve
