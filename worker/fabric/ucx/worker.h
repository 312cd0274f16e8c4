// SPDX-License-Identifier: Apache-2.0

// A UCX worker with its endpoints: active messages in and out, RMA gets, sleep and wake-up. Knows nothing of
// generations.
//
// Not thread-safe, except Signal.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/ucx/context.h"
#include "worker/fabric/ucx/wire.h"

namespace ringmaster::fabric::ucx {

// Payload of the longest message. With all headers it fits into one UCX fragment over TCP, so that UCX hands
// it over in the buffer it was received into. It also fills three packets of the loopback device, the largest
// packets there are, with little left over: a fourth would cost as much as a full one.
inline constexpr size_t kSegmentBytes = 191 << 10;

class Worker;

// Why a connection failed.
struct EndpointFailure {
  ucs_status_t status = UCS_OK;

  // Whether this side refused the operation, for example because it cannot register memory: the peer may be
  // healthy.
  bool local() const;
  // Returns the error of an operation that depends on this rank.
  Error ErrorOf(int rank) const;
};

// Opens a peer's registered memory (RegisteredMemory::key) to one endpoint. Move-only. REQUIRES: outlives the
// gets that use it.
class RemoteKey {
 public:
  RemoteKey() = default;
  RemoteKey(RemoteKey&& other) noexcept : key_(std::exchange(other.key_, nullptr)) {}
  RemoteKey& operator=(RemoteKey&& other) noexcept {
    std::swap(key_, other.key_);
    return *this;
  }
  ~RemoteKey();
  ucp_rkey_h get() const { return key_; }

 private:
  friend class Endpoint;
  ucp_rkey_h key_ = nullptr;
};

// A connection to one peer process.
class Endpoint {
 public:
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Copies the data; UCX sends from the copy. So the message stays valid whatever the caller does next, and a
  // message of an operation that was given up needs no cancelling: that would need a forced close, after
  // which UCX keeps the socket of a live peer half open. Drops an announcement of a wait (kWaiting) while
  // another one is in flight. REQUIRES: at most kSegmentBytes.
  void Send(const Header& header, std::span<const std::byte> data);
  bool failed() const { return failed_.has_value(); }
  // Why UCX sends no more to this peer. REQUIRES: failed.
  const EndpointFailure& failure() const { return *failed_; }
  size_t in_flight() const { return in_flight_; }  // without announcements of waits
  // Whether the system has taken all messages but announcements, or the connection has failed. UCX reports a
  // large message as sent that it has copied for a socket whose buffer is full, and only progress sends the
  // rest. A marker behind it is not taken before that.
  bool Flushed();

  Result<RemoteKey> Unpack(const std::string& key);
  // Starts an RMA get: reads the peer's memory at `address` (in the peer's address space) into `to`, which is
  // of `type` and registered as `local` (nullptr: not registered). UCX owns `to` until gets_in_flight() is 0.
  void Get(const RemoteKey& key, uint64_t address, std::span<std::byte> to, ucp_mem_h local,
           ucs_memory_type_t type);
  size_t gets_in_flight() const { return gets_in_flight_; }
  // Whether any of them failed, and why; the connection may still work.
  bool get_failed() const { return get_failed_.has_value(); }
  const EndpointFailure& get_failure() const { return *get_failed_; }

  // Ends gets, by closing the connection if necessary: none may arrive in memory that has another use by
  // then.
  void CancelGets();
  // Returns the UCX transports of this connection's lanes: "tcp", "rc_mlx5+tcp".
  std::string Transports() const;

 private:
  friend class Worker;
  explicit Endpoint(Worker& worker) : worker_(worker) {}
  void Close();  // forced; makes progress until UCX has closed the connection
  void Fail(ucs_status_t status);

  Worker& worker_;
  ucp_ep_h ep_ = nullptr;
  std::optional<EndpointFailure> failed_;  // the first
  std::optional<EndpointFailure> get_failed_;
  size_t in_flight_ = 0;
  bool announcing_ = false;      // an announcement is in flight
  std::optional<Header> large_;  // of a large message that no marker has followed
  size_t gets_in_flight_ = 0;
};

class Worker {
 public:
  using Handler = std::function<void(const Header& header, std::span<const std::byte> data)>;

  // Progress calls `handler`. REQUIRES: the context outlives the worker.
  static Result<std::unique_ptr<Worker>> Create(const Context& context, Handler handler);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  const std::string& address() const { return address_; }
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& address);

  // Handles pending events; returns whether there was one.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }
  // Returns the number of messages that have arrived or left, plus completed gets. UCX's internal traffic to
  // keep connections alive is not counted, nor are announcements of waits.
  uint64_t messages() const { return messages_; }
  // Sleeps until an event, Signal or the limit.
  void Sleep(Duration limit);
  // Ends a sleep. Thread-safe.
  void Signal();
  // Returns the TCP sockets that UCX watches for this worker.
  std::vector<int> Sockets() const;

 private:
  friend class Endpoint;
  struct Buffer;

  Worker() = default;
  Buffer* TakeBuffer(size_t bytes);
  void Reap();  // frees the requests of completed closes
  // Makes progress until `done` or the limit of local work; returns whether it is done.
  template <class Done>
  bool Finish(const Done& done);
  static ucs_status_t OnMessage(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* buffer);
  static void OnGetDone(void* request, ucs_status_t status, void* endpoint);
  static void OnError(void* endpoint, ucp_ep_h ep, ucs_status_t status);

  Handler handler_;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
  uint64_t messages_ = 0;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // all
  std::vector<Buffer*> free_small_;
  std::vector<Buffer*> free_;  // of kSegmentBytes; the last one used is most likely in a cache
  std::vector<void*> closing_;
};

}  // namespace ringmaster::fabric::ucx
