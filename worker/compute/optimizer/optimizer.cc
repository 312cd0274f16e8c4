// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "base/check.h"
#include "base/hash.h"
#include "base/portable_math.h"
#include "base/subnormals.h"
#include "worker/compute/optimizer/kernels.h"

namespace ringmaster::optimizer {
namespace {

// Below this, starting a thread costs more than it saves.
constexpr int64_t kMinElementsPerThread = int64_t{1} << 19;
constexpr auto kChunk = static_cast<int64_t>(kHashChunkBytes / sizeof(float));
static_assert(kChunk % engine::kBlock == 0);

// One row for each optimizer.
struct KindRow {
  Kind kind;
  std::string_view name;  // of api::Optimizer::kind
  std::array<std::string_view, 2> state;
  size_t arrays;
};
constexpr KindRow kKinds[] = {
    {Kind::kSgd, "sgd", {"sgd.momentum"}, 1},
    {Kind::kAdamW, "adamw", {"adamw.m", "adamw.v"}, 2},
};

void CheckLengths(Kind kind, const Slices& s) {
  const size_t n = s.params.size();
  CHECK(s.gradient.size() == n && s.state0.size() == n && s.next_params.size() == n &&
            s.next_state0.size() == n,
        "slices of unequal length");
  if (StateArrays(kind) == 2) {
    CHECK(s.state1.size() == n && s.next_state1.size() == n, "slices of unequal length");
  }
}

// Returns elements [begin, end) of every array; an empty array stays empty.
Slices Cut(const Slices& s, int64_t begin, int64_t end) {
  const auto from = static_cast<size_t>(begin);
  const auto count = static_cast<size_t>(end - begin);
  const auto cut = [&](auto span) { return span.empty() ? span : span.subspan(from, count); };
  return {cut(s.gradient),    cut(s.params),      cut(s.state0),     cut(s.state1),
          cut(s.next_params), cut(s.next_state0), cut(s.next_state1)};
}

void Zero(const Slices& s) {
  for (const std::span<float> out : {s.next_params, s.next_state0, s.next_state1}) {
    std::fill(out.begin(), out.end(), 0.0F);
  }
}

// Runs one step over [begin, end) of the arena: parameters by their decay flag, zeros between them.
void StepRange(const Config& config, const StepScalars& scalars, const engine::Layout& layout,
               const Slices& slices, int64_t begin, int64_t end) {
  int64_t at = begin;
  auto parameter = std::partition_point(layout.parameters.begin(), layout.parameters.end(),
                                        [&](const auto& p) { return p.offset + p.size <= begin; });
  for (; parameter != layout.parameters.end() && parameter->offset < end; ++parameter) {
    const int64_t from = std::max(at, parameter->offset);
    const int64_t to = std::min(end, parameter->offset + parameter->size);
    if (at < from) Zero(Cut(slices, at, from));
    if (from < to) Step(config, scalars, parameter->decay, Cut(slices, from, to));
    at = std::max(from, to);
  }
  if (at < end) Zero(Cut(slices, at, end));
}

// Stores the hash of elements [begin, end) of each array, which are chunk begin / kChunk.
void HashRange(const Slices& slices, const ChunkHashes& hashes, int64_t begin, int64_t end) {
  const Slices chunk = Cut(slices, begin, end);
  const auto index = static_cast<size_t>(begin / kChunk);
  const auto hash = [&](std::span<const float> values, std::span<uint64_t> to) {
    if (!to.empty()) to[index] = Hash64(std::as_bytes(values));
  };
  hash(chunk.next_params, hashes.params);
  hash(chunk.next_state0, hashes.state0);
  hash(chunk.next_state1, hashes.state1);
}

// Runs one step over [begin, end), chunk by chunk. REQUIRES: `begin` is the begin of a chunk.
void StepChunks(const Config& config, const StepScalars& scalars, const engine::Layout& layout,
                const Slices& slices, const ChunkHashes& hashes, int64_t begin, int64_t end) {
  if (hashes.params.empty()) {
    StepRange(config, scalars, layout, slices, begin, end);
    return;
  }
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t to = std::min(at + kChunk, end);
    StepRange(config, scalars, layout, slices, at, to);
    HashRange(slices, hashes, at, to);
  }
}

}  // namespace

std::optional<Kind> KindNamed(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name) return row.kind;
  return std::nullopt;
}

std::span<const std::string_view> StateNames(Kind kind) {
  for (const KindRow& row : kKinds)
    if (row.kind == kind) return std::span(row.state).first(row.arrays);
  CHECK(false, "optimizer kind {} has no row", static_cast<int>(kind));
  return {};
}

double ClipFactor(double clip_norm, double norm) {
  if (clip_norm <= 0) return 1;
  const double factor = clip_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

SgdScalars MakeSgd(const Config& config, const StepScalars& scalars, bool decay) {
  const KeepSubnormals keep;
  return {.gradient_scale = static_cast<float>(scalars.gradient_scale),
          .weight_decay = decay ? static_cast<float>(config.weight_decay) : 0.0F,
          .momentum = static_cast<float>(config.momentum),
          .negative_rate = static_cast<float>(-scalars.learning_rate)};
}

AdamWScalars MakeAdamW(const Config& config, const StepScalars& scalars, bool decay) {
  const KeepSubnormals keep;
  const double correction1 = 1 - portable::IntegerPower(config.beta1, scalars.step);
  const double correction2 = 1 - portable::IntegerPower(config.beta2, scalars.step);
  return {.gradient_scale = static_cast<float>(scalars.gradient_scale),
          .keep = decay ? static_cast<float>(1 - scalars.learning_rate * config.weight_decay) : 1.0F,
          .one_minus_beta1 = static_cast<float>(1 - config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1 - config.beta2),
          .inverse_root = static_cast<float>(1 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(config.epsilon),
          .negative_size = static_cast<float>(-scalars.learning_rate / correction1)};
}

void Step(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices) {
  CHECK(scalars.step >= 1, "step {}", scalars.step);
  CheckLengths(config.kind, slices);
  const Kernels& kernels = AvailableKernels().front();
  const KeepSubnormals keep;
  switch (config.kind) {
    case Kind::kSgd:
      return kernels.sgd(MakeSgd(config, scalars, decay), slices);
    case Kind::kAdamW:
      return kernels.adamw(MakeAdamW(config, scalars, decay), slices);
  }
}

void StepAll(const Config& config, const StepScalars& scalars, const engine::Layout& layout,
             const Slices& slices, int threads, const ChunkHashes& hashes) {
  CheckLengths(config.kind, slices);
  for (const std::span<uint64_t> of_array : {hashes.params, hashes.state0, hashes.state1}) {
    CHECK(of_array.empty() || of_array.size() == HashChunkCount(slices.params.size_bytes()));
  }
  CHECK(static_cast<int64_t>(slices.params.size()) == layout.elements,
        "the arena has another size than the layout");
  const int64_t pieces =
      std::clamp<int64_t>(layout.elements / kMinElementsPerThread, 1, std::max(1, threads));
  const auto border = [&](int64_t piece) {
    return piece == pieces ? layout.elements : layout.elements / kChunk * piece / pieces * kChunk;
  };
  std::vector<std::thread> helpers;
  for (int64_t piece = 1; piece < pieces; ++piece) {
    helpers.emplace_back([&, piece] {
      StepChunks(config, scalars, layout, slices, hashes, border(piece), border(piece + 1));
    });
  }
  StepChunks(config, scalars, layout, slices, hashes, 0, border(1));
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace ringmaster::optimizer
