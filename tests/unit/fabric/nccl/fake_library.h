// SPDX-License-Identifier: Apache-2.0

// A fake NCCL for tests: ranks are threads, GPU memory is host memory, a stream is a queue whose operations
// run once all ranks have enqueued them. It can be slow, fail at any call, and hang.
//
// REQUIRES: one FakeLibrary at a time, since NCCL's functions take no context.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {

struct FakeBatch;

class FakeLibrary {
 public:
  struct Faults {
    int slow_results = 0;               // the number of polls for which a call is still in progress
    std::optional<int> failing_call{};  // this call, counted over all ranks and functions, fails...
    int failure = kSystemError;         // ...with this result
    bool abort_hangs = false;           // until Release
    bool revoke_hangs = false;
    bool revoke_fails = false;
    bool never_quiet = false;  // after a revoke
    bool can_revoke = true;
    bool can_shrink = true;
    bool can_grow = true;
    bool grow_id_fails = false;
    bool grow_id_hangs = false;           // until Release
    std::optional<int> failing_growth{};  // this rank, old or new, cannot be part of a larger communicator
    bool growth_stalls = false;           // it stays in progress
    bool shrink_stalls = false;           // the same
    int version = 22902;
  };

  explicit FakeLibrary(const Faults& faults);
  ~FakeLibrary();

  Api api() const;
  // Returns the stream of a new rank.
  Stream NewStream();
  Result<bool> Idle(Stream stream);
  // Ends all hanging calls.
  void Release();
  // The device of this stream fails from now on.
  void BreakDevice(Stream stream);

  int calls();     // so far, over all ranks
  int shrinks();   // communicators created by shrinking, counted per rank
  int grows();     // communicators created by growing, counted per rank
  int grow_ids();  // ids for growing that were requested
  int alive();     // communicators that were not freed
  int registered();
  int given();  // pieces of memory that were not freed

  // For the functions of the table.
  struct Clique;
  struct Communicator;
  static FakeLibrary* current();
  int InitRank(Handle* handle, int world, const UniqueId& id, int rank);
  int Shrink(Handle handle, const std::vector<int>& excluded, Handle* smaller);
  int GrowId(Handle handle, UniqueId* id);
  int Grow(Handle handle, int world, const UniqueId* id, int rank, Handle* larger);
  int Abort(Handle handle);
  int Revoke(Handle handle);
  int AsyncError(Handle handle, int* result);
  int Operate(Handle handle, Stream stream, const std::string& kind, const void* in, void* out, size_t count,
              int type, int argument);
  int UniqueIdOf(UniqueId* id);
  int Carry(Handle handle, Stream stream, const void* in, void* out, size_t bytes, int peer);
  int RegisterMemory(Handle handle, const void* memory);
  int Allocate(void** memory, size_t bytes);
  int Free(void* memory);
  int GroupStart();
  int GroupEnd();

 private:
  struct StreamState;
  struct Growth;
  bool Fails();  // counts a call
  void Run(Clique& clique);
  // With the lock held.
  int Give(Communicator* own, FakeBatch batch);
  bool Deliver(const Clique& clique);
  static void Drop(Communicator* own);
  static void Name(Communicator* parent, int state);
  bool Growing(const Communicator& own) const;

  const Faults faults_;
  std::mutex mutex_;
  std::condition_variable released_;
  bool let_go_ = false;
  int calls_ = 0;
  int shrinks_ = 0;
  int grows_ = 0;
  int grow_ids_ = 0;
  int registered_ = 0;
  std::map<const void*, std::vector<std::byte>> given_;
  uint64_t ids_ = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques_;
  std::map<std::string, std::shared_ptr<Growth>> growths_;
  std::map<Communicator*, std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<StreamState>> streams_;
};

}  // namespace ringmaster::fabric::nccl
