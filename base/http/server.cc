// SPDX-License-Identifier: Apache-2.0

#include "base/http/server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <deque>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace ringmaster::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace wire = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint64_t kMaxBodyBytes = 4096;
constexpr uint32_t kMaxHeadBytes = 16384;
constexpr auto kFinishLimit = std::chrono::seconds(1);  // for what ended streams have queued

Request ToRequest(const wire::request<wire::string_body>& request) {
  Request result;
  const std::string target(request.target());
  const size_t mark = target.find('?');
  result.path = target.substr(0, mark);
  if (mark != std::string::npos) result.query = target.substr(mark + 1);
  const std::string authorization(request[wire::field::authorization]);
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.starts_with(kScheme)) result.bearer = authorization.substr(kScheme.size());
  result.host = std::string(request[wire::field::host]);
  result.origin = std::string(request[wire::field::origin]);
  result.cookie = std::string(request[wire::field::cookie]);
  return result;
}

// The server's view of plain and TLS connections.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Begin() = 0;
  // Closes, but lets a stream that has ended send what it has queued.
  virtual void Finish() = 0;
  virtual void Close() = 0;
};

}  // namespace

// Where the pieces of a stream wait for the server's thread.
class BodyStream::Sink {
 public:
  // `wake` runs after each piece, and when the last copy of the stream is gone.
  explicit Sink(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~Sink() { wake_(); }

  bool Write(std::string piece) {
    bool overrun = false;
    {
      MutexLock lock(queue_->mutex);
      if (queue_->ended || queue_->overrun) return false;
      queue_->bytes += piece.size();
      queue_->overrun = overrun = queue_->bytes > kMaxQueuedBytes;
      if (!overrun) queue_->pieces.push_back(std::move(piece));
    }
    wake_();
    return !overrun;
  }

  struct Queue {
    Mutex mutex;
    std::deque<std::string> pieces RM_GUARDED_BY(mutex);
    size_t bytes RM_GUARDED_BY(mutex) = 0;
    bool overrun RM_GUARDED_BY(mutex) = false;  // the client does not read
    bool ended RM_GUARDED_BY(mutex) = false;    // the connection is gone
  };
  const std::shared_ptr<Queue>& queue() const { return queue_; }

 private:
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  const std::function<void()> wake_;
};

bool BodyStream::Write(std::string piece) const { return sink_->Write(std::move(piece)); }

class Server::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(ServerOptions options, Handler handler)
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
      for (Connection* connection : std::list<Connection*>(connections_)) connection->Finish();
      if (connections_.empty()) return;
      pause_.expires_after(kFinishLimit);
      pause_.async_wait([this](error_code error) {
        if (error) return;
        for (Connection* connection : std::list<Connection*>(connections_)) connection->Close();
      });
    });
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return port_; }
  const ServerOptions& options() const { return options_; }
  const Handler& handler() const { return handler_; }
  asio::io_context& io() { return io_; }
  void Add(Connection* connection) { connections_.push_back(connection); }
  void Remove(Connection* connection) {
    connections_.remove(connection);
    if (closed_ && connections_.empty()) pause_.cancel();
  }

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

  const ServerOptions options_;
  const Handler handler_;
  asio::io_context io_{1};
  std::optional<asio::ssl::context> tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;  // after a failed accept; after Stop, the limit of the last streams
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
  ~Session() override {
    EndStream();
    owner_.Remove(this);
  }

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

  void Finish() override {
    if (queue_ == nullptr || !sink_.expired()) return Close();
    WriteQueued();
  }

  void Close() override {
    closed_ = true;
    EndStream();
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
    wire::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](error_code error, size_t) {
      if (error || self->closed_) return;
      self->Handle();
    });
  }

  void Handle() {
    const auto& request = parser_->get();
    keep_alive_ = request.keep_alive();
    version_ = request.version();
    head_only_ = request.method() == wire::verb::head;
    if (request.method() != wire::verb::get && !head_only_)
      return Write({405, "text/plain; charset=utf-8", "only GET and HEAD are supported\n"});
    // The response may come from another thread, and after the server has ended.
    auto reply = [weak = this->weak_from_this(), server = owner_.weak_from_this()](Response answer) {
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

  void Write(Response answer) {
    waiting_.reset();
    Expire();
    response_ = {};
    response_.result(static_cast<unsigned>(answer.status));
    response_.version(version_);
    response_.set(wire::field::content_type, answer.content_type);
    response_.set(wire::field::cache_control, "no-store");
    for (const auto& [name, value] : answer.headers) response_.set(name, value);
    if (answer.stream && !head_only_) return WriteStream(std::move(answer.stream));
    response_.keep_alive(keep_alive_);
    response_.body() = std::move(answer.body);
    response_.prepare_payload();
    if (head_only_) response_.body().clear();
    wire::async_write(stream_, response_, [self = this->shared_from_this()](error_code error, size_t) {
      if (error || self->closed_) return;
      if (self->keep_alive_) return self->Read();
      beast::get_lowest_layer(self->stream_).close();
    });
  }

  // A stream has no length: the end of the connection ends it.
  void WriteStream(std::function<void(BodyStream)> start) {
    response_.keep_alive(false);
    head_.emplace(response_);
    wire::async_write_header(
        stream_, *head_,
        [self = this->shared_from_this(), start = std::move(start)](error_code error, size_t) {
          if (error || self->closed_) return;
          auto sink = std::make_shared<BodyStream::Sink>(
              [weak = self->weak_from_this(), server = self->owner_.weak_from_this()] {
                if (const auto alive = server.lock())
                  asio::post(alive->io(), [weak] {
                    if (const auto session = weak.lock()) session->WriteQueued();
                  });
              });
          self->sink_ = sink;
          self->queue_ = sink->queue();
          self->waiting_ = self;
          self->AwaitClose();
          start(BodyStream(std::move(sink)));
        });
  }

  void WriteQueued() {
    if (closed_) return;
    const bool last = sink_.expired();
    bool overrun = false;
    {
      MutexLock lock(queue_->mutex);
      overrun = queue_->overrun;
      if (!overrun && !writing_) {
        piece_.clear();
        for (const std::string& piece : queue_->pieces) piece_ += piece;
        queue_->pieces.clear();
      }
    }
    if (overrun) return Close();
    if (writing_) return;
    if (piece_.empty()) {
      if (last) Close();
      return;
    }
    writing_ = true;
    Expire();
    asio::async_write(stream_, asio::buffer(piece_),
                      [self = this->shared_from_this()](error_code error, size_t) {
                        self->writing_ = false;
                        if (self->closed_) return;
                        if (error) return self->Close();
                        {
                          MutexLock lock(self->queue_->mutex);
                          self->queue_->bytes -= self->piece_.size();
                        }
                        self->WriteQueued();
                      });
  }

  // Notices that the client of a stream has gone. It has no reason to send anything.
  void AwaitClose() {
    beast::get_lowest_layer(stream_).expires_never();
    stream_.async_read_some(asio::buffer(&unexpected_, 1),
                            [self = this->shared_from_this()](error_code, size_t) {
                              if (!self->closed_) self->Close();
                            });
  }

  void EndStream() {
    if (!queue_) return;
    MutexLock lock(queue_->mutex);
    queue_->ended = true;
  }

  Owner& owner_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<wire::request_parser<wire::string_body>> parser_;
  wire::response<wire::string_body> response_;
  std::optional<wire::response_serializer<wire::string_body>> head_;  // of a stream
  std::weak_ptr<BodyStream::Sink> sink_;
  std::shared_ptr<BodyStream::Sink::Queue> queue_;  // null: the response is not a stream
  std::string piece_;                               // being written
  char unexpected_ = 0;
  bool writing_ = false;
  std::shared_ptr<Session> waiting_;
  unsigned version_ = 11;
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool closed_ = false;
};

}  // namespace

void Server::Impl::Accept() {
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

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options, Handler handler) {
  auto impl = std::make_shared<Impl>(std::move(options), std::move(handler));
  RM_TRY(impl->Listen());
  impl->Run();
  return std::make_unique<Server>(std::move(impl));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Stop(); }
uint16_t Server::port() const { return impl_->port(); }

}  // namespace ringmaster::http
