// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/cpprest_http.h"

#include <cpprest/http_client.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pplx/threadpool.h>

#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "operator/kube/byte_sink.h"
#include "operator/kube/environment.h"
#include "operator/kube/http_headers.h"
#include "operator/kube/line_splitter.h"
#include "operator/kube/pem.h"
#include "operator/kube/proxy.h"
#include "operator/kube/transport_error.h"
#include "operator/kube/url.h"

namespace ringmaster::kube {
namespace {

namespace http = web::http;
namespace ssl = boost::asio::ssl;

// How long a destructor waits until the library has let go of its calls. A name look-up keeps its call
// longer.
constexpr Duration kReleaseLimit = seconds(2);
constexpr int kMaxSends = 4;  // of a request whose connection breaks while it is written

// The calls that exist. The library keeps the continuations of a cancelled call for a moment after the call
// has ended, and loses those that wait for a thread when the process exits.
class CallCount {
 public:
  class Counted {
   public:
    explicit Counted(CallCount& count) : count_(count) { count_.Add(1); }
    ~Counted() { count_.Add(-1); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    CallCount& count_;
  };
  void WaitForNone(Time until) {
    MutexLock lock(mutex_);
    while (count_ > 0)
      if (!changed_.WaitUntil(lock, until)) return;
  }

 private:
  void Add(int change) {
    MutexLock lock(mutex_);
    count_ += change;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  int count_ RM_GUARDED_BY(mutex_) = 0;
};

struct Call;

// Shared by the transport, its calls and their callbacks.
struct SharedState {
  Mutex mutex;
  CondVar work;   // wakes the starting thread
  CondVar ended;  // wakes the destructor
  std::deque<std::shared_ptr<Call>> urgent RM_GUARDED_BY(mutex);
  std::deque<std::shared_ptr<Call>> background RM_GUARDED_BY(mutex);
  std::deque<std::shared_ptr<Call>> normal RM_GUARDED_BY(mutex);
  std::deque<std::shared_ptr<Call>> streams RM_GUARDED_BY(mutex);
  std::unordered_map<Call*, std::shared_ptr<Call>> live RM_GUARDED_BY(mutex);  // calls that have not ended
  std::multimap<Time, Call*> deadlines RM_GUARDED_BY(mutex);                   // of live calls
  int in_flight RM_GUARDED_BY(mutex) = 0;
  bool closed RM_GUARDED_BY(mutex) = false;
  CallCount calls;
};

// A request and its response. It ends once, by the library's last continuation or by a destructor, whichever
// comes first: destructors do not wait for a name look-up, which cannot be interrupted.
struct Call {
  Call(std::shared_ptr<SharedState> state_, HttpRequest request_, bool is_stream_,
       const TransportOptions& options)
      : state(std::move(state_)),
        request(std::move(request_)),
        is_stream(is_stream_),
        max_body_bytes(options.max_body_bytes),
        on_date(options.on_date),
        splitter(options.max_line_bytes) {}

  const std::shared_ptr<SharedState> state;
  const CallCount::Counted counts_until_all_below_is_gone{state->calls};
  const HttpRequest request;
  const bool is_stream;
  const size_t max_body_bytes;
  const std::function<void(WallTime)> on_date;
  std::function<void(std::string_view)> on_line;
  std::function<void(Result<HttpResponse>)> on_end;
  std::shared_ptr<TokenSource> token;

  const Time queued = Now();

  // Guarded by state->mutex. Not annotated: the analysis cannot see that the transport's state is the same
  // object.
  bool counted = false;  // is part of in_flight
  std::optional<std::multimap<Time, Call*>::iterator> deadline;

  // Used by the starting thread, then by this call's continuations, one at a time.
  int sends = 0;
  HttpResponse response;
  LineSplitter splitter;
  Status failure;  // why this side broke it off
  pplx::task_completion_event<void> head;
  std::atomic<bool> head_seen{false};

  pplx::cancellation_token_source cancel;
  std::atomic<bool> expired{false};  // reached its deadline

  Mutex mutex;
  CondVar callback_ended;
  bool over RM_GUARDED_BY(mutex) = false;     // no further callback may begin
  bool calling RM_GUARDED_BY(mutex) = false;  // a callback runs
  std::thread::id caller RM_GUARDED_BY(mutex);

  bool Good() const { return response.status >= 200 && response.status < 300; }

  bool BeginCallback(bool last) {
    MutexLock lock(mutex);
    while (calling) callback_ended.Wait(lock);
    if (over) return false;
    over = last;
    calling = true;
    caller = std::this_thread::get_id();
    return true;
  }
  void EndCallback() {
    MutexLock lock(mutex);
    calling = false;
    caller = {};
    callback_ended.NotifyAll();
  }

  // After it returns, no callback runs.
  void StopCallbacks() {
    MutexLock lock(mutex);
    CHECK(caller != std::this_thread::get_id(), "a stream was destroyed by its own callback");
    over = true;
    while (calling) callback_ended.Wait(lock);
  }

  void Unregister() {
    std::shared_ptr<Call> self;  // freed after the lock
    MutexLock lock(state->mutex);
    const auto it = state->live.find(this);
    if (it == state->live.end()) return;
    self = std::move(it->second);
    state->live.erase(it);
    if (counted) --state->in_flight;
    if (deadline) state->deadlines.erase(*deadline);
    deadline.reset();
    state->work.NotifyAll();
    state->ended.NotifyAll();
  }

  void Finish(Result<HttpResponse> result) {
    if (BeginCallback(true)) {
      on_end(std::move(result));
      // Release what the callbacks hold: its owner may wait for that.
      on_end = nullptr;
      on_line = nullptr;
      EndCallback();
    }
    Unregister();
  }

  // ---- the library's threads

  void OnHead(const http::http_response& answer) {
    response.status = answer.status_code();
    const auto& headers = answer.headers();
    if (const auto it = headers.find("Retry-After"); it != headers.end())
      response.retry_after = ParseRetryAfter(it->second);
    if (const auto it = headers.find("Warning"); it != headers.end())
      response.warnings = ParseWarnings(it->second);
    if (const auto it = headers.find("Date"); it != headers.end() && on_date)
      if (const auto date = ParseHttpDate(it->second)) on_date(*date);
    if (response.status == 401 && token) token->Expire();
    head_seen = true;
    head.set();
  }

  // The body may arrive before the continuation that reads the head has run.
  pplx::task<size_t> OnBytes(const std::shared_ptr<Call>& self, const uint8_t* bytes, size_t count) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), count);
    if (head_seen) {
      Take(text);
      return pplx::task_from_result(count);
    }
    return pplx::create_task(head).then([self, text] {
      self->Take(text);
      return text.size();
    });
  }

  void Take(std::string_view text) {
    if (!failure.ok()) return;
    if (!is_stream || !Good()) {
      if (response.body.size() + text.size() > max_body_bytes)
        return BreakOff(
            {Code::kExhausted, fmt::format("the response is larger than {} bytes", max_body_bytes)});
      response.body.append(text);
      return;
    }
    if (!BeginCallback(false)) return;
    const bool fed = splitter.Feed(text, [&](std::string_view line) {
      on_line(line);
      MutexLock lock(mutex);
      return !over;
    });
    EndCallback();
    if (!fed && splitter.too_long())
      // The next watch from here would begin with the same line; a list reads the object in another way.
      BreakOff({Code::kGone, "the server sent a line longer than the limit"});
  }

  void BreakOff(Error why) {
    failure = std::move(why);
    cancel.cancel();
  }
};

class CprestStream final : public HttpStream {
 public:
  explicit CprestStream(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~CprestStream() override {
    call_->StopCallbacks();
    call_->cancel.cancel();
    call_->Unregister();
  }

 private:
  const std::shared_ptr<Call> call_;
};

// What a TLS connection needs, checked.
struct TlsSettings {
  std::string ca_pem;
  KeyPair own;
  std::shared_ptr<TokenSource> token;
};

// Runs once per new connection. It cannot fail: all that it loads has been checked.
void SetUpTls(ssl::context& context, const TlsSettings& settings) {
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                      ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  // Most connections are idle: do not keep 34 KB of buffers for each.
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_RELEASE_BUFFERS);
  if (!settings.ca_pem.empty()) {
    // Drops the system's authorities, which the library has already loaded.
    SSL_CTX_set_cert_store(context.native_handle(), X509_STORE_new());
    context.add_certificate_authority(boost::asio::buffer(settings.ca_pem));
  }
  KeyPair own = settings.own;
  if (settings.token)
    if (std::optional<KeyPair> pair = settings.token->Certificate()) own = std::move(*pair);
  if (!own.cert_pem.empty()) {
    context.use_certificate_chain(boost::asio::buffer(own.cert_pem));
    context.use_private_key(boost::asio::buffer(own.key_pem), ssl::context::pem);
  }
}

// The server has closed a kept connection; noticed before anything was sent on it.
struct StaleConnection : std::exception {
  const char* what() const noexcept override { return "stale connection"; }
};

// Runs before each request. The library does not check whether a kept connection is still open: after a
// restart of the server it would try all of them in turn. A server sends nothing between two responses, so if
// anything can be read, it is the end of the connection. A new connection has no socket yet.
void ThrowIfStale(boost::asio::ip::tcp::socket::lowest_layer_type& socket) {
  if (!socket.is_open()) return;
  pollfd polled{socket.native_handle(), POLLIN | POLLRDHUP, 0};
  if (::poll(&polled, 1, 0) != 0) throw StaleConnection();
}

http::client::http_client_config LibraryConfig(const ClientConfig& config, const std::optional<Proxy>& proxy,
                                               Duration silence) {
  http::client::http_client_config library;
  library.set_max_redirects(0);
  library.set_timeout(std::chrono::duration_cast<std::chrono::microseconds>(silence));
  library.set_validate_certificates(!config.insecure_skip_tls_verify);
  const TlsSettings settings{config.ca_pem, {config.client_cert_pem, config.client_key_pem}, config.token};
  library.set_ssl_context_callback([settings](ssl::context& context) { SetUpTls(context, settings); });
  if (!proxy) {
    const bool tls = config.server.starts_with("https:");
    library.set_nativehandle_options([tls](http::client::native_handle handle) {
      using Socket = boost::asio::ip::tcp::socket;
      ThrowIfStale(tls ? static_cast<ssl::stream<Socket&>*>(handle)->lowest_layer()
                       : static_cast<Socket*>(handle)->lowest_layer());
    });
  }
  if (proxy) {
    web::web_proxy library_proxy{web::uri(proxy->address)};
    if (!proxy->user.empty()) library_proxy.set_credentials(web::credentials(proxy->user, proxy->password));
    library.set_proxy(library_proxy);
  }
  return library;
}

class Transport final : public HttpClient {
 public:
  Transport(const ClientConfig& config, const TransportOptions& options, const std::string& server,
            const std::optional<Proxy>& proxy)
      : options_(options),
        config_(config),
        unary_(web::uri(server), LibraryConfig(config, proxy, options.silence)),
        stream_(web::uri(server), LibraryConfig(config, proxy, options.stream_silence)),
        state_(std::make_shared<SharedState>()),
        starter_([this] { Run(); }) {}

  ~Transport() override {
    std::vector<std::shared_ptr<Call>> calls;
    {
      MutexLock lock(state_->mutex);
      state_->closed = true;
      state_->urgent.clear();
      state_->background.clear();
      state_->normal.clear();
      state_->streams.clear();
      for (const auto& [key, call] : state_->live) calls.push_back(call);
      state_->work.NotifyAll();
    }
    starter_.join();
    for (const auto& call : calls) call->cancel.cancel();
    // Ends those that cancel() has not ended, on the library's threads like all others.
    for (const auto& call : calls)
      pplx::create_task([call] { call->Finish(Error{Code::kCancelled, "the client is closed"}); });
    calls.clear();
    {
      MutexLock lock(state_->mutex);
      while (!state_->live.empty()) state_->ended.Wait(lock);
    }
    state_->calls.WaitForNone(Now() + kReleaseLimit);
  }

  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    auto call = std::make_shared<Call>(state_, std::move(request), false, options_);
    call->on_end = std::move(done);
    Enqueue(std::move(call));
  }

  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    auto call = std::make_shared<Call>(state_, std::move(request), true, options_);
    call->on_line = std::move(handlers.on_line);
    call->on_end = std::move(handlers.on_end);
    auto stream = std::make_unique<CprestStream>(call);
    Enqueue(std::move(call));
    return stream;
  }

 private:
  void Enqueue(std::shared_ptr<Call> call) {
    call->token = config_.token;
    MutexLock lock(state_->mutex);
    CHECK(!state_->closed, "a request of a client that is being destroyed");
    state_->live[call.get()] = call;
    QueueOf(*state_, *call).push_back(call);
    state_->work.NotifyAll();
  }

  // ---- the starting thread

  void Run() {
    while (const std::shared_ptr<Call> call = Next()) Start(call);
  }

  // Waits for the next call to start; null at the end. Cancels calls whose deadline has passed.
  std::shared_ptr<Call> Next() {
    MutexLock lock(state_->mutex);
    while (!state_->closed) {
      const Time now = Now();
      if (!state_->deadlines.empty() && state_->deadlines.begin()->first <= now) {
        const std::shared_ptr<Call> call = state_->live.at(state_->deadlines.begin()->second);
        state_->deadlines.erase(state_->deadlines.begin());
        call->deadline.reset();
        if (call->is_stream && call->head_seen) continue;
        lock.Unlock();
        call->expired = true;
        call->cancel.cancel();
        lock.Lock();
        continue;  // meanwhile the client may have been closed
      }
      if (std::shared_ptr<Call> call = TakeFrom(state_->urgent)) return call;
      if (std::shared_ptr<Call> call = TakeFrom(state_->streams)) return call;
      // A call that is sent again is already counted.
      if (!state_->normal.empty() &&
          (state_->normal.front()->counted || state_->in_flight < options_.max_in_flight)) {
        std::shared_ptr<Call> call = TakeFrom(state_->normal);
        if (!call) continue;
        if (!std::exchange(call->counted, true)) ++state_->in_flight;
        return call;
      }
      Time until = state_->deadlines.empty() ? kNever : state_->deadlines.begin()->first;
      if (!state_->background.empty()) {
        const Call& next = *state_->background.front();
        const Time late = next.queued + options_.background_wait;
        const bool idle = state_->normal.empty() && state_->in_flight == 0;
        if (next.counted || ((idle || late <= now) && state_->in_flight < options_.max_in_flight)) {
          std::shared_ptr<Call> call = TakeFrom(state_->background);
          if (!call) continue;
          if (!std::exchange(call->counted, true)) ++state_->in_flight;
          return call;
        }
        if (late > now) until = std::min(until, late);
      }
      state_->work.WaitUntil(lock, until);
    }
    return nullptr;
  }

  static std::deque<std::shared_ptr<Call>>& QueueOf(SharedState& state, const Call& call)
      RM_REQUIRES(state.mutex) {
    if (call.is_stream) return state.streams;
    switch (call.request.priority) {
      case RequestPriority::kUrgent:
        return state.urgent;
      case RequestPriority::kBackground:
        return state.background;
      case RequestPriority::kNormal:
        break;
    }
    return state.normal;
  }

  // Takes the first call that has not ended; null: there is none.
  std::shared_ptr<Call> TakeFrom(std::deque<std::shared_ptr<Call>>& queue) RM_REQUIRES(state_->mutex) {
    while (!queue.empty()) {
      std::shared_ptr<Call> call = std::move(queue.front());
      queue.pop_front();
      if (state_->live.contains(call.get())) return call;
    }
    return nullptr;
  }

  void Start(const std::shared_ptr<Call>& call) {
    ++call->sends;
    std::string token;
    if (config_.token) {
      Result<std::string> asked = config_.token->Token();
      if (!asked.ok())
        return call->Finish(Error{Code::kUnavailable, asked.error().message}.In("credentials"));
      token = std::move(asked).value();
    }
    {
      const Duration normal = call->is_stream ? options_.silence : options_.request_limit;
      const Duration limit = call->request.limit.value_or(normal);
      MutexLock lock(state_->mutex);
      if (!state_->live.contains(call.get())) return;
      if (!call->deadline) call->deadline = state_->deadlines.emplace(Now() + limit, call.get());
    }
    try {
      Launch(call, ToLibrary(call, token));
    } catch (const std::exception& error) {
      call->Finish(Error{Code::kInvalid,
                         fmt::format("{} {}: {}", call->request.method, call->request.target, error.what())});
    }
  }

  http::http_request ToLibrary(const std::shared_ptr<Call>& call, const std::string& token) const {
    http::http_request library{http::method(call->request.method)};
    library.set_request_uri(web::uri(call->request.target));
    auto& headers = library.headers();
    headers.add("Accept", call->request.accept);
    headers.add("User-Agent", config_.user_agent);
    if (!token.empty()) headers.add("Authorization", "Bearer " + token);
    if (!config_.impersonate_user.empty()) headers.add("Impersonate-User", config_.impersonate_user);
    // With this header the library requests this name in TLS and checks the certificate against it.
    if (!config_.tls_server_name.empty()) headers.add("Host", config_.tls_server_name);
    if (!call->request.body.empty()) library.set_body(call->request.body, call->request.content_type);
    auto sink = std::make_shared<ByteSink>(
        [call](const uint8_t* bytes, size_t count) { return call->OnBytes(call, bytes, count); });
    library.set_response_stream(
        concurrency::streams::ostream(concurrency::streams::streambuf<uint8_t>(sink)));
    return library;
  }

  void Launch(const std::shared_ptr<Call>& call, const http::http_request& library) {
    // The last continuation handles every outcome: an unobserved task error would terminate the process.
    (call->is_stream ? stream_ : unary_)
        .request(library, call->cancel.get_token())
        .then([call](http::http_response answer) {
          call->OnHead(answer);
          return answer.content_ready();
        })
        .then([call](const pplx::task<http::http_response>& ended) {
          try {
            ended.get();
            if (call->failure.ok()) return call->Finish(std::move(call->response));
            call->Finish(call->failure.error());
          } catch (const StaleConnection&) {
            --call->sends;  // the library has closed it, and takes another connection next
            if (!SendAgain(call)) call->Finish(Error{Code::kCancelled, "cancelled"});
          } catch (const http::http_exception& error) {
            OnFailure(call, error.what(), error.error_code().value());
          } catch (const boost::system::system_error& error) {
            OnFailure(call, "Error in SSL handshake", error.code().value());
          } catch (const std::exception& error) {
            OnFailure(call, error.what(), 0);
          }
        });
  }

  static void OnFailure(const std::shared_ptr<Call>& call, std::string_view stage, int number) {
    if (!call->failure.ok()) return call->Finish(call->failure.error());
    if (call->expired)
      return call->Finish(Error{Code::kAmbiguous, "no complete response within the time limit"});
    const bool gave_up = call->cancel.get_token().is_canceled();
    TransportFailure failure = ClassifyFailure(stage, number, gave_up);
    if (failure.send_again && call->sends < kMaxSends && SendAgain(call)) return;
    call->Finish(std::move(failure.error));
  }

  // Returns false if the client is being destroyed.
  static bool SendAgain(const std::shared_ptr<Call>& call) {
    SharedState& state = *call->state;
    MutexLock lock(state.mutex);
    if (state.closed) return false;
    QueueOf(state, *call).push_front(call);
    state.work.NotifyAll();
    return true;
  }

  const TransportOptions options_;
  const ClientConfig config_;
  http::client::http_client unary_;
  http::client::http_client stream_;
  const std::shared_ptr<SharedState> state_;
  std::thread starter_;
};

// The process has one pool, whose size must be set before its first use.
void StartPool(size_t threads) {
  static const bool started = [threads] {
    try {
      crossplat::threadpool::initialize_with_threads(threads);
    } catch (const std::exception&) {
      return false;  // the pool is already in use
    }
    return true;
  }();
  (void)started;
}

}  // namespace

Result<std::unique_ptr<HttpClient>> MakeHttpClient(const ClientConfig& config,
                                                   const TransportOptions& options) {
  const Result<Url> url = ParseUrl(config.server);
  if (!url.ok()) return url.error().In("server " + config.server);
  const Result<std::optional<Proxy>> proxy = ChooseProxy(config.server, config.proxy_url, Environment);
  if (!proxy.ok()) return proxy.error();
  if (!config.ca_pem.empty())
    if (Status status = CheckCertificates(config.ca_pem); !status.ok())
      return status.error().In("certificate authority");
  if (!config.client_cert_pem.empty() || !config.client_key_pem.empty())
    RM_TRY(CheckKeyPair(config.client_cert_pem, config.client_key_pem));
  if (config.insecure_skip_tls_verify && url->scheme == "https")
    log::Warn(
        "server={} tls=unverified: insecure-skip-tls-verify is set; anyone on the network path can read and "
        "change the traffic",
        config.server);
  StartPool(options.pool_threads);
  try {
    // The library needs IPv6 addresses without brackets, and always a port.
    const std::string server = fmt::format("{}://{}:{}{}", url->scheme, url->host, url->port, url->path);
    return std::unique_ptr<HttpClient>(std::make_unique<Transport>(config, options, server, *proxy));
  } catch (const std::exception& error) {
    return Error{Code::kInvalid, fmt::format("server {}: {}", config.server, error.what())};
  }
}

}  // namespace ringmaster::kube
