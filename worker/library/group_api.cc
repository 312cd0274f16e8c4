// SPDX-License-Identifier: Apache-2.0

// The C interface over Group: checks the arguments, converts them, and lets no exception out.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "include/ringmaster_group.h"
#include "worker/library/group.h"

using ringmaster::Code;
using ringmaster::Error;
using ringmaster::Status;
using ringmaster::fabric::Communicator;
using ringmaster::fabric::ReduceOp;
using ringmaster::library::Group;

struct rm_group {
  std::unique_ptr<Group> group;  // null: rm_group_open failed
  std::string error;
  bool out_of_memory = false;  // no memory was left to describe the last error
};

namespace {

constexpr double kDefaultTimeoutSeconds = 60;
constexpr double kMaxTimeoutSeconds = 1e7;

rm_status Say(rm_group* group, rm_status status, const std::string& message) {
  group->error = message;
  group->out_of_memory = false;
  return status;
}

// Returns what `body` returns, and turns exceptions into RM_FAILED.
template <class Body>
rm_status Catch(rm_group* group, Body body) noexcept {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& thrown) {
      return Say(group, RM_FAILED, thrown.what());
    }
  } catch (const std::bad_alloc&) {  // also of the handler above
    group->out_of_memory = true;
    return RM_FAILED;
  } catch (...) {
    group->error.clear();  // allocates nothing
    return RM_FAILED;
  }
}

// Runs `body`, which returns a Status, and turns errors and exceptions into an rm_status.
template <class Body>
rm_status Guard(rm_group* group, const char* function, Body body) noexcept {
  if (group == nullptr) return RM_INVALID;
  if (group->group == nullptr) return RM_FAILED;  // rm_group_error has the reason
  return Catch(group, [&] {
    const Status status = body(*group->group);
    if (status.ok()) return RM_OK;
    if (status.error().code == Code::kInvalid)
      return Say(group, RM_INVALID, fmt::format("{}: {}", function, status.error().message));
    return Say(group, RM_FAILED, status.error().message);
  });
}

// As Guard, for operations on `bytes` at `data`.
template <class Body>
rm_status Operate(rm_group* group, const char* function, const void* data, uint64_t bytes, Body body) {
  return Guard(group, function, [&](Group& of) -> Status {
    RM_TRY(of.CheckConnected());
    if (data == nullptr && bytes > 0) return Error{Code::kInvalid, "the data is missing"};
    return body(of);
  });
}

std::span<std::byte> Bytes(void* data, uint64_t bytes) { return {static_cast<std::byte*>(data), bytes}; }
std::span<const std::byte> Bytes(const void* data, uint64_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

// Calls `body` with a span of the element type and the operation.
template <class Body>
Status WithElements(void* data, uint64_t elements, int32_t element, int32_t reduction, Body body) {
  if (reduction != RM_SUM && reduction != RM_MAX)
    return Error{Code::kInvalid, fmt::format("no rm_reduction {}", reduction)};
  const ReduceOp op = reduction == RM_SUM ? ReduceOp::kSum : ReduceOp::kMax;
  if (reinterpret_cast<uintptr_t>(data) % sizeof(float) != 0)
    return Error{Code::kInvalid, "the data is not aligned to its elements"};
  if (element == RM_FLOAT32) return body(std::span<float>(static_cast<float*>(data), elements), op);
  if (element == RM_INT32) return body(std::span<int32_t>(static_cast<int32_t*>(data), elements), op);
  return Error{Code::kInvalid, fmt::format("no rm_element {}", element)};
}

}  // namespace

extern "C" {

rm_status rm_group_open(const rm_group_options* options, rm_group** out) {
  if (out == nullptr) return RM_INVALID;
  *out = new (std::nothrow) rm_group;
  if (*out == nullptr) return RM_FAILED;
  rm_group_options wanted{};
  if (options != nullptr) std::memcpy(&wanted, options, std::min<size_t>(options->size, sizeof wanted));
  if (wanted.timeout_seconds == 0) wanted.timeout_seconds = kDefaultTimeoutSeconds;
  return Catch(*out, [&] {
    if (!(wanted.timeout_seconds > 0))
      return Say(*out, RM_INVALID, "rm_group_options.timeout_seconds: must be at least 0");
    const auto timeout = std::chrono::duration<double>(std::min(wanted.timeout_seconds, kMaxTimeoutSeconds));
    auto opened = Group::Open(wanted.transport == nullptr ? "auto" : wanted.transport,
                              std::chrono::duration_cast<ringmaster::Duration>(timeout));
    if (!opened.ok())
      return Say(*out, opened.error().code == Code::kInvalid ? RM_INVALID : RM_FAILED,
                 opened.error().message);
    (*out)->group = std::move(opened).value();
    return RM_OK;
  });
}

void rm_group_close(rm_group* group) { const std::unique_ptr<rm_group> owner(group); }

const char* rm_group_error(const rm_group* group) {
  return group == nullptr || group->out_of_memory ? "not enough memory" : group->error.c_str();
}

const char* rm_group_address(const rm_group* group) {
  return group == nullptr || group->group == nullptr ? "" : group->group->address().c_str();
}

rm_status rm_group_connect(rm_group* group, uint64_t generation, int32_t rank, int32_t world,
                           const char* const* addresses) {
  return Guard(group, "rm_group_connect", [&](Group& of) -> Status {
    if (world < 1 || addresses == nullptr ||
        std::any_of(addresses, addresses + world, [](const char* one) { return one == nullptr; }))
      return Error{Code::kInvalid, "the addresses are missing"};
    return of.Connect({generation, rank, {addresses, addresses + world}});
  });
}

const char* rm_group_transport(const rm_group* group) {
  return group == nullptr || group->group == nullptr ? "none" : group->group->transport().c_str();
}

void rm_group_abort(rm_group* group, uint64_t generation) {
  if (group != nullptr && group->group != nullptr) group->group->Abort(generation);
}

int32_t rm_group_lost(const rm_group* group, int32_t first) {
  return group == nullptr || group->group == nullptr ? -1 : group->group->Lost(first);
}

rm_status rm_group_all_reduce(rm_group* group, void* data, uint64_t elements, int32_t element,
                              int32_t reduction) {
  return Operate(group, "rm_group_all_reduce", data, elements, [&](Group& of) {
    return WithElements(data, elements, element, reduction,
                        [&](auto values, ReduceOp op) { return of.communicator().AllReduce(values, op); });
  });
}

rm_status rm_group_reduce_scatter(rm_group* group, void* data, uint64_t elements, int32_t element,
                                  int32_t reduction) {
  return Operate(group, "rm_group_reduce_scatter", data, elements, [&](Group& of) -> Status {
    RM_TRY(of.CheckShares(elements));
    return WithElements(data, elements, element, reduction, [&](auto values, ReduceOp op) {
      return of.communicator().ReduceScatter(values, op);
    });
  });
}

rm_status rm_group_reduce(rm_group* group, void* data, uint64_t elements, int32_t element, int32_t reduction,
                          int32_t root) {
  return Operate(group, "rm_group_reduce", data, elements, [&](Group& of) -> Status {
    RM_TRY(of.CheckRank(root));
    return WithElements(data, elements, element, reduction,
                        [&](auto values, ReduceOp op) { return of.communicator().Reduce(values, op, root); });
  });
}

rm_status rm_group_all_gather(rm_group* group, void* data, uint64_t bytes) {
  return Operate(group, "rm_group_all_gather", data, bytes, [&](Group& of) -> Status {
    RM_TRY(of.CheckShares(bytes));
    return of.communicator().AllGather(Bytes(data, bytes));
  });
}

rm_status rm_group_broadcast(rm_group* group, void* data, uint64_t bytes, int32_t root) {
  return Operate(group, "rm_group_broadcast", data, bytes, [&](Group& of) -> Status {
    RM_TRY(of.CheckRank(root));
    return of.communicator().Broadcast(Bytes(data, bytes), root);
  });
}

rm_status rm_group_all_to_all(rm_group* group, const void* in, void* out, uint64_t bytes) {
  return Operate(group, "rm_group_all_to_all", in, bytes, [&](Group& of) -> Status {
    RM_TRY(of.CheckShares(bytes));
    if (out == nullptr && bytes > 0) return Error{Code::kInvalid, "the output is missing"};
    return of.communicator().AllToAll(Bytes(in, bytes), Bytes(out, bytes));
  });
}

rm_status rm_group_barrier(rm_group* group) {
  return Operate(group, "rm_group_barrier", nullptr, 0,
                 [&](Group& of) { return of.communicator().Barrier(); });
}

rm_status rm_group_send(rm_group* group, const void* data, uint64_t bytes, int32_t peer) {
  return Operate(group, "rm_group_send", data, bytes, [&](Group& of) -> Status {
    RM_TRY(of.CheckPeer(peer));
    return of.communicator().Send(Bytes(data, bytes), peer);
  });
}

rm_status rm_group_receive(rm_group* group, void* data, uint64_t bytes, int32_t peer) {
  return Operate(group, "rm_group_receive", data, bytes, [&](Group& of) -> Status {
    RM_TRY(of.CheckPeer(peer));
    return of.communicator().Receive(Bytes(data, bytes), peer);
  });
}

}  // extern "C"
