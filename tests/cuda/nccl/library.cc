// SPDX-License-Identifier: Apache-2.0

// A libnccl.so.2 for processes of one machine with emulated GPUs. All code above NCCL runs as with the real
// library (loading, the unique id, non-blocking calls, abort, revoke, shrink, grow). Send and receive are not
// emulated. A call that violates a rule of NCCL is reported on stderr: "NCCL is misused".
//
// Environment variables that inject faults:
//   RINGMASTER_EMULATED_NCCL_NET      the network between machines that it logs: "Socket", "IB"; unset: P2P
//   RINGMASTER_EMULATED_NCCL_OTHER    a file: the process that removes it has another version
//   RINGMASTER_EMULATED_NCCL_HANG     a file: the first abort that removes it never returns
//   RINGMASTER_EMULATED_NCCL_NO_ID    a file: the request for an id of new members that removes it fails
//   RINGMASTER_EMULATED_NCCL_NO_MEMORY   a file: the process that removes it gets no memory
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/nccl/rank.h"

namespace ringmaster::nccl_emulation {
namespace {

using fabric::nccl::Configuration;
using fabric::nccl::Handle;
using fabric::nccl::Stream;
using fabric::nccl::UniqueId;
namespace results = fabric::nccl;

constexpr int kVersion = 22902;
constexpr int kOtherVersion = 22703;

struct Communicator {
  std::unique_ptr<Rank> rank;  // nullptr: it is forming from an older one
  std::shared_ptr<Area> parent;
  int future_rank = 0;
  int future_world = 0;
  bool revoked = false;
  Communicator* smaller = nullptr;  // that is forming from it,
  Handle* promised = nullptr;       // and where its handle will be stored
  std::set<void*> memory = {};      // registered with it; guarded by the pool
};

Communicator& Of(Handle handle) { return *reinterpret_cast<Communicator*>(handle); }

bool TakesFile(const char* variable) {
  const char* const path = std::getenv(variable);
  return path != nullptr && ::unlink(path) == 0;
}

// The areas of the ids that this process has created; other processes open them through this process.
struct Invitations {
  std::mutex mutex;
  std::vector<std::shared_ptr<Area>> areas;
  std::string error;
};
Invitations& Given() {
  static Invitations invitations;
  return invitations;
}

// Allocated memory, which is memory of the emulated GPU, and the communicators that use it.
struct Pool {
  std::mutex mutex;
  std::map<void*, size_t> given;
  std::set<Communicator*> communicators;
};
Pool& ThePool() {
  static Pool pool;
  return pool;
}

// The worker's plugin emulates the GPU.
template <class F>
F* OfGpu(const char* name) {
  const char* const path = std::getenv("RINGMASTER_DEVICE_PLUGIN");
  void* const plugin = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return plugin == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(plugin, name));
}

int Fail(const Error& error) {
  const std::lock_guard lock(Given().mutex);
  Given().error = error.message;
  return results::kSystemError;
}

int Misused(const char* rule) {
  fmt::print(stderr, "NCCL is misused: {}\n", rule);
  return results::kInvalidUsage;
}

// Writes to the log as NCCL does at level INFO.
void Say(const std::string& text) {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const path = std::getenv("NCCL_DEBUG_FILE");
  if (level == nullptr || std::strcmp(level, "INFO") != 0 || path == nullptr) return;
  const Fd file(::open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
  const std::string line = fmt::format("emulated:{} NCCL INFO {}\n", ::getpid(), text);
  if (file.valid() && ::write(file.get(), line.data(), line.size()) < 0) return;
}

void SayHowItTravels(int rank, int world) {
  const char* const net = std::getenv("RINGMASTER_EMULATED_NCCL_NET");
  if (net != nullptr && std::strcmp(net, "Socket") == 0) Say("NET/IB : No device found.");
  Say(fmt::format("Using network {}", net == nullptr ? "Socket" : net));
  Say(fmt::format("Channel 00/0 : {}[0] -> {}[0] {}", rank, (rank + 1) % world,
                  net == nullptr ? "via P2P/CUMEM" : fmt::format("[send] via NET/{}/0", net)));
}

int Enqueue(Handle handle, Stream stream, Operation operation, size_t count) {
  Communicator& own = Of(handle);
  if (own.rank == nullptr || own.revoked) return results::kInvalidUsage;
  const size_t size_of = operation.type == results::kByte ? 1 : operation.type == results::kBfloat16 ? 2 : 4;
  operation.bytes = count * size_of;
  operation.stream = reinterpret_cast<cuda::emulation::StreamHead*>(stream);
  own.rank->Give(operation);
  return results::kSuccess;
}

const std::byte* In(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* Out(void* memory) { return static_cast<std::byte*>(memory); }

// A smaller communicator is formed when its first rank has created the area.
int Follow(Communicator* own) {
  Area::Head& parent = own->parent->head();
  std::shared_ptr<Area> area;
  if (own->future_rank == 0) {
    Result<std::shared_ptr<Area>> made = Area::Create();
    if (!made.ok()) return Fail(made.error());
    area = std::move(made).value();
    const std::string path = area->path();
    std::ranges::copy(path, parent.successor.begin());
    parent.has_successor = true;
  } else {
    if (!parent.has_successor) return results::kInProgress;
    Result<std::shared_ptr<Area>> found = Area::Open(parent.successor.data());
    if (!found.ok()) return Fail(found.error());
    area = std::move(found).value();
  }
  own->rank = std::make_unique<Rank>(std::move(area), own->future_rank, own->future_world);
  SayHowItTravels(own->future_rank, own->future_world);
  return results::kInProgress;
}

int StateOf(Communicator* own) {
  if (own->rank == nullptr) return Follow(own);
  return own->rank->AllAreThere() ? results::kSuccess : results::kInProgress;
}

// As with NCCL, a smaller communicator has its handle when it is formed, has failed, or its parent is freed.
void Name(Communicator* parent) {
  *parent->promised = reinterpret_cast<Handle>(std::exchange(parent->smaller, nullptr));
}

}  // namespace
}  // namespace ringmaster::nccl_emulation

#define RINGMASTER_EXPORT __attribute__((visibility("default")))
extern "C" {

using namespace ringmaster::nccl_emulation;

RINGMASTER_EXPORT int ncclGetVersion(int* version) {
  static const int kOwn = TakesFile("RINGMASTER_EMULATED_NCCL_OTHER") ? kOtherVersion : kVersion;
  *version = kOwn;
  return results::kSuccess;
}

RINGMASTER_EXPORT const char* ncclGetErrorString(int result) {
  return result == results::kSystemError ? "unhandled system error" : "error of the emulated NCCL";
}

RINGMASTER_EXPORT const char* ncclGetLastError(Handle) {
  const std::lock_guard lock(Given().mutex);
  return Given().error.c_str();
}

RINGMASTER_EXPORT int ncclGetUniqueId(UniqueId* id) {
  auto area = Area::Create();
  if (!area.ok()) return Fail(area.error());
  const std::string path = (*area)->path();
  id->bytes.fill('\0');
  std::ranges::copy(path, id->bytes.begin());
  const std::lock_guard lock(Given().mutex);
  Given().areas.push_back(std::move(area).value());
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclCommInitRankConfig(Handle* handle, int world, UniqueId id, int rank,
                                             Configuration* configuration) {
  if (configuration->blocking != 0 || world > Area::kRanks) return results::kInvalidArgument;
  auto area = Area::Open(id.bytes.data());
  if (!area.ok()) return Fail(area.error());
  auto made = std::make_unique<Communicator>();
  made->rank = std::make_unique<Rank>(std::move(area).value(), rank, world);
  SayHowItTravels(rank, world);
  *handle = reinterpret_cast<Handle>(made.release());
  return results::kInProgress;
}

RINGMASTER_EXPORT int ncclCommShrink(Handle handle, int* excluded, int count, Handle* smaller, Configuration*,
                                     int) {
  Communicator& parent = Of(handle);
  const int old_rank = parent.rank->rank();
  const auto before = std::count_if(excluded, excluded + count, [&](int gone) { return gone < old_rank; });
  auto made = std::make_unique<Communicator>();
  made->parent = parent.rank->area();
  made->future_rank = old_rank - static_cast<int>(before);
  made->future_world = parent.rank->world() - count;
  Say("shrinks");
  *smaller = nullptr;
  parent.smaller = made.release();
  parent.promised = smaller;
  return results::kInProgress;
}

RINGMASTER_EXPORT int ncclCommGetUniqueId(Handle handle, UniqueId* id) {
  if (TakesFile("RINGMASTER_EMULATED_NCCL_NO_ID"))
    return Fail({ringmaster::Code::kUnavailable, "no id (injected fault)"});
  const Communicator& own = Of(handle);
  if (own.rank == nullptr || own.revoked || !own.rank->Idle())
    return Misused("a growing communicator must be idle");
  Area::Head& parent = own.rank->area()->head();
  if (parent.has_successor) return Misused("its last id is not used up");
  if (const int result = ncclGetUniqueId(id); result != results::kSuccess) return result;
  auto area = Area::Open(id->bytes.data());
  if (!area.ok()) return Fail(area.error());
  (*area)->head().invited_by = own.rank->rank();
  (*area)->head().old_world = own.rank->world();
  std::ranges::copy_n(id->bytes.begin(), parent.successor.size(), parent.successor.begin());
  parent.has_successor = true;
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclCommGrow(Handle handle, int world, const UniqueId* id, int rank, Handle* larger,
                                   Configuration* configuration) {
  if (configuration->blocking != 0 || world > Area::kRanks) return results::kInvalidArgument;
  std::string path;
  if (handle != nullptr) {
    const Communicator& own = Of(handle);
    if (own.rank == nullptr || own.revoked || !own.rank->Idle())
      return Misused("a growing communicator must be idle");
    if (rank != -1) return Misused("old members keep their ranks");
    Area::Head& parent = own.rank->area()->head();
    if (!parent.has_successor) return Misused("no id was requested");
    path = parent.successor.data();
    rank = own.rank->rank();
  } else if (id == nullptr) {
    return Misused("new members need the id");
  } else {
    path = id->bytes.data();
  }
  auto area = Area::Open(path);
  if (!area.ok()) return Fail(area.error());
  Area::Head& head = (*area)->head();
  if (head.old_world == 0) return Misused("the id is not one for new members");
  if (world <= head.old_world || rank >= world) return Misused("the world does not grow");
  if (handle == nullptr && rank < head.old_world) return Misused("new members come after the old ones");
  if (handle != nullptr && (id != nullptr) != (rank == head.invited_by))
    return Misused("of the old members only the one that requested the id passes it");
  if (head.joined >= world) return Misused("the id is used up");
  auto made = std::make_unique<Communicator>();
  made->rank = std::make_unique<Rank>(std::move(area).value(), rank, world);
  Say("grows");
  SayHowItTravels(rank, world);
  *larger = reinterpret_cast<Handle>(made.release());
  return results::kSuccess;  // polling the new communicator reports kInProgress
}

RINGMASTER_EXPORT int ncclCommAbort(Handle handle) {
  if (TakesFile("RINGMASTER_EMULATED_NCCL_HANG")) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable never;
    while (true) never.wait(lock);
  }
  const std::unique_ptr<Communicator> freed(&Of(handle));
  {
    const std::lock_guard lock(ThePool().mutex);
    ThePool().communicators.erase(freed.get());
  }
  if (freed->smaller != nullptr) Name(freed.get());
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclCommRevoke(Handle handle, int) {
  Communicator& own = Of(handle);
  Say("revokes");
  own.revoked = true;
  own.rank->Stop();
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclCommGetAsyncError(Handle handle, int* result) {
  Communicator& own = Of(handle);
  *result = StateOf(own.smaller == nullptr ? &own : own.smaller);
  if (own.smaller != nullptr && *result != results::kInProgress) Name(&own);
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclCommRegister(Handle handle, void* memory, size_t bytes, void**) {
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  const auto found = pool.given.find(memory);
  if (found == pool.given.end() || found->second < bytes) return Misused("memory of CUDA is registered");
  pool.communicators.insert(&Of(handle));
  Of(handle).memory.insert(memory);
  Say("registers memory");
  return results::kSuccess;
}

// Not zeroed, and whole pages, as with the real library.
RINGMASTER_EXPORT int ncclMemAlloc(void** memory, size_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  if (TakesFile("RINGMASTER_EMULATED_NCCL_NO_MEMORY"))
    return Fail({ringmaster::Code::kExhausted, "no memory (injected fault)"});
  auto* const allocate = OfGpu<void*(int64_t)>("ringmaster_emulated_allocate");
  const size_t taken = (bytes + kPage - 1) / kPage * kPage;
  *memory = allocate == nullptr ? nullptr : allocate(static_cast<int64_t>(taken));
  if (*memory == nullptr)
    return Fail({ringmaster::Code::kExhausted, "no emulated GPU, or too little memory"});
  std::memset(*memory, 0x5a, taken);
  const std::lock_guard lock(ThePool().mutex);
  ThePool().given[*memory] = bytes;
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclMemFree(void* memory) {
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  for (const Communicator* const each : pool.communicators)
    if (each->memory.contains(memory)) return Misused("memory is freed that a communicator uses");
  if (pool.given.erase(memory) == 0) return Misused("memory is freed that NCCL did not allocate");
  OfGpu<void(void*)>("ringmaster_emulated_free")(memory);
  Say("frees memory");
  return results::kSuccess;
}

RINGMASTER_EXPORT int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation,
                                    Handle handle, Stream stream) {
  return Enqueue(handle, stream, {Kind::kAllReduce, In(in), Out(out), 0, type, operation, nullptr}, count);
}
RINGMASTER_EXPORT int ncclReduceScatter(const void* in, void* out, size_t share, int type, int operation,
                                        Handle handle, Stream stream) {
  return Enqueue(handle, stream, {Kind::kReduceScatter, In(in), Out(out), 0, type, operation, nullptr},
                 share);
}
RINGMASTER_EXPORT int ncclAllGather(const void* in, void* out, size_t share, int type, Handle handle,
                                    Stream stream) {
  return Enqueue(handle, stream, {Kind::kAllGather, In(in), Out(out), 0, type, 0, nullptr}, share);
}
RINGMASTER_EXPORT int ncclBroadcast(const void* in, void* out, size_t count, int type, int root,
                                    Handle handle, Stream stream) {
  return Enqueue(handle, stream, {Kind::kBroadcast, In(in), Out(out), 0, type, root, nullptr}, count);
}

RINGMASTER_EXPORT int ncclSend(const void*, size_t, int, int, Handle, Stream) {
  return results::kInvalidUsage;
}
RINGMASTER_EXPORT int ncclRecv(void*, size_t, int, int, Handle, Stream) { return results::kInvalidUsage; }
RINGMASTER_EXPORT int ncclGroupStart() { return results::kSuccess; }
RINGMASTER_EXPORT int ncclGroupEnd() { return results::kSuccess; }

}  // extern "C"
