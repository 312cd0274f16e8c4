// SPDX-License-Identifier: Apache-2.0

// Products of bfloat16 operands by AMX tiles, with what follows a product done while its sums are still in
// the first-level cache: large results then leave for memory while the next block is computed.
//
// The same arithmetic as MatmulBf16 followed by StorePanel: sums in float, along the depth, in order.
#pragma once

#include <cstdint>

namespace ringmaster::engine::kernels {

inline constexpr int64_t kMostColumns = 512;  // of a product
inline constexpr int64_t kTileRows = 32;      // rows of the first operand are read in groups of so many

// A matrix that will be read soon: brought near while the tiles are busy.
struct PrefetchRegion {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ld = 0;
};

// A slice of the depth of a piece of a product: c = sums + a b, and at the last slice + bias + residual.
struct TileMatmulArgs {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;            // a multiple of kStripDepth
  const uint16_t* a = nullptr;  // [rows to a multiple of kTileRows, depth]; what the last rows hold is unused
  int64_t lda = 0;              //
  const uint16_t* strips = nullptr;  // b in strips of kStripColumns (packed.h), `stride` elements apart
  int64_t stride = 0;
  // Between slices: rows and columns to multiples of kTileRows and kStripColumns. Null when there is but one.
  float* sums = nullptr;
  int64_t lds = 0;
  bool first = true;
  bool last = true;
  const float* bias = nullptr;      // [columns]
  const float* residual = nullptr;  // [rows, columns]
  int64_t ldr = 0;
  bool stream = false;  // c is written past the caches
  float* c = nullptr;
  int64_t ldc = 0;
  PrefetchRegion ahead;
};

using MultiplyTilesFn = void(const TileMatmulArgs& product);

// Whether this CPU has AVX512_BF16 and tiles of bfloat16, and the system lets this process use them.
bool HasTiles();
MultiplyTilesFn MultiplyTiles;

}  // namespace ringmaster::engine::kernels
