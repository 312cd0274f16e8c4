// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/fabric/oracle.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"

namespace ringmaster::fabric::testing {
namespace {

int32_t IntAt(uint64_t seed, int rank, size_t i) { return static_cast<int32_t>(KeyedRandom(seed, rank, i)); }

// Values whose sums are exact in every order.
float FloatAt(uint64_t seed, int rank, size_t i) {
  return static_cast<float>(static_cast<int32_t>(KeyedRandom(seed, rank, i) % 8192) - 4096) * 0.25f;
}

Status Differs(const std::string& what, size_t index, double got, double want) {
  return Error{Code::kCorrupt, fmt::format("{}: element {} is {}, must be {}", what, index, got, want)};
}

template <class T>
struct Input {
  uint64_t seed;
  int world;
  T At(int rank, size_t i) const {
    if constexpr (std::is_same_v<T, int32_t>) return IntAt(seed, rank, i);
    if constexpr (std::is_same_v<T, float>) return FloatAt(seed, rank, i);
  }
  T Reduced(ReduceOp op, size_t i) const {
    T result = At(0, i);
    for (int q = 1; q < world; ++q) {
      const T x = At(q, i);
      if (op == ReduceOp::kMax) {
        result = std::max(result, x);
      } else if constexpr (std::is_same_v<T, int32_t>) {
        result = static_cast<int32_t>(static_cast<uint32_t>(result) + static_cast<uint32_t>(x));
      } else {
        result += x;
      }
    }
    return result;
  }
  void Fill(std::span<T> data, int rank) const {
    for (size_t i = 0; i < data.size(); ++i) data[i] = At(rank, i);
  }
};

template <class T>
Status CheckReductions(Communicator& c, size_t elements, uint64_t seed, ReduceOp op, bool all,
                       std::span<std::byte> memory) {
  const Input<T> input{seed, c.world()};
  const std::string name =
      fmt::format("{} {} world {} elements {} seed {} rank {}",
                  sizeof(T) == 4 && std::is_same_v<T, float> ? "float" : "int32",
                  op == ReduceOp::kSum ? "sum" : "max", c.world(), elements, seed, c.rank());
  T* const base = reinterpret_cast<T*>(memory.data());
  const std::span<T> data(base, elements);
  input.Fill(data, c.rank());
  RM_TRY(c.AllReduce(data, op));
  for (size_t i = 0; i < elements; ++i)
    if (data[i] != input.Reduced(op, i))
      return Differs("all-reduce " + name, i, data[i], input.Reduced(op, i));
  if (!all) return Ok();

  const int root = static_cast<int>(seed % c.world());
  input.Fill(data, c.rank());
  RM_TRY(c.Reduce(data, op, root));
  for (size_t i = 0; i < elements && c.rank() == root; ++i)
    if (data[i] != input.Reduced(op, i)) return Differs("reduce " + name, i, data[i], input.Reduced(op, i));

  const std::span<T> shares(base, elements * c.world());
  input.Fill(shares, c.rank());
  RM_TRY(c.ReduceScatter(shares, op));
  for (size_t i = c.rank() * elements; i < (c.rank() + 1) * elements; ++i)
    if (shares[i] != input.Reduced(op, i))
      return Differs("reduce-scatter " + name, i, shares[i], input.Reduced(op, i));
  return Ok();
}

Status CheckMoves(Communicator& c, size_t elements, uint64_t seed, std::span<std::byte> memory) {
  const Input<int32_t> input{seed, c.world()};
  const std::string name =
      fmt::format("world {} elements {} seed {} rank {}", c.world(), elements, seed, c.rank());
  auto* const base = reinterpret_cast<int32_t*>(memory.data());
  const size_t total = elements * c.world();
  const std::span<int32_t> in(base, total);
  const std::span<int32_t> out(base + total, total);

  std::fill(in.begin(), in.end(), -1);
  for (size_t i = 0; i < elements; ++i) in[c.rank() * elements + i] = input.At(c.rank(), i);
  RM_TRY(c.AllGather(std::as_writable_bytes(in)));
  for (int q = 0; q < c.world(); ++q)
    for (size_t i = 0; i < elements; ++i)
      if (in[q * elements + i] != input.At(q, i))
        return Differs("all-gather " + name, q * elements + i, in[q * elements + i], input.At(q, i));

  const int root = static_cast<int>(seed % c.world());
  input.Fill(out, c.rank());
  RM_TRY(c.Broadcast(std::as_writable_bytes(out), root));
  for (size_t i = 0; i < total; ++i)
    if (out[i] != input.At(root, i)) return Differs("broadcast " + name, i, out[i], input.At(root, i));

  input.Fill(in, c.rank());
  std::fill(out.begin(), out.end(), -1);
  RM_TRY(c.AllToAll(std::as_bytes(in), std::as_writable_bytes(out)));
  for (int q = 0; q < c.world(); ++q)
    for (size_t i = 0; i < elements; ++i)
      if (out[q * elements + i] != input.At(q, c.rank() * elements + i))
        return Differs("all-to-all " + name, q * elements + i, out[q * elements + i],
                       input.At(q, c.rank() * elements + i));

  // From the first rank to the last, and back.
  if (c.world() > 1) {
    const int last = c.world() - 1;
    if (c.rank() == 0) {
      input.Fill(in, 0);
      RM_TRY(c.Send(std::as_bytes(in), last));
      RM_TRY(c.Receive(std::as_writable_bytes(out), last));
    } else if (c.rank() == last) {
      RM_TRY(c.Receive(std::as_writable_bytes(out), 0));
      input.Fill(in, last);
      RM_TRY(c.Send(std::as_bytes(in), 0));
    }
    if (c.rank() == 0 || c.rank() == last) {
      const int from = last - c.rank();
      for (size_t i = 0; i < total; ++i)
        if (out[i] != input.At(from, i)) return Differs("send " + name, i, out[i], input.At(from, i));
    }
  }
  return c.Barrier();
}

}  // namespace

Status CheckAllReduce(Communicator& c, size_t elements, uint64_t seed, std::span<std::byte> memory) {
  CHECK(memory.size() >= elements * 4);
  RM_TRY(CheckReductions<int32_t>(c, elements, seed, ReduceOp::kSum, false, memory));
  return CheckReductions<float>(c, elements, seed, ReduceOp::kSum, false, memory);
}

Status CheckAll(Communicator& c, size_t elements, uint64_t seed, std::span<std::byte> memory) {
  CHECK(memory.size() >= 2 * elements * c.world() * 4);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    RM_TRY(CheckReductions<int32_t>(c, elements, seed, op, true, memory));
    RM_TRY(CheckReductions<float>(c, elements, seed, op, true, memory));
  }
  return CheckMoves(c, elements, seed, memory);
}

}  // namespace ringmaster::fabric::testing
