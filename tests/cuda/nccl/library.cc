// SPDX-License-Identifier: Apache-2.0

// A libnccl.so.2 among processes of one machine whose GPUs are emulated: everything of ours that stands on
// NCCL runs as it would (loading, the unique id, non-blocking calls, abort, revoke, shrink, grow), but for
// NCCL. Not emulated: send and receive. Growing against the rules is said on stderr: "NCCL is misused".
//
// What it does wrong when asked by the environment:
//   RINGMASTER_EMULATED_NCCL_NET      what it says that it uses between machines: "Socket", "IB"; else P2P
//   RINGMASTER_EMULATED_NCCL_OTHER    a file: the first process to take it away has another version
//   RINGMASTER_EMULATED_NCCL_HANG     a file: the first abort to take it away never returns
//   RINGMASTER_EMULATED_NCCL_NO_ID    a file: the first id for newcomers is refused to who takes it away
//   RINGMASTER_EMULATED_NCCL_NO_MEMORY   a file: who takes it away gets no memory
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
namespace answers = fabric::nccl;

constexpr int kVersion = 22902;
constexpr int kOtherVersion = 22703;

struct Communicator {
  std::unique_ptr<Rank> rank;  // nullptr: it is being made of an older one
  std::shared_ptr<Area> parent;
  int future_rank = 0;
  int future_world = 0;
  bool revoked = false;
  Communicator* smaller = nullptr;  // that is being made of it,
  Handle* promised = nullptr;       // and where that will be named
  std::set<void*> memory = {};      // that was registered with it; guarded by the pool
};

Communicator& Of(Handle handle) { return *reinterpret_cast<Communicator*>(handle); }

bool TakesFile(const char* variable) {
  const char* const path = std::getenv(variable);
  return path != nullptr && ::unlink(path) == 0;
}

// The areas of ids that were given out: they are found through this process.
struct Invitations {
  std::mutex mutex;
  std::vector<std::shared_ptr<Area>> areas;
  std::string error;
};
Invitations& Given() {
  static Invitations invitations;
  return invitations;
}

// Memory that was given out, which is that of the emulated GPU, and who knows it.
struct Pool {
  std::mutex mutex;
  std::map<void*, size_t> given;
  std::set<Communicator*> communicators;
};
Pool& ThePool() {
  static Pool pool;
  return pool;
}

// The GPU is emulated by the worker's plugin.
template <class F>
F* OfGpu(const char* name) {
  const char* const path = std::getenv("RINGMASTER_DEVICE_PLUGIN");
  void* const plugin = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return plugin == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(plugin, name));
}

int Fail(const Error& error) {
  const std::lock_guard lock(Given().mutex);
  Given().error = error.message;
  return answers::kSystemError;
}

int Misused(const char* rule) {
  fmt::print(stderr, "NCCL is misused: {}\n", rule);
  return answers::kInvalidUsage;
}

// As NCCL does at level INFO.
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
  if (own.rank == nullptr || own.revoked) return answers::kInvalidUsage;
  const size_t size_of = operation.type == answers::kByte ? 1 : operation.type == answers::kBfloat16 ? 2 : 4;
  operation.bytes = count * size_of;
  operation.stream = reinterpret_cast<cuda::emulation::StreamHead*>(stream);
  own.rank->Give(operation);
  return answers::kSuccess;
}

const std::byte* In(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* Out(void* memory) { return static_cast<std::byte*>(memory); }

// A smaller one comes to be when its first rank has made a place to meet in.
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
    if (!parent.has_successor) return answers::kInProgress;
    Result<std::shared_ptr<Area>> found = Area::Open(parent.successor.data());
    if (!found.ok()) return Fail(found.error());
    area = std::move(found).value();
  }
  own->rank = std::make_unique<Rank>(std::move(area), own->future_rank, own->future_world);
  SayHowItTravels(own->future_rank, own->future_world);
  return answers::kInProgress;
}

int StateOf(Communicator* own) {
  if (own->rank == nullptr) return Follow(own);
  return own->rank->AllAreThere() ? answers::kSuccess : answers::kInProgress;
}

// As with NCCL, a smaller one has its name when it is made, or has failed, or its parent is freed.
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
  return answers::kSuccess;
}

RINGMASTER_EXPORT const char* ncclGetErrorString(int answer) {
  return answer == answers::kSystemError ? "unhandled system error" : "error of the emulated NCCL";
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
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclCommInitRankConfig(Handle* handle, int world, UniqueId id, int rank,
                                             Configuration* configuration) {
  if (configuration->blocking != 0 || world > Area::kRanks) return answers::kInvalidArgument;
  auto area = Area::Open(id.bytes.data());
  if (!area.ok()) return Fail(area.error());
  auto made = std::make_unique<Communicator>();
  made->rank = std::make_unique<Rank>(std::move(area).value(), rank, world);
  SayHowItTravels(rank, world);
  *handle = reinterpret_cast<Handle>(made.release());
  return answers::kInProgress;
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
  return answers::kInProgress;
}

RINGMASTER_EXPORT int ncclCommGetUniqueId(Handle handle, UniqueId* id) {
  if (TakesFile("RINGMASTER_EMULATED_NCCL_NO_ID"))
    return Fail({ringmaster::Code::kUnavailable, "no id today"});
  const Communicator& own = Of(handle);
  if (own.rank == nullptr || own.revoked || !own.rank->Idle()) return Misused("who grows must be at rest");
  Area::Head& parent = own.rank->area()->head();
  if (parent.has_successor) return Misused("its last id is not used up");
  if (const int answer = ncclGetUniqueId(id); answer != answers::kSuccess) return answer;
  auto area = Area::Open(id->bytes.data());
  if (!area.ok()) return Fail(area.error());
  (*area)->head().invited_by = own.rank->rank();
  (*area)->head().old_world = own.rank->world();
  std::ranges::copy_n(id->bytes.begin(), parent.successor.size(), parent.successor.begin());
  parent.has_successor = true;
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclCommGrow(Handle handle, int world, const UniqueId* id, int rank, Handle* larger,
                                   Configuration* configuration) {
  if (configuration->blocking != 0 || world > Area::kRanks) return answers::kInvalidArgument;
  std::string path;
  if (handle != nullptr) {
    const Communicator& own = Of(handle);
    if (own.rank == nullptr || own.revoked || !own.rank->Idle()) return Misused("who grows must be at rest");
    if (rank != -1) return Misused("who is in it keeps its rank");
    Area::Head& parent = own.rank->area()->head();
    if (!parent.has_successor) return Misused("nobody has asked for an id");
    path = parent.successor.data();
    rank = own.rank->rank();
  } else if (id == nullptr) {
    return Misused("newcomers need the id");
  } else {
    path = id->bytes.data();
  }
  auto area = Area::Open(path);
  if (!area.ok()) return Fail(area.error());
  Area::Head& head = (*area)->head();
  if (head.old_world == 0) return Misused("the id is not one for newcomers");
  if (world <= head.old_world || rank >= world) return Misused("the world does not grow");
  if (handle == nullptr && rank < head.old_world) return Misused("newcomers come behind the others");
  if (handle != nullptr && (id != nullptr) != (rank == head.invited_by))
    return Misused("of those who are in it only the one who asked for the id has it");
  if (head.joined >= world) return Misused("the id is used up");
  auto made = std::make_unique<Communicator>();
  made->rank = std::make_unique<Rank>(std::move(area).value(), rank, world);
  Say("grows");
  SayHowItTravels(rank, world);
  *larger = reinterpret_cast<Handle>(made.release());
  return answers::kSuccess;  // that it is in progress is seen at the new one
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
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclCommRevoke(Handle handle, int) {
  Communicator& own = Of(handle);
  own.revoked = true;
  own.rank->Stop();
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclCommGetAsyncError(Handle handle, int* answer) {
  Communicator& own = Of(handle);
  *answer = StateOf(own.smaller == nullptr ? &own : own.smaller);
  if (own.smaller != nullptr && *answer != answers::kInProgress) Name(&own);
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclCommRegister(Handle handle, void* memory, size_t bytes, void**) {
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  const auto found = pool.given.find(memory);
  if (found == pool.given.end() || found->second < bytes)
    return Misused("memory is registered that is CUDA's");
  pool.communicators.insert(&Of(handle));
  Of(handle).memory.insert(memory);
  Say("registers memory");
  return answers::kSuccess;
}

// Full of something, and of whole pages, as the real one.
RINGMASTER_EXPORT int ncclMemAlloc(void** memory, size_t bytes) {
  constexpr size_t kPage = size_t{2} << 20;
  if (TakesFile("RINGMASTER_EMULATED_NCCL_NO_MEMORY"))
    return Fail({ringmaster::Code::kExhausted, "no memory today"});
  auto* const allocate = OfGpu<void*(int64_t)>("ringmaster_emulated_allocate");
  const size_t taken = (bytes + kPage - 1) / kPage * kPage;
  *memory = allocate == nullptr ? nullptr : allocate(static_cast<int64_t>(taken));
  if (*memory == nullptr) return Fail({ringmaster::Code::kExhausted, "no emulated GPU, or too little of it"});
  std::memset(*memory, 0x5a, taken);
  const std::lock_guard lock(ThePool().mutex);
  ThePool().given[*memory] = bytes;
  return answers::kSuccess;
}

RINGMASTER_EXPORT int ncclMemFree(void* memory) {
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  for (const Communicator* const each : pool.communicators)
    if (each->memory.contains(memory)) return Misused("memory is freed that a communicator knows");
  if (pool.given.erase(memory) == 0) return Misused("memory is freed that is not NCCL's");
  OfGpu<void(void*)>("ringmaster_emulated_free")(memory);
  Say("frees memory");
  return answers::kSuccess;
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
  return answers::kInvalidUsage;
}
RINGMASTER_EXPORT int ncclRecv(void*, size_t, int, int, Handle, Stream) { return answers::kInvalidUsage; }
RINGMASTER_EXPORT int ncclGroupStart() { return answers::kSuccess; }
RINGMASTER_EXPORT int ncclGroupEnd() { return answers::kSuccess; }

}  // extern "C"
