// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/server.h"

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/mutex.h"
#include "rendezvous/byte_stream.h"
#include "rendezvous/codec.h"
#include "rendezvous/connection.h"
#include "rendezvous/fair_queue.h"
#include "rendezvous/unauthenticated.h"

namespace ringmaster::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

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
    RM_ASSIGN(port_, ListenOn(acceptor_, options_.host, options_.port));
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return Ok();
  }

  uint16_t port() const { return port_; }

  void AddJob(const CoordinatorOptions& options) {
    asio::post(io_, [this, options] {
      // Agents connected to the coordinator before must send Hello again.
      const auto fresh = std::make_shared<Job>(io_, options);
      const std::shared_ptr<Job> stale = std::exchange(jobs_[options.job], fresh);
      for (const ConnectionPtr& c : stale ? stale->All() : std::vector<ConnectionPtr>()) {
        DetachFromJob(c);
        Close(c, "its job was restarted");
      }
      Feed(*fresh, TimePassed{});
    });
  }

  void SetAttempt(const std::string& name, int64_t attempt) {
    asio::post(io_, [this, name, attempt] {
      const auto job = jobs_.find(name);
      if (job == jobs_.end() || job->second->attempt == attempt) return;
      job->second->attempt = attempt;
      for (const ConnectionPtr& c : job->second->All())
        if (c->attempt != attempt) DismissAgents(c, "its attempt is obsolete");
    });
  }

  void RemoveJob(const std::string& name) {
    asio::post(io_, [this, name] {
      const auto job = jobs_.find(name);
      if (job == jobs_.end()) return;
      for (const ConnectionPtr& c : job->second->All()) DismissAgents(c, "its job was removed");
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
      if (const auto it = jobs_.find(job); it != jobs_.end()) Feed(*it->second, event);
    });
  }

  void Shutdown() {
    if (!thread_.joinable()) return;
    CHECK(std::this_thread::get_id() != thread_.get_id(), "Shutdown from a callback");
    asio::post(io_, [this] {
      closing_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      for (auto& [name, job] : jobs_) job->CancelTimers();
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
      OnAccepted(std::move(socket));
      Accept();
    });
  }

  void OnAccepted(tcp::socket socket) {
    error_code ignored;
    const auto remote = socket.remote_endpoint(ignored);
    auto c = std::make_shared<Connection>(MakeByteStream(std::move(socket), tls_), io_);
    c->id = ++last_connection_;
    c->address = ignored ? "?" : remote.address().to_string();
    c->peer = fmt::format("{}:{}", c->address, remote.port());
    if (!unauthenticated_.Add(c->address)) return c->stream->Close();
    connections_[c->id] = c;
    c->hello_timer.expires_after(options_.hello_deadline);
    c->hello_timer.async_wait([this, c](error_code e) {
      if (!e && c->job.empty()) Close(c, "no hello");
    });
    Enqueue(c);
  }

  // Ends counting it as unauthenticated: it is authenticated, or closed.
  void UncountUnauthenticated(const ConnectionPtr& c) {
    if (c->address.empty()) return;
    unauthenticated_.Remove(c->address);
    c->address.clear();
  }

  // ---- reading, in turns between jobs. Connections that are not authenticated share the turn of one job.

  void Wait(const ConnectionPtr& c) {
    c->stream->WaitReadable([this, c](error_code error) {
      if (!error && connections_.contains(c->id)) Enqueue(c);
    });
  }

  void Enqueue(const ConnectionPtr& c) {
    const bool idle = ready_.empty();
    ready_.Push(c->job, c);
    if (idle) asio::post(io_, [this] { TakeTurn(); });
  }

  void TakeTurn() {
    const Time until = Now() + kTurn;
    ready_.BeginTurn();
    while (const auto c = ready_.Pop()) {
      if (connections_.contains((*c)->id)) Read(*c);
      if (Now() >= until) break;
    }
    ready_.EndTurn();
    // New events of the sockets come before the next turn.
    if (!ready_.empty()) asio::post(io_, [this] { TakeTurn(); });
  }

  void Read(const ConnectionPtr& c) {
    if (!c->secured) {
      const Result<bool> secured = c->stream->Handshake();
      if (!secured.ok()) return Close(c, secured.error().message);
      if (!secured.value()) return Wait(c);
      c->secured = true;
    }
    const Result<size_t> got = c->stream->Receive(input_.data(), input_.size());
    if (!got.ok()) return Close(c, "");
    if (got.value() == 0) return Wait(c);
    if (c->job.empty() && (c->hello_bytes += got.value()) > kMaxHelloBytes)
      return Close(c, "too much before hello");
    c->decoder.Feed({input_.data(), got.value()});
    Consume(c);
  }

  // Handles the messages read so far, then reads on. Stops while a Hello is being authenticated.
  void Consume(const ConnectionPtr& c) {
    const Time now = Now();
    c->consuming = true;
    while (connections_.contains(c->id) && !c->authenticating) {
      Result<std::optional<Message>> next = c->decoder.Next();
      if (!next.ok()) return Close(c, next.error().message);
      if (!next->has_value()) break;
      c->rate.Spend(now);
      OnMessage(c, std::move(**next));
    }
    c->consuming = false;
    SendHeld(c);
    if (!connections_.contains(c->id) || c->authenticating) return;
    if (!c->job.empty() && !jobs_.at(c->job)->CountIncomplete(*c))
      return Close(c, "the connections of its job hold too much of incomplete messages");
    if (const Duration pause = c->rate.Wait(now); pause > Duration::zero()) {
      c->pause_timer.expires_after(pause);
      c->pause_timer.async_wait([this, c](error_code error) {
        if (!error && connections_.contains(c->id)) Enqueue(c);
      });
    } else if (c->stream->HasPending()) {
      Enqueue(c);
    } else {
      Wait(c);
    }
  }

  void OnMessage(const ConnectionPtr& c, Message message) {
    if (c->dismissed) return;
    if (c->job.empty()) return OnHello(c, std::move(message));
    const std::vector<int32_t>& slots = c->decoder.slots();
    if (slots.empty()) {
      if (c->shared || c->channels.empty()) return Close(c, "a message without a slot");
      return Feed(*jobs_.at(c->job), MessageFrom{c->channels.begin()->second, std::move(message)});
    }
    c->shared = true;
    for (const int32_t slot : std::vector<int32_t>(slots)) {
      if (c->job.empty()) return;  // the message before ended its job
      const std::shared_ptr<Job> job = jobs_.at(c->job);
      const auto channel = c->channels.find(slot);
      if (const auto* hello = std::get_if<Hello>(&message)) {
        if (hello->agent.empty()) return Close(c, "hello without agent");
        AddChannel(c, *job, slot, *hello);
      } else if (channel == c->channels.end()) {
        continue;  // it has crossed our Bye
      } else if (std::holds_alternative<Bye>(message)) {
        RemoveChannel(c, *job, slot);
      } else {
        Feed(*job, MessageFrom{channel->second, message});
      }
    }
  }

  void OnHello(const ConnectionPtr& c, Message message) {
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

  void OnAuthenticated(uint64_t id, const Hello& hello, const Status& outcome) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    const ConnectionPtr c = it->second;
    c->authenticating = false;
    if (!outcome.ok() && outcome.error().code == Code::kGone)
      return DismissAgents(c, outcome.error().message);
    if (!outcome.ok()) return Close(c, "refused: " + outcome.error().message);
    Admit(c, hello);
    Consume(c);
  }

  void Admit(const ConnectionPtr& c, Hello hello) {
    const auto found = jobs_.find(hello.job);
    if (found == jobs_.end()) return Close(c, "unknown job " + hello.job);
    Job& job = *found->second;
    c->of_job = found->second;
    c->pod = hello.pod;
    c->node = hello.node;
    c->attempt = hello.attempt;
    if (job.attempt != 0 && hello.attempt < job.attempt) return DismissAgents(c, "its attempt is obsolete");
    // A leader created it whose SetAttempt has not arrived here yet.
    if (job.attempt != 0 && hello.attempt > job.attempt) return Close(c, "its attempt is not known yet");
    c->hello_timer.cancel();
    UncountUnauthenticated(c);
    c->job = hello.job;
    job.Add(c);
    const std::vector<uint64_t>& of_pod = job.pods.at(c->pod);
    // A pod needs one connection, or one for each slot. Others are left over, or hostile.
    if (of_pod.size() > static_cast<size_t>(job.slots)) {
      const ConnectionPtr oldest = connections_.at(of_pod.front());
      Close(oldest, "its pod has newer connections");
    }
    hello.secret.clear();
    AddChannel(c, job, hello.slot, std::move(hello));
  }

  // Begins to pass on what the agent of this slot sends.
  void AddChannel(const ConnectionPtr& c, Job& job, int32_t slot, Hello hello) {
    if (slot < 0 || slot >= std::min(job.slots, kMaxSlots)) return Close(c, "its pod has no such slot");
    if (c->channels.contains(slot)) RemoveChannel(c, job, slot);
    const ConnectionId id = ++last_channel_;
    c->channels[slot] = id;
    channels_[id] = {c, slot};
    admitted_.fetch_add(1, std::memory_order_relaxed);
    // What the connection has proved counts, not what this message says.
    hello.job = c->job;
    hello.pod = c->pod;
    hello.node = c->node;
    hello.attempt = c->attempt;
    hello.slot = slot;
    hello.secret.clear();
    Feed(job, AgentConnected{id, std::move(hello)});
  }

  void RemoveChannel(const ConnectionPtr& c, Job& job, int32_t slot) {
    const ConnectionId id = c->channels.at(slot);
    ForgetChannel(c, slot);
    Feed(job, AgentDisconnected{id});
  }
  void ForgetChannel(const ConnectionPtr& c, int32_t slot) {
    const auto it = c->channels.find(slot);
    channels_.erase(it->second);
    c->channels.erase(it);
    admitted_.fetch_sub(1, std::memory_order_relaxed);
  }

  // From here on no coordinator hears of it. Returns its channels.
  std::vector<ConnectionId> DetachFromJob(const ConnectionPtr& c) {
    std::vector<ConnectionId> ids;
    if (c->job.empty()) return ids;
    if (const auto it = jobs_.find(c->job); it != jobs_.end()) it->second->Remove(*c);
    while (!c->channels.empty()) {
      ids.push_back(c->channels.begin()->second);
      ForgetChannel(c, c->channels.begin()->first);
    }
    c->job.clear();
    return ids;
  }

  // Sends Exit and ignores its further messages.
  void DismissAgents(const ConnectionPtr& c, const std::string& why) {
    log::Info("{}rendezvous: dismissed {}: {}", TagOf(*c), c->peer, why);
    std::vector<int32_t> slots;
    for (const auto& [slot, id] : c->channels) slots.push_back(slot);
    const auto job = jobs_.find(c->job);
    const std::shared_ptr<Job> left = job == jobs_.end() ? nullptr : job->second;
    const std::vector<ConnectionId> ids = DetachFromJob(c);
    c->dismissed = true;
    c->hello_timer.cancel();
    Send(c, slots, std::make_shared<const std::string>(Encode(Exit{kExitStale, why})));
    c->close_when_written = true;
    Write(c);
    for (const ConnectionId id : left ? ids : std::vector<ConnectionId>()) Feed(*left, AgentDisconnected{id});
  }

  // Passes one event to the job's coordinator and performs the outputs.
  void Feed(Job& job, const CoordinatorEvent& event) {
    if (closing_) return;
    job.coordinator->On(event, Now());
    std::vector<ConnectionId> asked;
    for (CoordinatorOutput& output : job.coordinator->Take()) {
      if (const auto* send = std::get_if<SendTo>(&output)) {
        SendToAgents(job, *send);
      } else if (const auto* ask = std::get_if<AskArrival>(&output)) {
        asked.push_back(ask->connection);
      } else if (const auto* close = std::get_if<CloseConnection>(&output)) {
        CloseChannel(close->connection);
      } else if (const auto* progress = std::get_if<ProgressOut>(&output)) {
        if (callbacks_.on_progress) callbacks_.on_progress(job.name, progress->progress);
      } else if (const auto* line = std::get_if<EventLine>(&output)) {
        if (callbacks_.on_event) callbacks_.on_event(job.name, *line);
      } else if (const auto* times = std::get_if<GangBusyTimes>(&output)) {
        if (callbacks_.on_busy_times) callbacks_.on_busy_times(job.name, *times);
      } else {
        job.report_waits = true;
      }
    }
    for (const ConnectionId id : asked) {
      if (const auto channel = channels_.find(id); channel != channels_.end())
        Feed(job, LastArrival{id, channel->second.connection->stream->LastArrival(Now())});
    }
    if (job.report_waits) ReportSoon(job);
    SetTimer(job);
  }

  void SetTimer(Job& job) {
    const Time wake = job.coordinator->next_wakeup();
    if (wake == job.timer_at) return;
    job.timer_at = wake;
    if (wake == kNever) {
      job.timer.cancel();
      return;
    }
    job.timer.expires_at(wake);
    job.timer.async_wait([this, name = job.name](error_code error) {
      if (error || closing_) return;
      const auto it = jobs_.find(name);
      if (it == jobs_.end()) return;
      const std::shared_ptr<Job> due = it->second;
      due->timer_at = kNever;
      Feed(*due, TimePassed{});
    });
  }

  void ReportSoon(Job& job) {
    const Time now = Now();
    if (job.coordinator->phase() == job.reported_phase && now < job.report_at) {
      if (job.report_timer.expiry() > now) return;
      job.report_timer.expires_at(job.report_at);
      job.report_timer.async_wait([this, name = job.name](error_code error) {
        if (error || closing_) return;
        const auto it = jobs_.find(name);
        if (it != jobs_.end() && it->second->report_waits) ReportNow(*it->second);
      });
      return;
    }
    ReportNow(job);
  }

  void ReportNow(Job& job) {
    const Time begin = Now();
    job.report_waits = false;
    job.reported_phase = job.coordinator->phase();
    if (callbacks_.on_report) callbacks_.on_report(job.name, job.uid, job.coordinator->report());
    const Time end = Now();
    job.report_at = end + std::max<Duration>(kReportPause, kReportShare * (end - begin));
  }

  // The coordinator has erased this agent.
  void CloseChannel(ConnectionId id) {
    const auto it = channels_.find(id);
    if (it == channels_.end()) return;
    const auto [c, slot] = it->second;
    if (c->shared) {
      Send(c, {slot}, std::make_shared<const std::string>(Encode(Bye{})));
      ForgetChannel(c, slot);
    } else {
      c->dismissed = c->close_when_written = true;
      Write(c);
    }
  }

  void SendToAgents(Job& job, const SendTo& send) {
    Outbox::Frame frame = send.message == job.newest ? job.newest_frame : nullptr;
    if (frame == nullptr) frame = std::make_shared<const std::string>(Encode(*send.message));
    if (ListsMembers(*send.message)) {
      job.newest = send.message;
      job.newest_frame = frame;
    }
    // A pod gets one copy for all its slots.
    std::map<uint64_t, std::pair<ConnectionPtr, std::vector<int32_t>>> pods;
    for (const ConnectionId id : send.connections) {
      const auto it = channels_.find(id);
      if (it == channels_.end()) continue;
      auto& [c, slots] = pods[it->second.connection->id];
      c = it->second.connection;
      slots.push_back(it->second.slot);
    }
    for (const auto& [id, to] : pods) {
      if (!ListsMembers(*send.message) || !to.first->Hold(to.second, frame)) Send(to.first, to.second, frame);
    }
  }

  void SendHeld(const ConnectionPtr& c) {
    const auto [frame, slots] = c->TakeHeld();
    if (frame != nullptr) Send(c, slots, frame);
  }

  void Send(const ConnectionPtr& c, const std::vector<int32_t>& slots, const Outbox::Frame& frame) {
    if (c->Holds(slots)) SendHeld(c);  // messages for one slot keep their order
    const std::string route = c->shared && !slots.empty() ? EncodeRoute(slots) : std::string();
    if (!c->outbox.Push(route, frame)) {
      // It does not read. Close later: this may be called while the coordinator's outputs are performed.
      asio::post(io_, [this, c] { Close(c, "does not read"); });
      return;
    }
    Write(c);
  }

  void Write(const ConnectionPtr& c) {
    if (c->writing || !connections_.contains(c->id)) return;
    for (size_t written = 0; !c->outbox.empty() && written < kWriteBytes;) {
      const std::string_view next = c->outbox.front();
      const Result<size_t> sent = c->stream->Send(next.data(), next.size());
      if (!sent.ok()) {
        asio::post(io_, [this, c] { Close(c, ""); });
        return;
      }
      if (sent.value() == 0) break;
      c->outbox.Pop(sent.value());
      written += sent.value();
    }
    if (c->outbox.empty()) {
      if (c->close_when_written) asio::post(io_, [this, c] { Close(c, ""); });
      StopWhenFlushed();
      return;
    }
    c->writing = true;
    c->stream->WaitWritable([this, c](error_code error) {
      c->writing = false;
      if (!error) Write(c);
    });
  }

  void Close(const ConnectionPtr& c, const std::string& why) {
    if (connections_.erase(c->id) == 0) return;
    UncountUnauthenticated(c);
    if (!why.empty())
      log::Warn("{}rendezvous: closed {}: {}", TagOf(*c), c->peer, why.substr(0, kMaxLoggedBytes));
    c->hello_timer.cancel();
    c->pause_timer.cancel();
    c->stream->Close();
    const std::string name = c->job;
    const std::vector<ConnectionId> ids = DetachFromJob(c);
    // Not at once: Close is also called while the coordinator's outputs are performed.
    if (const auto job = jobs_.find(name); job != jobs_.end()) {
      asio::post(io_, [this, name, job = job->second, ids] {
        if (const auto it = jobs_.find(name); it == jobs_.end() || it->second != job) return;
        for (const ConnectionId id : ids) Feed(*job, AgentDisconnected{id});
      });
    }
    StopWhenFlushed();
  }

  void StopWhenFlushed() {
    if (!closing_) return;
    for (const auto& [id, c] : connections_)
      if (!c->outbox.empty()) return;
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
  uint64_t last_connection_ = 0;
  ConnectionId last_channel_ = 0;
  std::unordered_map<uint64_t, ConnectionPtr> connections_;
  std::unordered_map<ConnectionId, Channel> channels_;
  FairQueue<ConnectionPtr> ready_;        // connections that can be read, by job
  std::array<char, kReadBytes> input_{};  // one for all: what is read is decoded at once
  Unauthenticated unauthenticated_{options_.max_unauthenticated, options_.max_unauthenticated_per_address};
  std::map<std::string, std::shared_ptr<Job>> jobs_;
  TlsContext tls_;                    // null: plain
  std::atomic<int32_t> admitted_{0};  // agents
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
void Server::SetLimits(const std::string& job, const rendezvous::SetLimits& limits) {
  impl_->PostEvent(job, limits);
}
void Server::AllowRestart(const std::string& job, Generation of) {
  impl_->PostEvent(job, rendezvous::AllowRestart{of});
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
