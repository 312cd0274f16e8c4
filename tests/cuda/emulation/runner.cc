// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/emulation/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/subnormals.h"
#include "tests/cuda/emulation/error.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/sanitizer_fiber.h"

namespace ringmaster::cuda::emulation {

thread_local constinit const Lane* current_lane = nullptr;

namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kStaticBytes = 48 * 1024;    // CUDA's limit for static arrays
constexpr size_t kDefaultLimit = 48 * 1024;   // for all arrays together, unless Launch raised the limit
constexpr size_t kDynamicBytes = 227 * 1024;  // sm_90; Launch raises the limit beyond 48 KiB
constexpr size_t kSharedGuard = 64;
constexpr int kSharedPattern = 0xff;

thread_local constinit Order order_now = Order::kForward;
thread_local constinit uint64_t seed_now = 0;

std::string Where(const CallPlace& place) {
  std::string file = place.file_name();
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), place.line());
}

class Runner;

// A stack that runs the threads of a block, one after the other.
struct Worker {
  boost::context::fiber fiber;
  boost::context::fiber scheduler;
  SanitizerFiber sanitizer;
};

enum class State : uint8_t { kNew, kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct Thread {
  Lane lane;
  State state = State::kNew;
  uint32_t mask = 0;                // lanes of the warp barrier
  CallPlace place;                  // source location of the barrier
  std::array<Parcel, 2> parcels{};  // the published one, and the one being written
  int visible = 0;
  int written = 0;
  Worker* worker = nullptr;
};

struct Array {
  const void* key;
  size_t begin;
  size_t bytes;
};

// Thrown in a thread of a block whose grid is aborted.
struct Abandoned {};

class Runner {
 public:
  ~Runner() {
    stopping_ = true;
    for (Worker* const worker : idle_) Switch(*worker);
  }
  static Runner& Get() {
    thread_local Runner runner;
    return runner;
  }

  void Run(const Grid& grid, void (*body)(const void*), const void* closure);

  void Wait(State state, uint32_t mask, const CallPlace& place) {
    Thread& thread = *running_;
    thread.state = state;
    thread.mask = mask;
    thread.place = place;
    Yield(*thread.worker);
  }
  void Give(const Parcel& mine) {
    running_->written = 1 - running_->visible;
    running_->parcels[static_cast<size_t>(running_->written)] = mine;
  }
  const Parcel& Seen(int lane) const {
    const size_t first = static_cast<size_t>(running_ - threads_.data()) / kWarpSize * kWarpSize;
    const Thread& other = threads_[first + static_cast<size_t>(lane)];
    return other.parcels[static_cast<size_t>(other.visible)];
  }
  bool HasLane(int lane) const {
    const size_t first = static_cast<size_t>(running_ - threads_.data()) / kWarpSize * kWarpSize;
    return first + static_cast<size_t>(lane) < threads_.size();
  }
  void* Shared(const void* key, size_t bytes);
  void* Dynamic() { return dynamic_; }
  [[noreturn]] void FailHere(const std::string& what) {
    failure_ = what;
    Yield(*running_->worker);
    std::abort();  // a failed thread is never resumed
  }

 private:
  void RunBlock(unsigned block);
  void RunWarp(size_t first, size_t end);
  bool ReleaseWarp(size_t first, size_t end);
  void ReleaseBlock();
  void Resume(Thread& thread);
  Worker* NewWorker();
  void Switch(Worker& worker);
  void Work(Worker& worker);
  void Abandon();
  void Yield(Worker& worker) {
    worker.sanitizer.BeforeLeaving();
    worker.scheduler = std::move(worker.scheduler).resume();
    worker.sanitizer.AfterEntering();
    if (abandoning_) throw Abandoned();
  }
  void CheckShared() const;
  // Returns 0 .. n - 1 in the order of the schedule.
  const std::vector<size_t>& InOrder(size_t n, std::vector<size_t>* memory);
  [[noreturn]] void Throw(const std::string& what) {
    Abandon();
    throw KernelError(fmt::format("kernel launched at {}: {}", Where(grid_.place), what));
  }

  Grid grid_;
  void (*body_)(const void*) = nullptr;
  const void* closure_ = nullptr;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::optional<std::string> failure_;
  bool abandoning_ = false;
  bool stopping_ = false;
  SplitMix64 random_{0};

  std::unique_ptr<std::byte[]> shared_ = std::make_unique<std::byte[]>(kSharedBytes);
  static constexpr size_t kSharedBytes = kStaticBytes + kDynamicBytes + 64 * kSharedGuard;
  std::vector<Array> arrays_;
  size_t shared_end_ = 0;
  std::byte* dynamic_ = nullptr;
  std::vector<size_t> block_order_, warp_order_, lane_order_;
};

const std::vector<size_t>& Runner::InOrder(size_t n, std::vector<size_t>* memory) {
  memory->resize(n);
  std::iota(memory->begin(), memory->end(), size_t{0});
  if (order_now == Order::kReverse) std::reverse(memory->begin(), memory->end());
  if (order_now == Order::kRandom) {
    for (size_t i = n; i > 1; --i) std::swap((*memory)[i - 1], (*memory)[random_.Below(i)]);
  }
  return *memory;
}

Worker* Runner::NewWorker() {
  workers_.push_back(std::make_unique<Worker>());
  Worker* const worker = workers_.back().get();
  FiberStacks stacks(kStackBytes);
  const boost::context::stack_context stack = stacks.allocate();
  worker->sanitizer.SetStack(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
  worker->fiber =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                            stacks, [this, worker](boost::context::fiber&& scheduler) {
                              worker->scheduler = std::move(scheduler);
                              worker->sanitizer.AfterEntering();
                              while (!stopping_) Work(*worker);
                              worker->sanitizer.BeforeLeaving();
                              return std::move(worker->scheduler);
                            });
  return worker;
}

// Runs one thread of a block from start to end on this worker's stack.
void Runner::Work(Worker& worker) {
  try {
    body_(closure_);
  } catch (const Abandoned&) {
    abandoning_ = false;
  }
  running_->state = State::kDone;
  Yield(worker);
}

void Runner::Switch(Worker& worker) {
  worker.sanitizer.BeforeEntering();
  worker.fiber = std::move(worker.fiber).resume();
  worker.sanitizer.AfterLeaving();
}

// Terminates the threads that wait in the kernel.
void Runner::Abandon() {
  failure_.reset();
  for (Thread& thread : threads_) {
    if (thread.worker == nullptr) continue;
    running_ = &thread;
    abandoning_ = true;
    Switch(*thread.worker);
    idle_.push_back(std::exchange(thread.worker, nullptr));
  }
}

void Runner::Resume(Thread& thread) {
  if (thread.worker == nullptr) {
    if (idle_.empty()) idle_.push_back(NewWorker());
    thread.worker = idle_.back();
    idle_.pop_back();
  }
  running_ = &thread;
  current_lane = &thread.lane;
  thread.state = State::kReady;
  Switch(*thread.worker);
  current_lane = nullptr;
  if (failure_) {
    const std::string what = *failure_;
    Throw(what);
  }
  if (thread.state == State::kDone) {
    idle_.push_back(thread.worker);
    thread.worker = nullptr;
  }
}

// Returns true when some threads can continue.
bool Runner::ReleaseWarp(size_t first, size_t end) {
  bool released = false;
  for (size_t i = first; i < end; ++i) {
    const Thread& waiting = threads_[i];
    if (waiting.state != State::kAtWarpBarrier) continue;
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      if ((waiting.mask >> lane & 1U) == 0) continue;
      if (first + lane >= end)
        Throw(fmt::format("{}: the mask names lanes that do not exist", Where(waiting.place)));
      const Thread& other = threads_[first + lane];
      if (other.state != State::kAtWarpBarrier || other.mask != waiting.mask ||
          other.place.line() != waiting.place.line()) {
        Throw(fmt::format("divergent warp: lane {} waits at {}, lane {} {}", i - first, Where(waiting.place),
                          lane,
                          other.state == State::kDone ? "has ended" : "waits at " + Where(other.place)));
      }
    }
    const uint32_t mask = waiting.mask;
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      if ((mask >> lane & 1U) == 0) continue;
      threads_[first + lane].state = State::kReady;
      threads_[first + lane].visible = threads_[first + lane].written;
    }
    released = true;
  }
  return released;
}

// Runs the warp until every thread has ended or waits for the block.
void Runner::RunWarp(size_t first, size_t end) {
  do {
    const std::vector<size_t>& order = InOrder(end - first, &lane_order_);
    for (const size_t i : order) {
      Thread& thread = threads_[first + i];
      if (thread.state == State::kNew || thread.state == State::kReady) Resume(thread);
    }
  } while (ReleaseWarp(first, end));
}

void Runner::ReleaseBlock() {
  const Thread& first = threads_.front();
  for (Thread& thread : threads_) {
    if (thread.state == first.state && thread.place.line() == first.place.line()) continue;
    const auto does = [](const Thread& t) {
      return t.state == State::kDone ? std::string("has ended") : "waits at " + Where(t.place);
    };
    Throw(fmt::format("divergent barrier: thread 0 {}, thread {} {}", does(first), &thread - threads_.data(),
                      does(thread)));
  }
  for (Thread& thread : threads_) thread.state = State::kReady;
}

void* Runner::Shared(const void* key, size_t bytes) {
  for (const Array& array : arrays_) {
    if (array.key == key) return shared_.get() + array.begin;
  }
  size_t fixed = bytes;
  for (const Array& array : arrays_) fixed += array.bytes;
  if (fixed > kStaticBytes) FailHere(fmt::format("{} bytes of static shared arrays", fixed));
  const size_t all = fixed + grid_.shared_bytes;
  if (all > (grid_.shared_bytes > kDefaultLimit ? kDynamicBytes : kDefaultLimit))
    FailHere(fmt::format("{} bytes of shared memory, {} of them dynamic", all, grid_.shared_bytes));
  const size_t begin = shared_end_;
  shared_end_ = (begin + bytes + kSharedGuard + 15) / 16 * 16;
  std::memset(shared_.get() + begin, kSharedPattern, shared_end_ - begin);
  arrays_.push_back({key, begin, bytes});
  return shared_.get() + begin;
}

void Runner::CheckShared() const {
  const auto intact = [&](size_t begin) {
    return std::all_of(shared_.get() + begin, shared_.get() + begin + kSharedGuard,
                       [](std::byte b) { return b == static_cast<std::byte>(kSharedPattern); });
  };
  for (const Array& array : arrays_) {
    if (!intact(array.begin + array.bytes))
      throw KernelError(
          fmt::format("kernel launched at {}: wrote after the end of a shared array of {} bytes",
                      Where(grid_.place), array.bytes));
  }
  if (!intact(grid_.shared_bytes))
    throw KernelError(
        fmt::format("kernel launched at {}: wrote after the end of its {} bytes of shared memory",
                    Where(grid_.place), grid_.shared_bytes));
}

void Runner::RunBlock(unsigned block) {
  const Dimensions at{block % grid_.blocks.x, block / grid_.blocks.x % grid_.blocks.y,
                      block / grid_.blocks.x / grid_.blocks.y};
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].lane.block = at;
    threads_[i].state = State::kNew;
  }
  arrays_.clear();
  dynamic_ = shared_.get();
  shared_end_ = (grid_.shared_bytes + kSharedGuard + 15) / 16 * 16;
  std::memset(dynamic_, kSharedPattern, shared_end_);
  const size_t warps = (threads_.size() + kWarpSize - 1) / kWarpSize;
  while (true) {
    for (const size_t warp : InOrder(warps, &warp_order_)) {
      RunWarp(warp * kWarpSize, std::min(threads_.size(), (warp + 1) * kWarpSize));
    }
    const bool ended = std::all_of(threads_.begin(), threads_.end(),
                                   [](const Thread& thread) { return thread.state == State::kDone; });
    if (ended) break;
    ReleaseBlock();
  }
  CheckShared();
}

void Runner::Run(const Grid& grid, void (*body)(const void*), const void* closure) {
  grid_ = grid;
  body_ = body;
  closure_ = closure;
  const auto count = [](const Dimensions& d) { return uint64_t{d.x} * d.y * d.z; };
  if (count(grid.threads) < 1 || count(grid.threads) > 1024)
    Throw(fmt::format("{} threads in a block", count(grid.threads)));
  if (grid.blocks.x > 0x7fffffffU || grid.blocks.y > 0xffffU || grid.blocks.z > 0xffffU)
    Throw(fmt::format("a grid of {} x {} x {}", grid.blocks.x, grid.blocks.y, grid.blocks.z));
  if (grid.shared_bytes > kDynamicBytes) Throw(fmt::format("{} bytes of shared memory", grid.shared_bytes));
  random_ = SplitMix64(seed_now);
  threads_.assign(count(grid.threads), {});
  for (size_t i = 0; i < threads_.size(); ++i) {
    const auto n = static_cast<unsigned>(i);
    Lane& lane = threads_[i].lane;
    lane.thread = {n % grid.threads.x, n / grid.threads.x % grid.threads.y,
                   n / grid.threads.x / grid.threads.y};
    lane.block_size = grid.threads;
    lane.grid_size = grid.blocks;
    lane.lane = static_cast<int>(i % kWarpSize);
  }
  for (const size_t block : InOrder(count(grid.blocks), &block_order_))
    RunBlock(static_cast<unsigned>(block));
}

}  // namespace

Schedule::Schedule(Order order, uint64_t seed) : order_before_(order_now), seed_before_(seed_now) {
  order_now = order;
  seed_now = seed;
}
Schedule::~Schedule() {
  order_now = order_before_;
  seed_now = seed_before_;
}

void BlockBarrier(const CallPlace& place) { Runner::Get().Wait(State::kAtBlockBarrier, 0, place); }

void WarpBarrier(uint32_t mask, const CallPlace& place) {
  if ((mask >> current_lane->lane & 1U) == 0)
    Fail(Where(place) + ": a lane waits with a mask that excludes it");
  Runner::Get().Wait(State::kAtWarpBarrier, mask, place);
}

void Exchange(uint32_t mask, const Parcel& mine, const CallPlace& place) {
  Runner::Get().Give(mine);
  WarpBarrier(mask, place);
}

const Parcel& ParcelOf(int lane) {
  Runner& runner = Runner::Get();
  if (lane < 0 || lane >= kWarpSize || !runner.HasLane(lane))
    Fail(fmt::format("lane {} does not exist", lane));
  return runner.Seen(lane);
}

void* SharedArray(const void* key, size_t bytes) { return Runner::Get().Shared(key, bytes); }
void* DynamicShared() { return Runner::Get().Dynamic(); }
void Fail(const std::string& what) { Runner::Get().FailHere(what); }

void RunGrid(const Grid& grid, void (*body)(const void* closure), const void* closure) {
  const KeepSubnormals keep;  // as a GPU, whatever the launching thread does; fibers inherit it
  Runner::Get().Run(grid, body, closure);
  CheckGuards(fmt::format("kernel launched at {}", Where(grid.place)).c_str());
}

}  // namespace ringmaster::cuda::emulation
