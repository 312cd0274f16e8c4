// SPDX-License-Identifier: Apache-2.0

// Link: the operations on raw memory that a process group needs, over one rm_group. It splits large
// operations into pieces, so that copies need a bounded amount of memory, and turns errors into exceptions.
//
// Not thread-safe, except Abort: used by the thread of one Lane.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "combine.h"
#include "library.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ringmaster {

// The generation of the group has ended.
struct LinkError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How a tensor is reduced: by the library, or by a Combiner.
struct Reduction {
  size_t element_bytes = 0;
  int native_element = 0;  // rm_element; 0: none
  int native_reduction = 0;
  bool average = false;  // of the native sum
  Combiner combiner = nullptr;
};

class Link {
 public:
  // `transport`: empty: auto. Throws LinkError.
  Link(const Library& library, const std::string& transport, double timeout_seconds) : library_(library) {
    rm_group_options options{};
    options.size = sizeof options;
    options.transport = transport.empty() ? nullptr : transport.c_str();
    options.timeout_seconds = timeout_seconds;
    if (library_.open(&options, &group_) == RM_OK) return;
    const std::string error = library_.error(group_);
    library_.close(group_);
    throw LinkError(error);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { library_.close(group_); }

  // Exchanges addresses through the store, under keys that begin with `prefix`, and connects. `check` throws
  // when the wait shall end. Throws LinkError, and what the store throws.
  void Connect(c10d::Store& store, const std::string& prefix, int rank, int world,
               const std::function<void()>& check) {
    store.set(prefix + std::to_string(rank), std::string(library_.address(group_)));
    std::vector<std::string> addresses;
    for (int r = 0; r < world; ++r) {
      const std::string key = prefix + std::to_string(r);
      // Store::get would hold the connection, which other threads share, while it waits.
      for (auto pause = std::chrono::microseconds(200); !store.check({key});
           pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(20))) {
        check();
        std::this_thread::sleep_for(pause);
      }
      addresses.push_back(store.get_to_str(key));
    }
    std::vector<const char*> pointers;
    for (const std::string& address : addresses) pointers.push_back(address.c_str());
    rank_ = rank;
    world_ = world;
    Check(library_.connect(group_, kGeneration, rank, world, pointers.data()));
  }

  int rank() const { return rank_; }
  int world() const { return world_; }
  // Ends all operations, here and on the other members. Thread-safe.
  void Abort() { library_.abort(group_, kGeneration); }
  // Returns the lowest rank from `first` whose process ran on this host and has ended, or -1. Thread-safe.
  int Lost(int first) const { return library_.lost(group_, first); }

  // In place.
  void AllReduce(char* data, size_t count, const Reduction& by) {
    if (by.native_element != 0) {
      Check(library_.all_reduce(group_, data, count, by.native_element, by.native_reduction));
      if (by.average) Divide(data, count);
      return;
    }
    const auto world = static_cast<size_t>(world_);
    const size_t bytes = by.element_bytes;
    if (count * bytes * world <= kSmallBytes) return GatherAndCombine(data, count, by);
    const size_t piece = kPieceBytes / bytes / world * world;
    for (size_t begin = 0; begin + world <= count; begin += piece) {
      const size_t size = std::min(piece, (count - begin) / world * world);
      ExchangeAndCombine(data + begin * bytes, size, by);
    }
    const size_t rest = count % world;
    if (rest > 0) GatherAndCombine(data + (count - rest) * bytes, rest, by);
  }

  // The data of the other ranks does not change.
  void Reduce(char* data, size_t count, const Reduction& by, int root) {
    const size_t piece = kPieceBytes / by.element_bytes;
    for (size_t begin = 0; begin < count; begin += piece) {
      const size_t size = std::min(piece, count - begin);
      char* at = data + begin * by.element_bytes;
      if (rank_ != root) at = Copy(&in_, at, size * by.element_bytes);
      if (by.native_element == 0) {
        AllReduce(at, size, by);
      } else {
        Check(library_.reduce(group_, at, size, by.native_element, by.native_reduction, root));
        if (by.average && rank_ == root) Divide(at, size);
      }
    }
  }

  // `in[r]` is the share of rank r, of `count` elements; `out` gets the reduction of share `rank`.
  void ReduceScatter(const std::vector<const char*>& in, char* out, size_t count, const Reduction& by) {
    const auto world = static_cast<size_t>(world_);
    const size_t piece = std::max<size_t>(1, kPieceBytes / by.element_bytes / world);
    for (size_t begin = 0; begin < count; begin += piece) {
      const size_t size = std::min(piece, count - begin);
      const size_t bytes = size * by.element_bytes;
      in_.resize(bytes * world);
      for (size_t r = 0; r < world; ++r)
        std::memcpy(in_.data() + r * bytes, in[r] + begin * by.element_bytes, bytes);
      char* const to = out + begin * by.element_bytes;
      if (by.native_element != 0) {
        Check(library_.reduce_scatter(group_, in_.data(), size * world, by.native_element,
                                      by.native_reduction));
        std::memcpy(to, in_.data() + static_cast<size_t>(rank_) * bytes, bytes);
        if (by.average) Divide(to, size);
      } else {
        out_.resize(bytes * world);
        Check(library_.all_to_all(group_, in_.data(), out_.data(), bytes * world));
        by.combiner(to, Shares(out_.data(), bytes), size);
      }
    }
  }

  // `out` is `world` shares of `bytes`.
  void AllGather(const char* in, char* out, size_t bytes) {
    char* const own = out + static_cast<size_t>(rank_) * bytes;
    if (own != in) std::memmove(own, in, bytes);
    Check(library_.all_gather(group_, out, bytes * static_cast<size_t>(world_)));
  }

  void AllGather(const char* in, const std::vector<char*>& out, size_t bytes) {
    const auto world = static_cast<size_t>(world_);
    const size_t piece = std::max<size_t>(1, kPieceBytes / world);
    for (size_t begin = 0; begin < bytes; begin += piece) {
      const size_t size = std::min(piece, bytes - begin);
      out_.resize(size * world);
      AllGather(in + begin, out_.data(), size);
      for (size_t r = 0; r < world; ++r) std::memcpy(out[r] + begin, out_.data() + r * size, size);
    }
  }

  void Broadcast(char* data, size_t bytes, int root) { Check(library_.broadcast(group_, data, bytes, root)); }

  // `out`: of the root only.
  void Gather(const char* in, const std::vector<char*>& out, size_t bytes, int root) {
    if (rank_ != root) return Send(in, bytes, root);
    for (int r = 0; r < world_; ++r) {
      if (r == root)
        std::memmove(out[static_cast<size_t>(r)], in, bytes);
      else
        Receive(out[static_cast<size_t>(r)], bytes, r);
    }
  }

  // `in`: of the root only.
  void Scatter(const std::vector<const char*>& in, char* out, size_t bytes, int root) {
    if (rank_ != root) return Receive(out, bytes, root);
    for (int r = 0; r < world_; ++r) {
      if (r == root)
        std::memmove(out, in[static_cast<size_t>(r)], bytes);
      else
        Send(in[static_cast<size_t>(r)], bytes, r);
    }
  }

  struct Part {
    char* data = nullptr;
    size_t bytes = 0;
  };
  // Sends in[r] to rank r and receives out[r] from it.
  void AllToAll(const std::vector<Part>& in, const std::vector<Part>& out) {
    // The members agree on the algorithm: each sees its own sizes alone.
    const size_t bytes = in[0].bytes;
    bool equal = true;
    for (size_t r = 0; r < in.size(); ++r)
      equal = equal && in[r].bytes == bytes && out[r].bytes == bytes &&
              in[r].data == in[0].data + r * bytes && out[r].data == out[0].data + r * bytes;
    int32_t different = equal ? 0 : 1;
    Check(library_.all_reduce(group_, &different, 1, RM_INT32, RM_MAX));
    if (different == 0) {
      Check(library_.all_to_all(group_, in[0].data, out[0].data, bytes * in.size()));
      return;
    }
    // In round k, ranks a and b with a + b = k (modulo the world) exchange their parts.
    for (int k = 0; k < world_; ++k) {
      const int peer = (k - rank_ + world_) % world_;
      const Part& to = in[static_cast<size_t>(peer)];
      const Part& from = out[static_cast<size_t>(peer)];
      if (peer == rank_) {
        if (to.bytes != from.bytes) throw LinkError("all-to-all: the own part has two sizes");
        std::memmove(from.data, to.data, to.bytes);
      } else if (rank_ < peer) {
        Send(to.data, to.bytes, peer);
        Receive(from.data, from.bytes, peer);
      } else {
        Receive(from.data, from.bytes, peer);
        Send(to.data, to.bytes, peer);
      }
    }
  }

  void Barrier() { Check(library_.barrier(group_)); }

  void Send(const char* data, size_t bytes, int peer) {
    if (bytes > 0) Check(library_.send(group_, data, bytes, peer));
  }
  void Receive(char* data, size_t bytes, int peer) {
    if (bytes > 0) Check(library_.receive(group_, data, bytes, peer));
  }

 private:
  static constexpr uint64_t kGeneration = 1;
  static constexpr size_t kSmallBytes = 64 << 10;  // gathered: latency outweighs the bytes
  static constexpr size_t kPieceBytes = 4 << 20;   // of one operation that needs copies

  void Check(rm_status status) {
    if (status != RM_OK) throw LinkError(library_.error(group_));
  }

  void Divide(char* data, size_t count) const {
    auto* const values = reinterpret_cast<float*>(data);
    const auto world = static_cast<float>(world_);
    for (size_t i = 0; i < count; ++i) values[i] /= world;
  }

  static char* Copy(std::vector<char>* to, const char* data, size_t bytes) {
    to->assign(data, data + bytes);
    return to->data();
  }

  std::vector<const char*> Shares(const char* data, size_t bytes) const {
    std::vector<const char*> shares;
    for (int r = 0; r < world_; ++r) shares.push_back(data + static_cast<size_t>(r) * bytes);
    return shares;
  }

  // Every rank gets the data of all and combines it.
  void GatherAndCombine(char* data, size_t count, const Reduction& by) {
    const size_t bytes = count * by.element_bytes;
    out_.resize(bytes * static_cast<size_t>(world_));
    AllGather(data, out_.data(), bytes);
    by.combiner(data, Shares(out_.data(), bytes), count);
  }

  // Every rank combines a share. REQUIRES: `count` is a multiple of the world.
  void ExchangeAndCombine(char* data, size_t count, const Reduction& by) {
    const size_t share = count / static_cast<size_t>(world_);
    const size_t bytes = share * by.element_bytes;
    out_.resize(bytes * static_cast<size_t>(world_));
    Check(library_.all_to_all(group_, data, out_.data(), bytes * static_cast<size_t>(world_)));
    by.combiner(data + static_cast<size_t>(rank_) * bytes, Shares(out_.data(), bytes), share);
    Check(library_.all_gather(group_, data, bytes * static_cast<size_t>(world_)));
  }

  const Library& library_;
  rm_group* group_ = nullptr;
  int rank_ = 0;
  int world_ = 1;
  std::vector<char> in_;
  std::vector<char> out_;
};

}  // namespace ringmaster
