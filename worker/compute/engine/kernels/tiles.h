// SPDX-License-Identifier: Apache-2.0

// Matrix product of bfloat16 operands with AMX tiles. The epilogue runs while the sums are in the first-level
// cache, so that stores of large results overlap with the next block.
//
// The arithmetic is that of MatmulBf16 followed by StorePanel: float sums in the order of the depth.
#pragma once

#include <cstdint>

namespace ringmaster::engine::kernels {

inline constexpr int64_t kMostColumns = 512;  // of one call
inline constexpr int64_t kTileRows = 32;      // rows of a are read in groups of this size

// A matrix that is read soon; it is prefetched while the tiles compute. Shape: (rows, columns).
struct PrefetchRegion {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ld = 0;
};

// One slice of the depth of a block of the product: sums += a b; the last slice writes c = sums + bias +
// residual.
struct TileMatmulArgs {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;            // a multiple of kStripDepth
  const uint16_t* a = nullptr;  // (rows rounded up to kTileRows, depth); padding rows are ignored
  int64_t lda = 0;
  const uint16_t* strips = nullptr;  // b, packed (packed_matrix.h)
  int64_t stride = 0;                // elements between strips
  // Partial sums between slices: (rows rounded up to kTileRows, columns rounded up to kStripColumns). Null
  // when there is only one slice.
  float* sums = nullptr;
  int64_t lds = 0;
  bool first = true;
  bool last = true;
  const float* bias = nullptr;      // (columns)
  const float* residual = nullptr;  // (rows, columns)
  int64_t ldr = 0;
  bool stream = false;  // write c with non-temporal stores
  float* c = nullptr;   // (rows, columns)
  int64_t ldc = 0;
  PrefetchRegion ahead;
};

using MultiplyTilesFn = void(const TileMatmulArgs& args);

// Returns whether this CPU has AVX512_BF16 and AMX-BF16, and requests the permission of the operating
// system to use them.
bool HasTiles();
MultiplyTilesFn MultiplyTiles;

}  // namespace ringmaster::engine::kernels
