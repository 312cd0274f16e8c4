// SPDX-License-Identifier: Apache-2.0

// XXH3, one block per chunk. The hash is eight accumulators of 64 bits over *stripes* of eight words. Within
// a *round* of sixteen stripes the accumulators are plain sums that depend on no earlier round, so the warps
// of a block take rounds in turn, and the lanes of a warp each add four words and fold their sums. Between
// rounds the accumulators are scrambled: one warp does that for all rounds, from the sums in shared memory.
// Lane i holds accumulator i mod 8. Names of constants and formulas: xxHash 0.8, xxhash.h, XXH3_hashLong_64b
// and the functions that it calls.
#include "worker/compute/cuda/kernels/hash.h"

#include "base/hash.h"
#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"
#include "worker/compute/engine/layout.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr int kHashWarps = 8;
constexpr int kLanes = 8;                       // accumulators
constexpr int kStripes = 16;                    // per round
constexpr int kRoundWords = kStripes * kLanes;  // 1024 bytes
constexpr int kWordsPerLane = kRoundWords / kWarp;
constexpr int kSecretBytes = 192;  // XXH_SECRET_DEFAULT_SIZE
constexpr int kChunkRounds = static_cast<int>(kHashChunkBytes) / (8 * kRoundWords);
constexpr int kBlockRounds = static_cast<int>(engine::kBlock * sizeof(float)) / (8 * kRoundWords);

constexpr uint64_t kPrime32One = 0x9E3779B1U;
constexpr uint64_t kPrime32Two = 0x85EBCA77U;
constexpr uint64_t kPrime32Three = 0xC2B2AE3DU;
constexpr uint64_t kPrime64One = 0x9E3779B185EBCA87U;
constexpr uint64_t kPrime64Two = 0xC2B2AE3D27D4EB4FU;
constexpr uint64_t kPrime64Three = 0x165667B19E3779F9U;
constexpr uint64_t kPrime64Four = 0x85EBCA77C2B2AE63U;
constexpr uint64_t kPrime64Five = 0x27D4EB2F165667C5U;
constexpr uint64_t kPrimeMxOne = 0x165667919E3779F9U;

// XXH3_kSecret as little-endian words. Words that do not begin at a multiple of eight bytes are put together
// from two of these. The table is in device memory, because one within a function would be copied to the
// stack of every thread.
__device__ const uint64_t kSecret[kSecretBytes / 8] = {
    0xbe4ba423396cfeb8U, 0x1cad21f72c81017cU, 0xdb979083e96dd4deU, 0x1f67b3b7a4a44072U, 0x78e5c0cc4ee679cbU,
    0x2172ffcc7dd05a82U, 0x8e2443f7744608b8U, 0x4c263a81e69035e0U, 0xcb00c391bb52283cU, 0xa32e531b8b65d088U,
    0x4ef90da297486471U, 0xd8acdea946ef1938U, 0x3f349ce33f76faa8U, 0x1d4f0bc7c7bbdcf9U, 0x3159b4cd4be0518aU,
    0x647378d9c97e9fc8U, 0xc3ebd33483acc5eaU, 0xeb6313faffa081c5U, 0x49daf0b751dd0d17U, 0x9e68d429265516d3U,
    0xfca1477d58be162bU, 0xce31d07ad1b8f88fU, 0x280416958f3acb45U, 0x7e404bbbcafbd7afU};

__device__ __forceinline__ uint64_t SecretAt(int byte) {
  const int shift = byte % 8 * 8;
  const uint64_t low = kSecret[byte / 8];
  return shift == 0 ? low : low >> shift | kSecret[byte / 8 + 1] << (64 - shift);
}

__device__ const uint64_t kInitialAccumulators[kLanes] = {kPrime32Three, kPrime64One,  kPrime64Two,
                                                          kPrime64Three, kPrime64Four, kPrime32Two,
                                                          kPrime64Five,  kPrime32One};

__device__ __forceinline__ uint64_t ProductOfHalves(uint64_t value) {
  return (value & 0xffffffffU) * (value >> 32);
}

// XXH3_mul128_fold64: the low half of the product of 128 bits, xor its high half.
__device__ __forceinline__ uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  const uint64_t low = (a & 0xffffffffU) * (b & 0xffffffffU);
  const uint64_t cross_a = (a >> 32) * (b & 0xffffffffU);
  const uint64_t cross_b = (a & 0xffffffffU) * (b >> 32);
  const uint64_t middle = (low >> 32) + (cross_a & 0xffffffffU) + cross_b;
  const uint64_t high = (a >> 32) * (b >> 32) + (cross_a >> 32) + (middle >> 32);
  return (middle << 32 | (low & 0xffffffffU)) ^ high;
}

// Adds one word to the sums of a lane: its product for accumulator i, its value for accumulator i ^ 1.
__device__ __forceinline__ void AddWord(uint64_t word, uint64_t key, uint64_t* products, uint64_t* values) {
  *products += ProductOfHalves(word ^ key);
  *values += word;
}

// Returns what all lanes add to accumulator lane mod 8.
__device__ __forceinline__ uint64_t OfAllLanes(uint64_t products, uint64_t values) {
  uint64_t sum = products + __shfl_xor_sync(kAllLanes, values, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 8);
  return sum + __shfl_xor_sync(kAllLanes, sum, 16);
}

__global__ void __launch_bounds__(kWarp* kHashWarps)
    HashChunksKernel(int64_t rounds, const uint64_t* words, uint64_t* hashes) {
  RM_SHARED(uint64_t, sums, kChunkRounds * kLanes);
  const int64_t chunk = blockIdx.x;
  const int64_t first = chunk * kChunkRounds;
  const int count = static_cast<int>(rounds - first < kChunkRounds ? rounds - first : kChunkRounds);
  const auto lane = static_cast<int>(threadIdx.x);
  const int mine = lane % kLanes;

  uint64_t keys[kWordsPerLane];
  RM_UNROLL
  for (int i = 0; i < kWordsPerLane; ++i) {
    const int stripe = i * (kWarp / kLanes) + lane / kLanes;
    keys[i] = kSecret[stripe + mine];  // a stripe consumes eight bytes of the secret
  }
  // The last stripe of a chunk has another key, and no scramble follows it.
  const uint64_t last_key = SecretAt(kSecretBytes - 8 * kLanes - 7 + 8 * mine);
  const bool has_last = lane / kLanes == kWarp / kLanes - 1;
  for (int round = static_cast<int>(threadIdx.y); round < count; round += kHashWarps) {
    const uint64_t* const at = words + (first + round) * kRoundWords + lane;
    uint64_t products = 0;
    uint64_t values = 0;
    RM_UNROLL
    for (int i = 0; i < kWordsPerLane; ++i) {
      const bool last = has_last && round + 1 == count && i == kWordsPerLane - 1;
      AddWord(at[i * kWarp], last ? last_key : keys[i], &products, &values);
    }
    const uint64_t sum = OfAllLanes(products, values);
    if (lane < kLanes) sums[round * kLanes + lane] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0) return;

  const uint64_t scramble = kSecret[kSecretBytes / 8 - kLanes + mine];
  uint64_t accumulator = kInitialAccumulators[mine];
  for (int round = 0; round + 1 < count; ++round) {
    accumulator += sums[round * kLanes + mine];
    accumulator = (accumulator ^ accumulator >> 47 ^ scramble) * kPrime32One;
  }
  accumulator += sums[(count - 1) * kLanes + mine];

  // XXH3_mergeAccs: lane i of the first four folds accumulators 2 i and 2 i + 1.
  const uint64_t keyed = accumulator ^ SecretAt(11 + 8 * mine);
  const uint64_t even = __shfl_sync(kAllLanes, keyed, 2 * (mine % 4));
  const uint64_t odd = __shfl_sync(kAllLanes, keyed, 2 * (mine % 4) + 1);
  uint64_t sum = FoldedProduct(even, odd);
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  uint64_t hash = static_cast<uint64_t>(count) * kRoundWords * 8 * kPrime64One + sum;
  hash = (hash ^ hash >> 37) * kPrimeMxOne;
  if (lane == 0) hashes[chunk] = hash ^ hash >> 32;
}

}  // namespace

void HashChunks(Stream stream, int64_t blocks, const float* values, uint64_t* hashes) {
  const int64_t rounds = blocks * kBlockRounds;
  const int64_t chunks = (rounds + kChunkRounds - 1) / kChunkRounds;
  Launch(HashChunksKernel, static_cast<unsigned>(chunks), dim3(kWarp, kHashWarps), 0, stream, rounds,
         reinterpret_cast<const uint64_t*>(values), hashes);
}

}  // namespace ringmaster::cuda::kernels
