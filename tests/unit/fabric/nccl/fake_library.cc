// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/fabric/nccl/fake_library.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

#include "base/check.h"

namespace ringmaster::fabric::nccl {
namespace {

FakeLibrary* the_library = nullptr;

FakeLibrary::Communicator* Of(Handle handle) { return reinterpret_cast<FakeLibrary::Communicator*>(handle); }

size_t SizeOf(int type) { return type == kByte ? 1 : type == kBfloat16 ? 2 : 4; }

template <class T>
void Combine(void* into, const void* from, size_t count, int operation) {
  for (size_t i = 0; i < count; ++i) {
    T a;
    T b;
    std::memcpy(&a, static_cast<char*>(into) + i * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
    const T c = operation == kMax ? std::max(a, b) : static_cast<T>(a + b);
    std::memcpy(static_cast<char*>(into) + i * sizeof(T), &c, sizeof(T));
  }
}

// Sums in float, in the order of ranks; callers may not rely on more than that from NCCL.
void AddBf16(void* into, const void* from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto read = [i](const void* memory) {
      uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(memory) + 2 * i, 2);
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    };
    const auto sum = std::bit_cast<uint32_t>(read(into) + read(from));
    const auto rounded = static_cast<uint16_t>((sum + 0x7fff + (sum >> 16 & 1)) >> 16);
    std::memcpy(static_cast<char*>(into) + 2 * i, &rounded, 2);
  }
}

}  // namespace

struct FakeOperation {
  std::string kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int type = 0;
  int argument = 0;  // reduction, root
  FakeLibrary::Communicator* owner = nullptr;
  int* pending = nullptr;  // of its stream
};

// A message that is sent or received.
struct FakeMessage {
  const void* in = nullptr;  // of a sender
  void* out = nullptr;       // of a receiver
  size_t bytes = 0;
  int peer = 0;
  bool done = false;
};

// The operations of one group call: later operations wait until all of them are done.
struct FakeBatch {
  std::vector<FakeMessage> messages;
  int* pending = nullptr;
};

namespace {

// The calls of this thread between GroupStart and GroupEnd.
struct Group {
  bool open = false;
  FakeLibrary::Communicator* owner = nullptr;
  FakeBatch batch;
};
thread_local Group group;

}  // namespace

struct FakeLibrary::StreamState {
  int pending = 0;
  bool broken = false;
};

struct FakeLibrary::Clique {
  int world = 0;
  int joined = 0;
  std::string name;
  std::map<uint64_t, std::map<int, FakeOperation>> operations;  // by number, by rank
};

// An id for growing a communicator.
struct FakeLibrary::Growth {
  std::string id;
  std::shared_ptr<Clique> parent;
  int old_world = 0;
  int asked_by = 0;
  std::shared_ptr<Clique> larger = std::make_shared<Clique>();
  std::set<int> come;
};

struct FakeLibrary::Communicator {
  std::shared_ptr<Clique> clique;
  std::shared_ptr<Growth> growth;   // that it came from
  Communicator* parent = nullptr;   // that it grew from
  Communicator* smaller = nullptr;  // that is being made of it,
  Handle* promised = nullptr;       // and where that will be named
  int rank = 0;
  uint64_t enqueued = 0;
  int slow = 0;
  bool revoked = false;
  std::set<const void*> memory;  // registered with it
  int state = kSuccess;
  std::deque<FakeBatch> batches;
};

FakeLibrary* FakeLibrary::current() { return the_library; }

FakeLibrary::FakeLibrary(const Faults& faults) : faults_(faults) {
  CHECK(the_library == nullptr);
  the_library = this;
}

FakeLibrary::~FakeLibrary() { the_library = nullptr; }

Api FakeLibrary::api() const {
  Api api;
  api.version = faults_.version;
  api.get_version = [](int* version) {
    *version = the_library->faults_.version;
    return static_cast<int>(kSuccess);
  };
  api.error_string = [](int) { return "some error"; };
  api.last_error = [](Handle) { return "of the fake"; };
  api.unique_id = [](UniqueId* id) { return the_library->UniqueIdOf(id); };
  api.init_rank = [](Handle* handle, int world, UniqueId id, int rank, Configuration* configuration) {
    CHECK(configuration->blocking == 0);
    return the_library->InitRank(handle, world, id, rank);
  };
  api.abort = [](Handle handle) { return the_library->Abort(handle); };
  api.async_error = [](Handle handle, int* result) { return the_library->AsyncError(handle, result); };
  api.all_reduce = [](const void* in, void* out, size_t count, int type, int op, Handle handle,
                      Stream stream) {
    return the_library->Operate(handle, stream, "all-reduce", in, out, count, type, op);
  };
  api.reduce_scatter = [](const void* in, void* out, size_t share, int type, int op, Handle handle,
                          Stream stream) {
    return the_library->Operate(handle, stream, "reduce-scatter", in, out, share, type, op);
  };
  api.all_gather = [](const void* in, void* out, size_t share, int type, Handle handle, Stream stream) {
    return the_library->Operate(handle, stream, "all-gather", in, out, share, type, 0);
  };
  api.broadcast = [](const void* in, void* out, size_t count, int type, int root, Handle handle,
                     Stream stream) {
    return the_library->Operate(handle, stream, "broadcast", in, out, count, type, root);
  };
  api.send = [](const void* data, size_t count, int type, int peer, Handle handle, Stream stream) {
    return the_library->Carry(handle, stream, data, nullptr, count * SizeOf(type), peer);
  };
  api.receive = [](void* data, size_t count, int type, int peer, Handle handle, Stream stream) {
    return the_library->Carry(handle, stream, nullptr, data, count * SizeOf(type), peer);
  };
  api.group_start = [] { return the_library->GroupStart(); };
  api.group_end = [] { return the_library->GroupEnd(); };
  if (faults_.can_revoke) api.revoke = [](Handle handle, int) { return the_library->Revoke(handle); };
  if (faults_.can_shrink)
    api.shrink = [](Handle handle, int* excluded, int count, Handle* smaller, Configuration*, int) {
      return the_library->Shrink(handle, {excluded, excluded + count}, smaller);
    };
  if (faults_.can_grow) {
    api.grow_id = [](Handle handle, UniqueId* id) { return the_library->GrowId(handle, id); };
    api.grow = [](Handle handle, int world, const UniqueId* id, int rank, Handle* larger,
                  Configuration* configuration) {
      CHECK(configuration->blocking == 0);
      return the_library->Grow(handle, world, id, rank, larger);
    };
  }
  api.register_memory = [](Handle handle, void* memory, size_t, void**) {
    return the_library->RegisterMemory(handle, memory);
  };
  api.allocate = [](void** memory, size_t bytes) { return the_library->Allocate(memory, bytes); };
  api.free = [](void* memory) { return the_library->Free(memory); };
  return api;
}

Stream FakeLibrary::NewStream() {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<StreamState>());
  return reinterpret_cast<Stream>(streams_.back().get());
}

Result<bool> FakeLibrary::Idle(Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto* const state = reinterpret_cast<StreamState*>(stream);
  if (state->broken) return Error{Code::kGone, "the device is lost"};
  return state->pending == 0;
}

void FakeLibrary::BreakDevice(Stream stream) {
  const std::lock_guard lock(mutex_);
  reinterpret_cast<StreamState*>(stream)->broken = true;
}

void FakeLibrary::Release() {
  const std::lock_guard lock(mutex_);
  let_go_ = true;
  released_.notify_all();
}

int FakeLibrary::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int FakeLibrary::shrinks() {
  const std::lock_guard lock(mutex_);
  return shrinks_;
}

int FakeLibrary::grows() {
  const std::lock_guard lock(mutex_);
  return grows_;
}

int FakeLibrary::grow_ids() {
  const std::lock_guard lock(mutex_);
  return grow_ids_;
}

int FakeLibrary::alive() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(communicators_.size());
}

int FakeLibrary::given() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(given_.size());
}

int FakeLibrary::registered() {
  const std::lock_guard lock(mutex_);
  return registered_;
}

bool FakeLibrary::Fails() { return faults_.failing_call == calls_++; }

int FakeLibrary::UniqueIdOf(UniqueId* id) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  const std::string name = "id " + std::to_string(++ids_);
  id->bytes.fill(0);
  std::copy(name.begin(), name.end(), id->bytes.begin());
  return kSuccess;
}

int FakeLibrary::InitRank(Handle* handle, int world, const UniqueId& id, int rank) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  std::shared_ptr<Clique>& clique = cliques_[id.bytes.data()];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->world = world;
  clique->name = id.bytes.data();
  ++clique->joined;
  auto made = std::make_unique<Communicator>();
  made->clique = clique;
  made->rank = rank;
  made->slow = faults_.slow_results;
  *handle = reinterpret_cast<Handle>(made.get());
  communicators_[made.get()] = std::move(made);
  return kInProgress;
}

int FakeLibrary::Shrink(Handle handle, const std::vector<int>& excluded, Handle* smaller) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  Communicator& parent = *Of(handle);
  std::string name = parent.clique->name + " without";
  int rank = parent.rank;
  for (const int one : excluded) {
    name += " " + std::to_string(one);
    if (one < parent.rank) --rank;
  }
  std::shared_ptr<Clique>& clique = cliques_[name];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->world = parent.clique->world - static_cast<int>(excluded.size());
  clique->name = name;
  ++clique->joined;
  ++shrinks_;
  auto made = std::make_unique<Communicator>();
  made->clique = clique;
  made->rank = rank;
  made->slow = faults_.slow_results;
  *smaller = nullptr;  // until it is made, or has failed
  parent.smaller = made.get();
  parent.promised = smaller;
  communicators_[made.get()] = std::move(made);
  return kInProgress;
}

int FakeLibrary::GrowId(Handle handle, UniqueId* id) {
  std::unique_lock lock(mutex_);
  ++grow_ids_;
  if (faults_.grow_id_hangs) released_.wait(lock, [this] { return let_go_; });
  if (Fails() || faults_.grow_id_fails) return faults_.failure;
  const Communicator& own = *Of(handle);
  CHECK(!own.revoked && own.batches.empty() && own.clique->operations.empty(), "not at rest");
  for (const auto& [name, growth] : growths_)
    CHECK(growth->parent != own.clique, "an id of it is not used up");
  auto growth = std::make_shared<Growth>();
  growth->id = "growth " + std::to_string(++ids_);
  growth->parent = own.clique;
  growth->old_world = own.clique->world;
  growth->asked_by = own.rank;
  growth->larger->name = growth->id;
  id->bytes.fill(0);
  std::ranges::copy(growth->id, id->bytes.begin());
  growths_[growth->id] = std::move(growth);
  return kSuccess;
}

int FakeLibrary::Grow(Handle handle, int world, const UniqueId* id, int rank, Handle* larger) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  Communicator* const parent = Of(handle);
  std::shared_ptr<Growth> growth;
  if (parent == nullptr) {
    CHECK(id != nullptr && growths_.contains(id->bytes.data()), "an id that is used up, or of another kind");
    growth = growths_[id->bytes.data()];
    CHECK(rank >= growth->old_world && rank < world, "rank {} is no newcomer's", rank);
  } else {
    CHECK(communicators_.contains(parent) && rank == -1, "old members keep their ranks");
    CHECK(!parent->revoked && parent->batches.empty() && parent->clique->operations.empty(), "not at rest");
    for (const auto& [name, one] : growths_)
      if (one->parent == parent->clique) growth = one;
    CHECK(growth != nullptr, "no id was requested");
    CHECK((id != nullptr) == (parent->rank == growth->asked_by), "only who asked for the id has it");
    CHECK(id == nullptr || growth->id == id->bytes.data(), "the id of another one");
    rank = parent->rank;
  }
  CHECK(world > growth->old_world && growth->come.insert(rank).second, "rank {} comes again", rank);
  if (faults_.failing_growth == rank) return kInternalError;
  Clique& clique = *growth->larger;
  clique.world = world;
  if (++clique.joined == world) growths_.erase(growth->id);
  ++grows_;
  auto made = std::make_unique<Communicator>();
  made->clique = growth->larger;
  made->growth = growth;
  made->parent = parent;
  made->rank = rank;
  made->slow = faults_.slow_results;
  *larger = reinterpret_cast<Handle>(made.get());
  communicators_[made.get()] = std::move(made);
  return kSuccess;  // polling the new communicator reports that it is in progress
}

// REQUIRES: the lock is held. The smaller communicator is created, or given up with its parent.
void FakeLibrary::Name(Communicator* parent, int state) {
  parent->smaller->state = state;
  *parent->promised = reinterpret_cast<Handle>(parent->smaller);
  parent->smaller = nullptr;
}

bool FakeLibrary::Growing(const Communicator& own) const {
  return own.growth != nullptr && (own.clique->joined < own.clique->world || faults_.growth_stalls);
}

int FakeLibrary::Abort(Handle handle) {
  std::unique_lock lock(mutex_);
  if (Fails()) return faults_.failure;
  if (faults_.abort_hangs) released_.wait(lock, [this] { return let_go_; });
  const Communicator& own = *Of(handle);
  // Ranks of the old communicator meet over it, where an abort of the new one has no effect. After a Release
  // the old one may be freed already.
  if (!let_go_ && Growing(own) && own.parent != nullptr && !own.parent->revoked)
    released_.wait(lock, [this] { return let_go_; });
  for (const auto& [one, owned] : communicators_)
    CHECK(one->parent != &own || !Growing(*one) || let_go_, "freed under the one that grows from it");
  if (own.smaller != nullptr) Name(Of(handle), kInternalError);
  for (auto& [number, ranks] : Of(handle)->clique->operations)
    for (auto& [rank, operation] : ranks)
      if (operation.owner == Of(handle) && operation.pending != nullptr) {
        --*operation.pending;
        operation.pending = nullptr;
        operation.owner = nullptr;
      }
  Drop(Of(handle));
  CHECK(communicators_.erase(Of(handle)) == 1, "freed twice");
  return kSuccess;
}

int FakeLibrary::Revoke(Handle handle) {
  std::unique_lock lock(mutex_);
  if (Fails()) return faults_.failure;
  if (faults_.revoke_fails) return kInvalidUsage;
  if (faults_.revoke_hangs) released_.wait(lock, [this] { return let_go_; });
  Communicator& own = *Of(handle);
  own.revoked = true;
  Drop(&own);
  own.state = kSuccess;
  own.slow = faults_.slow_results;
  for (auto& [number, ranks] : own.clique->operations)
    for (auto& [rank, operation] : ranks)
      if (operation.owner == &own && operation.pending != nullptr) {
        --*operation.pending;
        operation.pending = nullptr;
        operation.owner = nullptr;
      }
  return kInProgress;
}

int FakeLibrary::AsyncError(Handle handle, int* result) {
  const std::lock_guard lock(mutex_);
  CHECK(communicators_.contains(Of(handle)), "asked of a communicator that was freed");
  Communicator& own = *Of(handle);
  const Clique* const smaller = own.smaller == nullptr ? nullptr : own.smaller->clique.get();
  if (smaller != nullptr && smaller->joined == smaller->world && !faults_.shrink_stalls) Name(&own, kSuccess);
  if (own.state != kSuccess) {
    *result = own.state;
  } else if (own.smaller != nullptr) {
    *result = kInProgress;
  } else if (own.clique->joined < own.clique->world || Growing(own) || (own.revoked && faults_.never_quiet)) {
    *result = kInProgress;
  } else if (own.slow > 0) {
    --own.slow;
    *result = kInProgress;
  } else {
    *result = kSuccess;
  }
  return kSuccess;
}

int FakeLibrary::Allocate(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte> given(bytes);
  *memory = given.data();
  given_[given.data()] = std::move(given);
  return kSuccess;
}

int FakeLibrary::Free(void* memory) {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, communicator] : communicators_)
    CHECK(!communicator->memory.contains(memory), "memory is freed that a communicator knows");
  CHECK(given_.erase(memory) == 1, "not memory of this library, or freed twice");
  return kSuccess;
}

int FakeLibrary::RegisterMemory(Handle handle, const void* memory) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  CHECK(given_.contains(memory), "only memory of NCCL can be registered");
  Of(handle)->memory.insert(memory);
  ++registered_;
  return kSuccess;
}

int FakeLibrary::GroupStart() {
  CHECK(!group.open, "a group within a group");
  group = {.open = true, .owner = nullptr, .batch = {}};
  return kSuccess;
}

int FakeLibrary::GroupEnd() {
  CHECK(group.open, "the end of no group");
  const std::lock_guard lock(mutex_);
  group.open = false;
  return group.owner == nullptr ? static_cast<int>(kSuccess) : Give(group.owner, std::move(group.batch));
}

int FakeLibrary::Carry(Handle handle, Stream stream, const void* in, void* out, size_t bytes, int peer) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  Communicator& own = *Of(handle);
  CHECK(!own.revoked && peer >= 0 && peer < own.clique->world, "no peer {}", peer);
  int* const pending = &reinterpret_cast<StreamState*>(stream)->pending;
  const FakeMessage message = {in, out, bytes, peer};
  if (!group.open) return Give(&own, {{message}, pending});
  group.owner = &own;
  group.batch.pending = pending;
  group.batch.messages.push_back(message);
  return kSuccess;
}

int FakeLibrary::Give(Communicator* own, FakeBatch batch) {
  ++*batch.pending;
  own->batches.push_back(std::move(batch));
  while (Deliver(*own->clique)) {
  }
  own->slow = faults_.slow_results;
  return own->slow > 0 ? kInProgress : kSuccess;
}

// Matches sends and receives of the oldest batches of all ranks; returns whether there was a match.
bool FakeLibrary::Deliver(const Clique& clique) {
  std::vector<Communicator*> heads;
  for (const auto& [one, owned] : communicators_)
    if (one->clique.get() == &clique && !one->batches.empty()) heads.push_back(one);
  bool any = false;
  for (Communicator* const from : heads)
    for (Communicator* const to : heads)
      for (FakeMessage& sent : from->batches.front().messages) {
        if (sent.in == nullptr || sent.done || sent.peer != to->rank) continue;
        auto& messages = to->batches.front().messages;
        const auto received = std::ranges::find_if(messages, [&](const FakeMessage& one) {
          return one.out != nullptr && !one.done && one.peer == from->rank;
        });
        if (received == messages.end()) continue;
        CHECK(received->bytes == sent.bytes, "{} bytes are sent, {} received", sent.bytes, received->bytes);
        std::memcpy(received->out, sent.in, sent.bytes);
        sent.done = received->done = any = true;
      }
  for (Communicator* const one : heads) {
    if (!std::ranges::all_of(one->batches.front().messages, &FakeMessage::done)) continue;
    --*one->batches.front().pending;
    one->batches.pop_front();
    any = true;
  }
  return any;
}

void FakeLibrary::Drop(Communicator* own) {
  for (const FakeBatch& batch : own->batches) --*batch.pending;
  own->batches.clear();
}

int FakeLibrary::Operate(Handle handle, Stream stream, const std::string& kind, const void* in, void* out,
                         size_t count, int type, int argument) {
  const std::lock_guard lock(mutex_);
  if (Fails()) return faults_.failure;
  Communicator& own = *Of(handle);
  CHECK(!own.revoked, "used after it was revoked");
  int* const pending = &reinterpret_cast<StreamState*>(stream)->pending;
  ++*pending;
  own.clique->operations[own.enqueued++][own.rank] = {kind, in, out, count, type, argument, &own, pending};
  Run(*own.clique);
  own.slow = faults_.slow_results;
  return own.slow > 0 ? kInProgress : kSuccess;
}

// Runs the operations that all ranks have reached.
void FakeLibrary::Run(Clique& clique) {
  while (!clique.operations.empty()) {
    auto& ranks = clique.operations.begin()->second;
    if (static_cast<int>(ranks.size()) < clique.world) return;
    for (const auto& [rank, operation] : ranks)
      if (operation.pending == nullptr) return;  // a rank was stopped: the operation never ends
    const FakeOperation& first = ranks.begin()->second;
    const size_t bytes = first.count * SizeOf(first.type);
    std::vector<char> result;
    if (first.kind == "all-gather") {
      for (const auto& [rank, operation] : ranks)
        result.insert(result.end(), static_cast<const char*>(operation.in),
                      static_cast<const char*>(operation.in) + bytes);
    } else if (first.kind == "broadcast") {
      const auto* const from = static_cast<const char*>(ranks[first.argument].in);
      result.assign(from, from + bytes);
    } else {
      const size_t all = first.kind == "all-reduce" ? 1 : ranks.size();
      const auto* const from = static_cast<const char*>(first.in);
      result.assign(from, from + bytes * all);
      for (auto it = std::next(ranks.begin()); it != ranks.end(); ++it) {
        if (first.type == kInt32) {
          Combine<int32_t>(result.data(), it->second.in, first.count * all, first.argument);
        } else if (first.type == kBfloat16) {
          CHECK(first.argument == kSum, "only sums of bf16 are asked for");
          AddBf16(result.data(), it->second.in, first.count * all);
        } else {
          Combine<float>(result.data(), it->second.in, first.count * all, first.argument);
        }
      }
    }
    const bool shares = first.kind == "reduce-scatter";
    for (auto& [rank, operation] : ranks) {
      const size_t at = shares ? bytes * static_cast<size_t>(rank) : 0;
      std::memcpy(operation.out, result.data() + at, shares ? bytes : result.size());
      --*operation.pending;
    }
    clique.operations.erase(clique.operations.begin());
  }
}

}  // namespace ringmaster::fabric::nccl
