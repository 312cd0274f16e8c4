// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/server.h"

#include <atomic>
#include <boost/asio.hpp>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "rendezvous/byte_stream.h"
#include "rendezvous/codec.h"

namespace ringmaster::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMaxHelloBytes = 64 << 10;  // an unauthenticated peer may not use more memory
constexpr size_t kMaxOutboxBytes = 2 * kMaxFrameBytes;
constexpr size_t kMaxLoggedBytes = 300;  // of an error, which may quote what a peer sent
constexpr int32_t kExitStale = 75;       // not the pod's fault: it does not count as a failure
constexpr auto kFlushDeadline = milliseconds(500);

// Compares in constant time: the position of the first difference does not show.
bool SameSecret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[b.empty() ? 0 : i % b.size()]));
  }
  return difference == 0;
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, ServerCallbacks callbacks)
      : options_(options), callbacks_(std::move(callbacks)), acceptor_(io_), flush_timer_(io_) {
    handle_->impl = this;
  }

  Status Listen() {
    if (!options_.tls_cert_pem.empty()) {
      RM_ASSIGN(tls_, MakeTlsContext(options_.tls_cert_pem, options_.tls_key_pem));
    }
    error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (error) return Error{Code::kInvalid, options_.host + ": not an address: " + error.message()};
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (error) {
      return Error{Code::kUnavailable,
                   fmt::format("cannot listen on {}:{}: {}", options_.host, options_.port, error.message())};
    }
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return Ok();
  }

  uint16_t port() const { return port_; }

  void AddJob(const CoordinatorOptions& options) {
    asio::post(io_, [this, options] {
      // A resumed job gets a new coordinator with a higher term. Agents connected to the old one must send
      // Hello again.
      const std::vector<ConnectionPtr> stale = ConnectionsOf(options.job);
      jobs_.insert_or_assign(options.job, std::make_unique<Job>(io_, options));
      for (const ConnectionPtr& c : stale) {
        DetachFromJob(c);
        Close(c, "its job was restarted");
      }
      Feed(options.job, TimePassed{});
    });
  }

  void SetAttempt(const std::string& name, int64_t attempt) {
    asio::post(io_, [this, name, attempt] {
      const auto job = jobs_.find(name);
      if (job == jobs_.end() || job->second->attempt == attempt) return;
      job->second->attempt = attempt;
      for (const ConnectionPtr& c : ConnectionsOf(name)) {
        if (c->attempt != attempt) DismissAgent(c, "its attempt is obsolete");
      }
    });
  }

  void RemoveJob(const std::string& name) {
    asio::post(io_, [this, name] {
      for (const ConnectionPtr& c : ConnectionsOf(name)) DismissAgent(c, "its job was removed");
      jobs_.erase(name);
    });
  }

  Status SetCertificate(const std::string& cert_pem, const std::string& key_pem) {
    RM_ASSIGN(TlsContext tls, MakeTlsContext(cert_pem, key_pem));
    asio::post(io_, [this, tls = std::move(tls)]() mutable { tls_ = std::move(tls); });
    return Ok();
  }

  int32_t connected() const { return admitted_.load(std::memory_order_relaxed); }

  void PostEvent(const std::string& job, CoordinatorEvent event) {
    asio::post(io_, [this, job, event = std::move(event)] {
      if (jobs_.contains(job)) Feed(job, event);
    });
  }

  void Shutdown() {
    if (!thread_.joinable()) return;
    CHECK(std::this_thread::get_id() != thread_.get_id(), "Shutdown from a callback");
    asio::post(io_, [this] {
      closing_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      for (auto& [name, job] : jobs_) job->timer.cancel();
      flush_timer_.expires_after(kFlushDeadline);
      flush_timer_.async_wait([this](error_code) { io_.stop(); });
      StopWhenFlushed();
    });
    thread_.join();
    const MutexLock lock(handle_->mutex);
    handle_->impl = nullptr;
  }

 private:
  // Lets an authentication result that arrives late find the server, or find that it has ended.
  struct Handle {
    Mutex mutex;
    Impl* impl RM_GUARDED_BY(mutex) = nullptr;
  };

  struct Job {
    Job(asio::io_context& io, const CoordinatorOptions& options) : coordinator(options), timer(io) {}
    Coordinator coordinator;
    asio::steady_timer timer;
    Time timer_at = kNever;
    int64_t attempt = 0;
  };

  struct Connection {
    Connection(std::unique_ptr<ByteStream> c, asio::io_context& io) : stream(std::move(c)), hello_timer(io) {}
    ConnectionId id = 0;
    std::unique_ptr<ByteStream> stream;
    asio::steady_timer hello_timer;
    std::string peer;  // address, for logs
    std::string job;   // empty: not authenticated yet, or dismissed
    std::string pod;
    int64_t attempt = 0;
    bool authenticating = false;  // waits for the result for its Hello; reads nothing until then
    bool dismissed = false;       // Exit was sent: its messages are ignored
    Decoder decoder{kMaxAgentFrameBytes};
    std::array<char, 16 << 10> input;
    std::deque<std::string> outbox;
    size_t outbox_bytes = 0;
    size_t hello_bytes = 0;
    bool writing = false;
    bool close_when_written = false;
    std::string address;  // without the port, while it counts as unauthenticated; then empty
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (closing_ || error == asio::error::operation_aborted) return;
      if (error) {
        // Probably out of file descriptors. Retrying at once would spin.
        log::Warn("rendezvous: accept: {}", error.message());
        accept_pause_.expires_after(milliseconds(100));
        accept_pause_.async_wait([this](error_code) { Accept(); });
        return;
      }
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      const auto remote = socket.remote_endpoint(ignored);
      auto c = std::make_shared<Connection>(MakeByteStream(std::move(socket), tls_), io_);
      c->id = ++last_connection_;
      c->address = ignored ? "?" : remote.address().to_string();
      c->peer = fmt::format("{}:{}", c->address, remote.port());
      if (TooManyUnauthenticated(c->address)) {
        c->stream->Close();
        Accept();
        return;
      }
      ++unauthenticated_[c->address];
      ++unauthenticated_total_;
      connections_[c->id] = c;
      c->hello_timer.expires_after(options_.hello_deadline);
      c->hello_timer.async_wait([this, c](error_code e) {
        if (!e && c->job.empty()) Close(c, "no hello");
      });
      c->stream->Handshake([this, c](error_code e) {
        if (!connections_.contains(c->id)) return;
        if (e) return Close(c, "TLS: " + e.message());
        Read(c);
      });
      Accept();
    });
  }

  // Logs a flood once, not once per connection.
  bool TooManyUnauthenticated(const std::string& address) {
    const auto of_peer = unauthenticated_.find(address);
    const bool full =
        unauthenticated_total_ >= options_.max_unauthenticated ||
        (of_peer != unauthenticated_.end() && of_peer->second >= options_.max_unauthenticated_per_address);
    if (full && !limit_logged_)
      log::Warn("rendezvous: {} unauthenticated connections, {} of them from {}: more are refused",
                unauthenticated_total_, of_peer == unauthenticated_.end() ? 0 : of_peer->second, address);
    limit_logged_ = full;
    return full;
  }

  // Ends counting it as unauthenticated: it is authenticated, or closed.
  void UncountUnauthenticated(const ConnectionPtr& c) {
    if (c->address.empty()) return;
    const auto of_peer = unauthenticated_.find(c->address);
    if (--of_peer->second == 0) unauthenticated_.erase(of_peer);
    --unauthenticated_total_;
    c->address.clear();
  }

  void Read(const ConnectionPtr& c) {
    c->stream->Read(asio::buffer(c->input), [this, c](error_code error, size_t n) {
      if (!connections_.contains(c->id)) return;
      if (error) {
        Close(c, "");
        return;
      }
      if (c->job.empty() && (c->hello_bytes += n) > kMaxHelloBytes) {
        Close(c, "too much before hello");
        return;
      }
      c->decoder.Feed({c->input.data(), n});
      Consume(c);
    });
  }

  // Handles the messages read so far, then reads on. Stops while a Hello is being authenticated.
  void Consume(const ConnectionPtr& c) {
    while (connections_.contains(c->id) && !c->authenticating) {
      Result<std::optional<Message>> next = c->decoder.Next();
      if (!next.ok()) {
        Close(c, next.error().message);
        return;
      }
      if (!next->has_value()) break;
      OnMessage(c, std::move(**next));
    }
    if (connections_.contains(c->id) && !c->authenticating) Read(c);
  }

  void OnMessage(const ConnectionPtr& c, Message message) {
    if (c->dismissed) return;
    if (!c->job.empty()) {
      Feed(c->job, MessageFrom{c->id, std::move(message)});
      return;
    }
    auto* hello = std::get_if<Hello>(&message);
    if (hello == nullptr) return Close(c, "the first message must be hello");
    if (hello->agent.empty() || hello->pod.empty()) return Close(c, "hello without agent or pod");
    if (!options_.authenticate) {
      if (!SameSecret(hello->secret, options_.secret)) return Close(c, "wrong secret");
      return Admit(c, std::move(*hello));
    }
    // Authenticate before looking up the job, so that an unknown peer cannot learn which jobs exist.
    c->authenticating = true;
    // Capture the id, not the connection: a late result must not keep a connection alive longer than the
    // server.
    options_.authenticate(*hello, [handle = handle_, id = c->id, hello = *hello](const Status& outcome) {
      const MutexLock lock(handle->mutex);
      if (handle->impl == nullptr) return;
      asio::post(handle->impl->io_,
                 [impl = handle->impl, id, hello, outcome] { impl->OnAuthenticated(id, hello, outcome); });
    });
  }

  void OnAuthenticated(ConnectionId id, const Hello& hello, const Status& outcome) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    const ConnectionPtr c = it->second;
    c->authenticating = false;
    if (!outcome.ok()) return Close(c, "refused: " + outcome.error().message);
    Admit(c, hello);
    Consume(c);
  }

  void Admit(const ConnectionPtr& c, Hello hello) {
    const auto job = jobs_.find(hello.job);
    if (job == jobs_.end()) return Close(c, "unknown job " + hello.job);
    const int64_t attempt = job->second->attempt;
    c->pod = hello.pod;
    c->attempt = hello.attempt;
    if (attempt != 0 && hello.attempt < attempt) return DismissAgent(c, "its attempt is obsolete");
    // A leader created it whose SetAttempt has not arrived here yet.
    if (attempt != 0 && hello.attempt > attempt) return Close(c, "its attempt is not known yet");
    c->hello_timer.cancel();
    UncountUnauthenticated(c);
    c->job = hello.job;
    admitted_.fetch_add(1, std::memory_order_relaxed);
    hello.secret.clear();
    Feed(c->job, AgentConnected{c->id, std::move(hello)});
  }

  std::vector<ConnectionPtr> ConnectionsOf(const std::string& job) const {
    std::vector<ConnectionPtr> found;
    for (const auto& [id, c] : connections_) {
      if (c->job == job) found.push_back(c);
    }
    return found;
  }

  // From here on no coordinator hears of its end.
  void DetachFromJob(const ConnectionPtr& c) {
    if (!c->job.empty()) admitted_.fetch_sub(1, std::memory_order_relaxed);
    c->job.clear();
  }

  // Sends Exit and ignores its further messages.
  void DismissAgent(const ConnectionPtr& c, const std::string& why) {
    log::Info("rendezvous: pod={} from {} dismissed: {}", c->pod, c->peer, why);
    const std::string job = c->job;
    DetachFromJob(c);
    c->dismissed = true;
    c->hello_timer.cancel();
    Send(c, Exit{kExitStale, why});
    c->close_when_written = true;
    Write(c);
    if (!job.empty() && jobs_.contains(job)) Feed(job, AgentDisconnected{c->id});
  }

  // Passes one event to the job's coordinator and performs the outputs.
  void Feed(const std::string& name, const CoordinatorEvent& event) {
    if (closing_) return;
    Job& job = *jobs_.at(name);
    job.coordinator.On(event, Now());
    bool report = false;
    for (CoordinatorOutput& output : job.coordinator.Take()) {
      if (const auto* send = std::get_if<SendTo>(&output)) {
        if (const auto it = connections_.find(send->connection); it != connections_.end()) {
          Send(it->second, send->message);
        }
      } else if (const auto* close = std::get_if<CloseConnection>(&output)) {
        if (const auto it = connections_.find(close->connection); it != connections_.end()) {
          const ConnectionPtr c = it->second;
          c->close_when_written = true;  // the coordinator has erased it
          Write(c);
        }
      } else if (const auto* progress = std::get_if<ProgressOut>(&output)) {
        if (callbacks_.on_progress) callbacks_.on_progress(name, progress->progress);
      } else if (const auto* line = std::get_if<EventLine>(&output)) {
        if (callbacks_.on_event) callbacks_.on_event(name, *line);
      } else {
        report = true;
      }
    }
    if (report && callbacks_.on_report) callbacks_.on_report(name, job.coordinator.report());
    const Time wake = job.coordinator.next_wakeup();
    if (wake == job.timer_at) return;
    job.timer_at = wake;
    if (wake == kNever) {
      job.timer.cancel();
      return;
    }
    job.timer.expires_at(wake);
    job.timer.async_wait([this, name](error_code error) {
      if (error || closing_ || !jobs_.contains(name)) return;
      jobs_.at(name)->timer_at = kNever;
      Feed(name, TimePassed{});
    });
  }

  void Send(const ConnectionPtr& c, const Message& message) {
    std::string frame = Encode(message);
    c->outbox_bytes += frame.size();
    c->outbox.push_back(std::move(frame));
    if (c->outbox_bytes > kMaxOutboxBytes) {
      // It does not read. Close later: this may be called while the coordinator's outputs are performed.
      asio::post(io_, [this, c] { Close(c, "does not read"); });
      return;
    }
    Write(c);
  }

  void Write(const ConnectionPtr& c) {
    if (c->writing) return;
    if (c->outbox.empty()) {
      if (c->close_when_written) Close(c, "");
      StopWhenFlushed();
      return;
    }
    c->writing = true;
    c->stream->Write(asio::buffer(c->outbox.front()), [this, c](error_code error, size_t) {
      c->writing = false;
      if (!connections_.contains(c->id)) return;
      if (error) {
        Close(c, "");
        return;
      }
      c->outbox_bytes -= c->outbox.front().size();
      c->outbox.pop_front();
      Write(c);
    });
  }

  void Close(const ConnectionPtr& c, const std::string& why) {
    if (connections_.erase(c->id) == 0) return;
    UncountUnauthenticated(c);
    if (!why.empty()) {
      log::Warn("rendezvous: closed connection from {}{}{}: {}", c->peer,
                c->pod.empty() ? "" : " pod=", c->pod, why.substr(0, kMaxLoggedBytes));
    }
    c->hello_timer.cancel();
    c->stream->Close();
    // Not at once: Close is also called while the coordinator's outputs are performed.
    if (const std::string job = c->job; !job.empty()) {
      DetachFromJob(c);
      asio::post(io_, [this, job, id = c->id] {
        if (jobs_.contains(job)) Feed(job, AgentDisconnected{id});
      });
    }
    StopWhenFlushed();
  }

  void StopWhenFlushed() {
    if (!closing_) return;
    for (const auto& [id, c] : connections_) {
      if (!c->outbox.empty()) return;
    }
    io_.stop();
  }

  const ServerOptions options_;
  const ServerCallbacks callbacks_;
  // All members below are used only on the io_context's thread, except port_, which Listen sets, and
  // admitted_.
  const std::shared_ptr<Handle> handle_ = std::make_shared<Handle>();
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_{io_};
  asio::steady_timer flush_timer_;
  uint16_t port_ = 0;
  bool closing_ = false;
  ConnectionId last_connection_ = 0;
  std::map<ConnectionId, ConnectionPtr> connections_;
  std::map<std::string, int32_t> unauthenticated_;  // by address
  int32_t unauthenticated_total_ = 0;
  bool limit_logged_ = false;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  TlsContext tls_;  // null: plain
  std::atomic<int32_t> admitted_{0};
  std::thread thread_;
};

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, ServerCallbacks callbacks) {
  auto impl = std::make_unique<Impl>(options, std::move(callbacks));
  RM_TRY(impl->Listen());
  return std::make_unique<Server>(std::move(impl));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Shutdown(); }

uint16_t Server::port() const { return impl_->port(); }
void Server::AddJob(const CoordinatorOptions& options) { impl_->AddJob(options); }
void Server::SetLimits(const std::string& job, int32_t min, int32_t target, int32_t max) {
  impl_->PostEvent(job, rendezvous::SetLimits{min, target, max});
}
void Server::RequestStop(const std::string& job) { impl_->PostEvent(job, rendezvous::RequestStop{}); }
void Server::ReportPodEnded(const std::string& job, const std::string& pod) {
  impl_->PostEvent(job, PodEnded{pod});
}
void Server::SetAttempt(const std::string& job, int64_t attempt) { impl_->SetAttempt(job, attempt); }
void Server::RemoveJob(const std::string& job) { impl_->RemoveJob(job); }
Status Server::SetCertificate(const std::string& cert_pem, const std::string& key_pem) {
  return impl_->SetCertificate(cert_pem, key_pem);
}
int32_t Server::connected() const { return impl_->connected(); }
void Server::Shutdown() { impl_->Shutdown(); }

}  // namespace ringmaster::rendezvous
