// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/rng.h"
#include "worker/compute/engine/thread_pool.h"

namespace ringmaster::engine {

namespace {

// Elements that one thread fills at a time: even, as the elements come in pairs.
constexpr size_t kPieceElements = size_t{1} << 18;

// A part of one tensor.
struct Piece {
  size_t tensor = 0;
  size_t first = 0;
  size_t elements = 0;
};

std::vector<Piece> PiecesOf(const Layout& layout) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const auto size = static_cast<size_t>(layout.parameters[i].size);
    for (size_t first = 0; first < size; first += kPieceElements)
      pieces.push_back(Piece{i, first, std::min(kPieceElements, size - first)});
  }
  return pieces;
}

}  // namespace

void FillNormal(uint64_t seed, uint64_t tensor, const Initial& initial, std::span<float> values,
                size_t first) {
  if (initial.deviation == 0) {
    std::fill(values.begin(), values.end(), initial.mean);
    return;
  }
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint64_t bits = KeyedRandom(seed, tensor, (first + i) / 2);
    const double u = (static_cast<double>(bits >> 32) + 1.0) * 0x1.0p-32;  // (0, 1]
    const double angle = static_cast<double>(bits & 0xffffffffu) * 0x1.0p-32 * 2 * std::numbers::pi;
    const double radius = std::sqrt(-2 * portable::Log(u)) * initial.deviation;
    const auto [sine, cosine] = portable::SinCos(angle);
    values[i] = static_cast<float>(initial.mean + radius * cosine);
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(initial.mean + radius * sine);
  }
}

void InitialiseArena(uint64_t seed, const Layout& layout, std::span<const Initial> initial,
                     std::span<float> params, int threads, const std::atomic<bool>* cancel) {
  CHECK(initial.size() == layout.parameters.size());
  CHECK(static_cast<int64_t>(params.size()) == layout.elements);
  std::fill(params.begin(), params.end(), 0.0f);
  const std::vector<Piece> pieces = PiecesOf(layout);
  // A separate pool: the model's belongs to the thread that computes.
  ThreadPool pool(static_cast<int>(std::clamp<size_t>(static_cast<size_t>(threads), 1, pieces.size() + 1)));
  pool.Run(static_cast<int64_t>(pieces.size()), [&](int64_t unit, int) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return;
    const Piece& piece = pieces[static_cast<size_t>(unit)];
    const auto offset = static_cast<size_t>(layout.parameters[piece.tensor].offset);
    FillNormal(seed, piece.tensor, initial[piece.tensor],
               params.subspan(offset + piece.first, piece.elements), piece.first);
  });
}

}  // namespace ringmaster::engine
