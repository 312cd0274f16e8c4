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
#include <set>
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

  // Copies short data. UCX sends long data in place (zero copy): the caller keeps it until sends_done. Drops
  // an announcement of a wait (kWaiting) while another one is in flight.
  void Send(const Header& header, std::span<const std::byte> data);
  bool failed() const { return failed_; }
  size_t in_flight() const { return in_flight_; }  // without announcements of waits
  // Whether UCX no longer uses the data of messages with a sequence below this.
  bool sends_done(uint64_t sequence) const { return zero_copy_.empty() || *zero_copy_.begin() >= sequence; }

  Result<RemoteKey> Unpack(const std::string& key);
  // Starts an RMA get: reads the peer's memory at `address` (in the peer's address space) into `to`, which is
  // of `type` and registered as `local` (nullptr: not registered). UCX owns `to` until gets_in_flight() is 0.
  void Get(const RemoteKey& key, uint64_t address, std::span<std::byte> to, ucp_mem_h local,
           ucs_memory_type_t type);
  size_t gets_in_flight() const { return gets_in_flight_; }
  bool get_failed() const { return get_failed_; }  // any of them; the connection may still work

  // Ends zero-copy sends and gets, by closing the connection if necessary: a message of an aborted operation
  // must not leave later with whatever its memory holds then, and a get must not arrive later.
  void CancelTransfers();
  // Returns the UCX transports of this connection's lanes: "tcp", "rc_mlx5+tcp".
  std::string Transports() const;

 private:
  friend class Worker;
  explicit Endpoint(Worker& worker) : worker_(worker) {}
  void Close();  // forced; completes while the worker makes progress

  Worker& worker_;
  ucp_ep_h ep_ = nullptr;
  bool failed_ = false;
  bool get_failed_ = false;
  size_t in_flight_ = 0;
  bool announcing_ = false;  // an announcement is in flight
  size_t gets_in_flight_ = 0;
  std::set<uint64_t> zero_copy_;  // sequence numbers
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

 private:
  friend class Endpoint;
  struct Buffer;

  Worker() = default;
  Buffer* TakeBuffer(size_t bytes);
  void Reap();  // frees the requests of completed closes
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
  std::vector<Buffer*> free_;
  std::vector<void*> closing_;
};

}  // namespace ringmaster::fabric::ucx
