// SPDX-License-Identifier: Apache-2.0

// Runs the blocks of a grid on the calling thread: every thread of a block is a fiber, blocks come one after
// another. The half of the emulation that knows no CUDA names; emulation.h has those.
//
// Between two barriers the threads of a block run one after another in an order that the schedule chooses. A
// kernel whose result depends on that order lacks a barrier, so tests run it in several and compare bits.
// Shared memory is filled with NaNs before every block. Errors of the kernel that show by themselves are
// thrown as KernelError: threads of a block (or of a warp's mask) at different barriers, a barrier that some
// threads have left behind, writes behind an array in shared memory or into guard zones (memory.h), limits of
// a launch.
//
// Thread rule: every thread of the host has its own runner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>

namespace ringmaster::cuda::emulation {

inline constexpr int kWarpSize = 32;

struct Dimensions {
  // NOLINTNEXTLINE(google-explicit-constructor): as CUDA's dim3.
  constexpr Dimensions(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x;
  unsigned y;
  unsigned z;
};

enum class Order : uint8_t { kForward, kReverse, kRandom };

// How blocks and threads of launches from this thread take turns, as long as it lives.
class Schedule {
 public:
  explicit Schedule(Order order, uint64_t seed = 0);
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

 private:
  Order order_before_;
  uint64_t seed_before_;
};

// What a lane gives to the others of its warp in one exchange.
struct Parcel {
  std::array<uint32_t, 8> words{};
};

// The thread of the grid that runs now.
struct Lane {
  Dimensions thread;
  Dimensions block;
  Dimensions block_size;
  Dimensions grid_size;
  int lane = 0;
};
extern thread_local constinit const Lane* current_lane;

void BlockBarrier(const std::source_location& place);
void WarpBarrier(uint32_t mask, const std::source_location& place);

// Gives a parcel, waits for the others of the mask, after which theirs can be read until the next exchange.
void Exchange(uint32_t mask, const Parcel& mine, const std::source_location& place);
const Parcel& ParcelOf(int lane);

// Shared memory of the block: one array per `key`, which is the same for all threads; and the launch's.
void* SharedArray(const void* key, size_t bytes);
void* DynamicShared();

// The running thread did something that has no meaning on a GPU. Does not return.
[[noreturn]] void Fail(const std::string& what);

struct Grid {
  Dimensions blocks;
  Dimensions threads;
  size_t shared_bytes = 0;
  std::source_location place;
};
// body(closure) is one thread.
void RunGrid(const Grid& grid, void (*body)(const void* closure), const void* closure);

}  // namespace ringmaster::cuda::emulation
