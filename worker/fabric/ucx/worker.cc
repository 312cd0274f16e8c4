// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/worker.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "worker/fabric/copy.h"
#include "worker/fabric/ucx/tcp_health.h"

namespace ringmaster::fabric::ucx {
namespace {

constexpr unsigned kMessageId = 1;
// The limits of tearing down connections, which is local work and quick. Turns count as well as time, since
// the process may be stopped in between.
constexpr auto kTeardown = milliseconds(300);
constexpr int kTeardownTurns = 1000;
constexpr size_t kSmallBytes = 4 << 10;
constexpr size_t kLargeBytes = 16 << 10;  // a socket may take a part of it

}  // namespace

// One message in flight: the memory that UCX sends from.
struct Worker::Buffer {
  Worker* worker = nullptr;
  Endpoint* endpoint = nullptr;  // nullptr when it is destroyed
  Header header;
  size_t capacity = 0;
  std::unique_ptr<std::byte[]> data;
};

bool EndpointFailure::local() const {
  switch (status) {
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_CANCELED:  // an operation of a connection that failed
      return false;
    default:
      return true;
  }
}

Error EndpointFailure::ErrorOf(int rank) const {
  const char* const text = ucs_status_string(status);
  if (!local()) return {Code::kUnavailable, fmt::format("rank {} is gone (UCX: {})", rank, text)};
  return {Code::kUnavailable,
          fmt::format("UCX on this side cannot exchange data with rank {}: {}; the rank may "
                      "be healthy (see ulimit -l, and UCX_LOG_LEVEL=error)",
                      rank, text)};
}

Result<std::unique_ptr<Worker>> Worker::Create(const Context& context, Handler handler) {
  auto self = std::unique_ptr<Worker>(new Worker);
  self->handler_ = std::move(handler);

  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // One thread reduces buckets and another makes the other calls. The mode decides how UCX rings RDMA
  // doorbells.
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const auto status = ucp_worker_create(context.get(), &worker_params, &self->worker_); status != UCS_OK)
    return UcxError("ucp_worker_create", status);
  if (const auto status = ucp_worker_get_efd(self->worker_, &self->event_fd_); status != UCS_OK)
    return UcxError("ucp_worker_get_efd", status);

  ucp_am_handler_param_t handler_params = {};
  handler_params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                              UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler_params.id = kMessageId;
  handler_params.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler_params.cb = OnMessage;
  handler_params.arg = self.get();
  if (const auto status = ucp_worker_set_am_recv_handler(self->worker_, &handler_params); status != UCS_OK)
    return UcxError("ucp_worker_set_am_recv_handler", status);

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (const auto status = ucp_worker_get_address(self->worker_, &address, &bytes); status != UCS_OK)
    return UcxError("ucp_worker_get_address", status);
  self->address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(self->worker_, address);
  return self;
}

Worker::~Worker() {
  if (worker_ == nullptr) return;
  handler_ = [](const Header&, std::span<const std::byte>) {};  // its owner is partly destroyed
  // UCX tears down closed and failed connections while it makes progress, after it has reported the close as
  // done and released all zero-copy buffers. Destroying a worker before that ends the process: over CMA UCX
  // finds a queue that is not empty. A flush waits for the teardown and for unfinished closes.
  const ucp_request_param_t param = {};
  if (const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_, &param); UCS_PTR_IS_PTR(flush))
    closing_.push_back(flush);
  Finish([this] {
    Reap();
    return closing_.empty();
  });
  for (void* request : closing_) ucp_request_free(request);
  ucp_worker_destroy(worker_);
}

Result<std::unique_ptr<Endpoint>> Worker::Connect(const std::string& address) {
  Reap();
  auto endpoint = std::unique_ptr<Endpoint>(new Endpoint(*this));
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, endpoint.get()};
  const auto status = ucp_ep_create(worker_, &params, &endpoint->ep_);
  // The devices of both sides have no transport in common, or this host has no route to the peer's address.
  if (status == UCS_ERR_UNREACHABLE)
    return Error{Code::kNotFound, "no transport leads there: UCX finds none that both sides may use"};
  if (status != UCS_OK) return UcxError("ucp_ep_create", status);
  return endpoint;
}

void Worker::Sleep(Duration limit) {
  if (ucp_worker_arm(worker_) != UCS_OK) return;  // an event is pending
  pollfd poll = {event_fd_, POLLIN, 0};
  ::poll(&poll, 1, static_cast<int>(std::max<int64_t>(1, ToMs(limit))));
}

void Worker::Signal() { ucp_worker_signal(worker_); }

std::vector<int> Worker::Sockets() const { return WatchedSockets(event_fd_); }

Worker::Buffer* Worker::TakeBuffer(size_t bytes) {
  CHECK(bytes <= kSegmentBytes);
  const bool small = bytes <= kSmallBytes;
  std::vector<Buffer*>& free = small ? free_small_ : free_;
  if (free.empty()) {
    buffers_.push_back(std::make_unique<Buffer>());
    Buffer& fresh = *buffers_.back();
    fresh.worker = this;
    fresh.capacity = small ? kSmallBytes : kSegmentBytes;
    fresh.data = std::make_unique_for_overwrite<std::byte[]>(fresh.capacity);
    free.push_back(&fresh);
  }
  Buffer* const buffer = free.back();
  free.pop_back();
  return buffer;
}

template <class Done>
bool Worker::Finish(const Done& done) {
  const Time deadline = Now() + kTeardown;
  for (int turn = 0; turn < kTeardownTurns || Now() < deadline; ++turn) {
    if (done()) return true;
    Progress();
  }
  return done();
}

void Worker::Reap() {
  std::erase_if(closing_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
}

ucs_status_t Worker::OnMessage(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                               const ucp_am_recv_param_t* param) {
  Header copy;
  // Members send eager messages only; ignore anything else.
  if (header_bytes != sizeof copy || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  std::memcpy(&copy, header, sizeof copy);
  if (copy.kind != Kind::kWaiting) ++static_cast<Worker*>(self)->messages_;
  static_cast<Worker*>(self)->handler_(copy, {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

void Worker::OnSent(void* request, ucs_status_t status, void* argument) {
  auto* const buffer = static_cast<Buffer*>(argument);
  const bool announcement = buffer->header.kind == Kind::kWaiting;
  if (buffer->endpoint != nullptr) {
    if (announcement) {
      buffer->endpoint->announcing_ = false;
    } else {
      --buffer->endpoint->in_flight_;
    }
    if (status != UCS_OK) buffer->endpoint->Fail(status);
  }
  buffer->endpoint = nullptr;
  if (!announcement) ++buffer->worker->messages_;
  (buffer->capacity == kSmallBytes ? buffer->worker->free_small_ : buffer->worker->free_).push_back(buffer);
  if (request != nullptr) ucp_request_free(request);
}

void Worker::OnGetDone(void* request, ucs_status_t status, void* argument) {
  auto* const endpoint = static_cast<Endpoint*>(argument);
  --endpoint->gets_in_flight_;
  if (status != UCS_OK) endpoint->get_failed_ = EndpointFailure{status};
  ++endpoint->worker_.messages_;
  if (request != nullptr) ucp_request_free(request);
}

void Worker::OnError(void* endpoint, ucp_ep_h, ucs_status_t status) {
  static_cast<Endpoint*>(endpoint)->Fail(status);
}

void Endpoint::Fail(ucs_status_t status) {
  if (failed_) return;
  failed_ = EndpointFailure{status};
  log::Debug("ucx endpoint failed: {}", ucs_status_string(status));
}

void Endpoint::Send(const Header& header, std::span<const std::byte> data) {
  const bool announcement = header.kind == Kind::kWaiting;
  if (failed_ || (announcement && announcing_)) return;
  Worker::Buffer* const buffer = worker_.TakeBuffer(data.size());
  buffer->endpoint = this;
  buffer->header = header;
  CopyBytes(buffer->data.get(), data.data(), data.size());
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = Worker::OnSent;
  param.user_data = buffer;
  if (announcement) {
    announcing_ = true;
  } else {
    large_.reset();
    if (data.size() >= kLargeBytes) large_ = header;
    ++in_flight_;
  }
  const ucs_status_ptr_t request = ucp_am_send_nbx(ep_, kMessageId, &buffer->header, sizeof buffer->header,
                                                   buffer->data.get(), data.size(), &param);
  if (!UCS_PTR_IS_PTR(request)) Worker::OnSent(nullptr, UCS_PTR_STATUS(request), buffer);  // done, or refused
}

bool Endpoint::Flushed() {
  if (large_ && !failed_) {
    Header marker = *std::exchange(large_, std::nullopt);
    marker.kind = Kind::kMarker;
    Send(marker, {});
  }
  return failed() || in_flight_ == 0;
}

void Endpoint::Close() {
  if (ep_ == nullptr) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(ep_, &param);
  ep_ = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  // A connection over RC whose operations are still in flight must be gone before other work continues.
  if (worker_.Finish([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; })) {
    ucp_request_free(request);
  } else {
    worker_.closing_.push_back(request);
  }
}

Result<RemoteKey> Endpoint::Unpack(const std::string& key) {
  RemoteKey unpacked;
  if (const auto status = ucp_ep_rkey_unpack(ep_, key.data(), &unpacked.key_); status != UCS_OK)
    return UcxError("ucp_ep_rkey_unpack", status);
  return unpacked;
}

void Endpoint::Get(const RemoteKey& key, uint64_t address, std::span<std::byte> to, ucp_mem_h local,
                   ucs_memory_type_t type) {
  if (failed_) {
    get_failed_ = failed_;
    return;
  }
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = Worker::OnGetDone;
  param.user_data = this;
  param.memory_type = type;
  if (local != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = local;
  }
  ++gets_in_flight_;
  const ucs_status_ptr_t request = ucp_get_nbx(ep_, to.data(), to.size(), address, key.get(), &param);
  if (!UCS_PTR_IS_PTR(request))
    Worker::OnGetDone(nullptr, UCS_PTR_STATUS(request), this);  // done, or refused
}

void Endpoint::CancelGets() {
  if (gets_in_flight_ == 0) return;
  Fail(UCS_ERR_CANCELED);
  Close();
  // UCX completes this locally. If it ever does not, this process must end: its memory would be overwritten.
  // Only time in which the process ran counts, since it may be stopped in between.
  constexpr Duration kLimit = seconds(2);
  constexpr Duration kLongestTurn = milliseconds(10);
  Duration waited = {};
  Time last = Now();
  while (gets_in_flight_ > 0) {
    worker_.Progress();
    const Time now = Now();
    waited += std::min(now - last, kLongestTurn);
    last = now;
    CHECK(waited < kLimit, "UCX does not complete {} gets of a closed endpoint", gets_in_flight_);
  }
}

RemoteKey::~RemoteKey() {
  if (key_ != nullptr) ucp_rkey_destroy(key_);
}

Endpoint::~Endpoint() {
  CancelGets();
  Close();
  for (const auto& buffer : worker_.buffers_)
    if (buffer->endpoint == this) buffer->endpoint = nullptr;
}

std::string Endpoint::Transports() const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return "unknown";
  ucp_ep_print_info(ep_, stream);
  std::fclose(stream);
  std::istringstream lines(std::string(text, bytes));
  std::free(text);
  // "#   lane[0]:  2:tcp/lo.0 md[1] -> addr[0].md[0]/tcp/sysdev[255] am am_bw#0 wireup"
  std::set<std::string> found;
  std::string line;
  while (std::getline(lines, line)) {
    const size_t lane = line.find("lane[");
    if (lane == std::string::npos) continue;
    const size_t slash = line.find('/', lane);
    const size_t colon = line.rfind(':', slash);
    if (slash == std::string::npos || colon == std::string::npos) continue;
    found.insert(line.substr(colon + 1, slash - colon - 1));
  }
  std::string names;
  for (const std::string& name : found) names += (names.empty() ? "" : "+") + name;
  return names.empty() ? "unknown" : names;
}

}  // namespace ringmaster::fabric::ucx
