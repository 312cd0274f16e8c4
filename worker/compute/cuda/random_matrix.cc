// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/random_matrix.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"

namespace ringmaster::cuda {

Result<Buffer<std::byte>> RandomMatrix(Stream stream, DType type, int64_t elements, uint64_t seed) {
  constexpr int64_t kPattern = 1'000'003;  // elements; a prime, so that rows differ
  RM_ASSIGN(auto matrix, Buffer<std::byte>::Create(elements * BytesOf(type)));
  const int64_t count = std::min(elements, kPattern);
  RM_ASSIGN(auto host, Pinned<std::byte>::Create(count * BytesOf(type)));
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(KeyedRandom(seed, 0, static_cast<uint64_t>(i)) >> 32);
    const float value = static_cast<float>(bits) * 0x1.0p-31f - 1.0f;
    if (type == DType::kFloat) {
      std::memcpy(host.get() + i * 4, &value, 4);
    } else {
      const uint16_t upper = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
      std::memcpy(host.get() + i * 2, &upper, 2);
    }
  }
  for (int64_t at = 0; at < elements; at += count)
    CopyToDevice(stream, matrix.get() + at * BytesOf(type), host.get(),
                 std::min(count, elements - at) * BytesOf(type));
  RM_TRY(Synchronize(stream));
  return matrix;
}

}  // namespace ringmaster::cuda
