// SPDX-License-Identifier: Apache-2.0

// The emulation of CUDA that a .cu file sees when g++ compiles it: keywords of the language as macros, the
// built-in variables and functions that the kernels use, and Launch. runner.h executes the threads.
//
// Included only by worker/compute/cuda/launch.h. The names are CUDA's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tests/cuda/emulation/capture.h"
#include "tests/cuda/emulation/mma.h"
#include "tests/cuda/emulation/runner.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::ringmaster::cuda::emulation::current_lane->thread)
#define blockIdx (::ringmaster::cuda::emulation::current_lane->block)
#define blockDim (::ringmaster::cuda::emulation::current_lane->block_size)
#define gridDim (::ringmaster::cuda::emulation::current_lane->grid_size)

#define RM_SHARED(Type, name, count)    \
  static constexpr char name##_key = 0; \
  Type* const name =                    \
      static_cast<Type*>(::ringmaster::cuda::emulation::SharedArray(&name##_key, sizeof(Type) * (count)))
#define RM_DYNAMIC_SHARED(Type, name) \
  Type* const name = static_cast<Type*>(::ringmaster::cuda::emulation::DynamicShared())

#define RM_UNROLL

using dim3 = ringmaster::cuda::emulation::Dimensions;

// Sixteen bytes, loaded or stored at once; may alias any type.
struct alignas(16) [[gnu::may_alias]] uint4 {
  uint32_t x, y, z, w;
};

using EmulationPlace = ringmaster::cuda::emulation::CallPlace;

inline void __syncthreads(const EmulationPlace& place = EmulationPlace::current()) {
  ringmaster::cuda::emulation::BlockBarrier(place);
}
inline void __syncwarp(uint32_t mask = 0xffffffffU, const EmulationPlace& place = EmulationPlace::current()) {
  ringmaster::cuda::emulation::WarpBarrier(mask, place);
}

namespace ringmaster::cuda::emulation {

template <class T>
Parcel Pack(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Parcel));
  Parcel parcel;
  std::memcpy(parcel.words.data(), &value, sizeof(T));
  return parcel;
}
template <class T>
T Unpack(const Parcel& parcel) {
  T value;
  std::memcpy(&value, parcel.words.data(), sizeof(T));
  return value;
}

// Returns the value of lane `from` of the mask.
template <class T>
T Shuffle(uint32_t mask, T value, int from, const EmulationPlace& place) {
  Exchange(mask, Pack(value), place);
  if ((mask >> from & 1U) == 0) Fail("a shuffle reads a lane outside its mask");
  return Unpack<T>(ParcelOf(from));
}

// Reduces the values of the lanes of the mask, in order, with fold(sum, value).
template <class T, class R, class Fold>
R OverLanes(uint32_t mask, T value, R start, const EmulationPlace& place, const Fold& fold) {
  Exchange(mask, Pack(value), place);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((mask >> lane & 1U) != 0) start = fold(start, Unpack<T>(ParcelOf(lane)), lane);
  }
  return start;
}

}  // namespace ringmaster::cuda::emulation

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32,
                  const EmulationPlace& place = EmulationPlace::current()) {
  const int lane = ringmaster::cuda::emulation::current_lane->lane;
  const int from = lane ^ lane_mask;
  // A lane of another segment keeps its own value.
  return ringmaster::cuda::emulation::Shuffle(mask, value, from / width == lane / width ? from : lane, place);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                   const EmulationPlace& place = EmulationPlace::current()) {
  const int lane = ringmaster::cuda::emulation::current_lane->lane;
  const int from = lane + static_cast<int>(delta);
  return ringmaster::cuda::emulation::Shuffle(mask, value, from / width == lane / width ? from : lane, place);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32,
                 const EmulationPlace& place = EmulationPlace::current()) {
  const int lane = ringmaster::cuda::emulation::current_lane->lane;
  const int from = lane - static_cast<int>(delta);
  const bool inside = from >= 0 && from / width == lane / width;
  return ringmaster::cuda::emulation::Shuffle(mask, value, inside ? from : lane, place);
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32,
              const EmulationPlace& place = EmulationPlace::current()) {
  const int lane = ringmaster::cuda::emulation::current_lane->lane;
  return ringmaster::cuda::emulation::Shuffle(mask, value, lane / width * width + source % width, place);
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t value,
                                 const EmulationPlace& place = EmulationPlace::current()) {
  return ringmaster::cuda::emulation::OverLanes(
      mask, value, 0U, place,
      [&](uint32_t found, uint32_t other, int lane) { return found | (other == value ? 1U << lane : 0U); });
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate,
                              const EmulationPlace& place = EmulationPlace::current()) {
  return ringmaster::cuda::emulation::OverLanes(
      mask, predicate, 0U, place,
      [](uint32_t found, int other, int lane) { return found | (other != 0 ? 1U << lane : 0U); });
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value,
                                  const EmulationPlace& place = EmulationPlace::current()) {
  return ringmaster::cuda::emulation::OverLanes(
      mask, value, 0U, place, [](uint32_t top, uint32_t other, int) { return std::max(top, other); });
}

// Single operations, rounded to nearest even and never contracted: g++ gets -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline int __float2int_rn(float a) { return static_cast<int>(std::rint(a)); }

inline uint32_t __float_as_uint(float a) { return std::bit_cast<uint32_t>(a); }
inline float __uint_as_float(uint32_t a) { return std::bit_cast<float>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline int __popc(uint32_t a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<uint32_t>(a)); }

namespace ringmaster::cuda {

namespace emulation {

// Stores the source location of the launch, for messages.
struct LaunchGrid {
  // NOLINTBEGIN(google-explicit-constructor): as CUDA's dim3.
  LaunchGrid(unsigned x, const EmulationPlace& at = EmulationPlace::current()) : blocks(x), place(at) {}
  LaunchGrid(const dim3& dimensions, const EmulationPlace& at = EmulationPlace::current())
      : blocks(dimensions), place(at) {}
  // NOLINTEND(google-explicit-constructor)
  dim3 blocks;
  EmulationPlace place;
};

}  // namespace emulation

template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), const emulation::LaunchGrid& grid, dim3 block, size_t shared_bytes,
            Stream stream, const Arguments&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  const Call call{kernel, {static_cast<Parameters>(arguments)...}};
  const emulation::Grid shape{grid.blocks, block, shared_bytes, grid.place};
  emulation::Give(stream, [call, shape] {
    emulation::RunGrid(
        shape,
        [](const void* closure) {
          const auto* const it = static_cast<const Call*>(closure);
          std::apply(it->kernel, it->arguments);
        },
        &call);
  });
}

}  // namespace ringmaster::cuda
