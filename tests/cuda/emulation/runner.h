// SPDX-License-Identifier: Apache-2.0

// Runs the blocks of a grid on the calling thread, one block after the other; every thread of a block is a
// fiber. This half of the emulation has no CUDA names; emulation.h has them.
//
// Between two barriers the threads of a block run one after the other, in an order that the schedule
// chooses. When the result of a kernel depends on that order, the kernel lacks a barrier; so tests run it in
// several orders and compare the bits. Shared memory is filled with NaNs before every block. The runner
// throws KernelError for errors that it detects: threads of a block (or of a warp's mask) that wait at
// different barriers, a barrier that some threads never reach, writes after the end of a shared array or to
// guard zones (memory.h), and launches beyond the limits of a GPU.
//
// Thread-safe: every host thread has its own runner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ringmaster::cuda::emulation {

inline constexpr int kWarpSize = 32;

// Where a function was called: std::source_location, which clang 14 does not have.
class CallPlace {
 public:
  static constexpr CallPlace current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return CallPlace(file, line);
  }
  constexpr CallPlace() = default;
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr CallPlace(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_ = "";
  unsigned line_ = 0;
};

struct Dimensions {
  // NOLINTNEXTLINE(google-explicit-constructor): as CUDA's dim3.
  constexpr Dimensions(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x;
  unsigned y;
  unsigned z;
};

enum class Order : uint8_t { kForward, kReverse, kRandom };

// Sets the order of blocks and threads for launches from this thread, for the lifetime of the object.
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

// The value that a lane passes to the other lanes of its warp in one exchange.
struct Parcel {
  std::array<uint32_t, 8> words{};
};

// The thread of the grid that is running.
struct Lane {
  Dimensions thread;
  Dimensions block;
  Dimensions block_size;
  Dimensions grid_size;
  int lane = 0;
};
extern thread_local constinit const Lane* current_lane;

void BlockBarrier(const CallPlace& place);
void WarpBarrier(uint32_t mask, const CallPlace& place);

// Publishes a parcel and waits for the other lanes of the mask. Their parcels are readable until the next
// exchange.
void Exchange(uint32_t mask, const Parcel& mine, const CallPlace& place);
const Parcel& ParcelOf(int lane);

// Shared memory of the block: a static array, identified by `key`, the same for all threads; and the dynamic
// array.
void* SharedArray(const void* key, size_t bytes);
void* DynamicShared();

// Reports an operation of the running thread that is undefined on a GPU. Does not return.
[[noreturn]] void Fail(const std::string& what);

struct Grid {
  Dimensions blocks;
  Dimensions threads;
  size_t shared_bytes = 0;
  CallPlace place;
};
// Runs a grid; body(closure) is one thread.
void RunGrid(const Grid& grid, void (*body)(const void* closure), const void* closure);

}  // namespace ringmaster::cuda::emulation
