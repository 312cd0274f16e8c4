// SPDX-License-Identifier: Apache-2.0

// worker/compute/cuda/runtime on the emulated device. Kernels and fills run when they are enqueued, in the
// caller's thread. Copies between host and device are delayed, to detect missing waits: data reaches the
// host only when a thread waits for the copy or for later work of the stream, and the source of a copy to
// the device must not change until then.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/capture.h"
#include "tests/cuda/runtime/cudnn.h"
#include "tests/cuda/runtime/faults.h"
#include "tests/cuda/runtime/heap.h"
#include "tests/cuda/runtime/stream_head.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/error.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/graph.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {
namespace {

constexpr int kNoDriver = 35;
constexpr int kInvalidDevice = 101;
constexpr int kOutOfMemory = 2;

struct EmulatedStream;

// Work that no thread has waited for: a copy, or a wait for another stream.
struct Pending {
  void* host = nullptr;
  uint64_t hash = 0;                 // of data copied to the device
  std::vector<std::byte> data = {};  // data to copy to the host
  bool to_host = false;
  int64_t bytes = 0;
  EmulatedStream* other = nullptr;
  uint64_t position = 0;
};

struct EmulatedStream : emulation::StreamHead {  // first: libraries use only this part
  std::deque<Pending> pending;
  uint64_t taken = 0;  // number of entries removed from the front of `pending`
};

// Guards the pending work of all streams.
std::recursive_mutex pending_mutex;

struct EmulatedEvent {
  std::mutex mutex;
  EmulatedStream* stream = nullptr;
  uint64_t position = 0;  // in the copies of the stream
  uint64_t outside = 0;   // in the work of external libraries
  double spent = 0;       // emulation::Spent at the time of recording
};

EmulatedStream& Of(Stream stream) {
  CHECK(stream != nullptr, "work on a null stream");
  return *reinterpret_cast<EmulatedStream*>(stream);
}
EmulatedEvent& Of(CUevent_st* event) { return *reinterpret_cast<EmulatedEvent*>(event); }

void FinishTo(EmulatedStream& stream, uint64_t position) {
  const std::lock_guard lock(pending_mutex);
  while (stream.taken < position && !stream.pending.empty()) {
    const Pending copy = std::move(stream.pending.front());
    stream.pending.pop_front();
    ++stream.taken;
    if (copy.other != nullptr)
      FinishTo(*copy.other, copy.position);
    else if (copy.to_host)
      std::memcpy(copy.host, copy.data.data(), static_cast<size_t>(copy.bytes));
    else
      CHECK(XXH64(copy.host, static_cast<size_t>(copy.bytes), 0) == copy.hash,
            "{} bytes of host memory changed while they were being copied to the device", copy.bytes);
  }
}

void FinishAll(EmulatedStream& stream) {
  stream.WaitFor(stream.given());
  FinishTo(stream, UINT64_MAX);
}

struct Machine {
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> waits_left{0};
  std::atomic<int> planned{0};
  std::atomic<int> lost{0};  // the error that lost the device
  std::atomic<int> devices{1};
};

Machine& TheMachine() {
  static Machine machine;
  static const bool read = [] {
    if (const char* fault = std::getenv("RINGMASTER_EMULATED_FAULT")) {
      const char* colon = std::strchr(fault, ':');
      CHECK(colon != nullptr, "RINGMASTER_EMULATED_FAULT must be WAIT:ERROR");
      machine.waits_left = std::atoll(fault);
      machine.planned = std::atoi(colon + 1);
    }
    if (const char* devices = std::getenv("RINGMASTER_EMULATED_DEVICES"))
      machine.devices = std::atoi(devices);
    return true;
  }();
  (void)read;
  return machine;
}

// All processes see one GPU by default. With RINGMASTER_EMULATED_GPU_PER_POD each pod has its own GPU, with
// RINGMASTER_EMULATED_INSTANCE_PER_POD its own instance of one.
std::string PodIf(const char* variable) {
  const char* const pod = std::getenv("RINGMASTER_POD");
  return std::getenv(variable) != nullptr && pod != nullptr ? pod : "";
}

// Checks of calls other than enqueueing, which a capturing thread must not make.
Status Healthy(std::string_view doing) {
  CHECK(!emulation::RecordsAny(), "{} during a capture", doing);
  if (const int error = TheMachine().lost) return WorkError(error, doing);
  return Ok();
}

Status AfterWait(std::string_view doing) {
  CHECK(!emulation::RecordsAny(), "{} during a capture", doing);
  Machine& machine = TheMachine();
  ++machine.waits;
  if (machine.waits_left > 0 && --machine.waits_left == 0) {
    const Error error = WorkError(machine.planned, doing);
    if (MustExit(error)) machine.lost = machine.planned.load();
    return error;
  }
  return Healthy(doing);
}

}  // namespace

namespace emulation {

void FailAtWait(int64_t wait, int cuda_error) {
  Machine& machine = TheMachine();
  machine.waits_left = wait;
  machine.planned = cuda_error;
  if (wait == 0) machine.lost = 0;
}

int64_t Waits() { return TheMachine().waits; }

void SetDevices(int count) { TheMachine().devices = count; }

}  // namespace emulation

Result<OwnedStream> OwnedStream::Create() {
  RM_TRY(Healthy("creating a stream"));
  OwnedStream stream;
  stream.stream_ = reinterpret_cast<Stream>(std::make_unique<EmulatedStream>().release());
  return stream;
}
OwnedStream::~OwnedStream() {
  const std::unique_ptr<EmulatedStream> stream(reinterpret_cast<EmulatedStream*>(stream_));
}
OwnedStream::OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

Status LastError() { return Healthy("enqueueing work"); }

Status Synchronize(Stream stream) {
  FinishAll(Of(stream));
  return AfterWait("waiting for the device");
}

void CopyToDevice(Stream stream, void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  CHECK(emulation::InDevice(device, bytes), "{} bytes to copy are not in device memory", bytes);
  CHECK(emulation::InPinned(host, bytes), "{} bytes to copy are not in pinned memory", bytes);
  emulation::Give(stream, [=] {
    std::memcpy(device, host, static_cast<size_t>(bytes));
    EmulatedStream& to = Of(stream);
    const std::lock_guard lock(pending_mutex);
    to.pending.push_back({.host = const_cast<void*>(host),
                          .hash = XXH64(host, static_cast<size_t>(bytes), 0),
                          .bytes = bytes});
  });
}

void CopyToHost(Stream stream, void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return;
  CHECK(emulation::InDevice(device, bytes), "{} bytes to copy are not in device memory", bytes);
  CHECK(emulation::InPinned(host, bytes), "{} bytes to copy are not in pinned memory", bytes);
  emulation::Give(stream, [=] {
    const auto* const from = static_cast<const std::byte*>(device);
    EmulatedStream& of = Of(stream);
    const std::lock_guard lock(pending_mutex);
    of.pending.push_back({.host = host, .data = {from, from + bytes}, .to_host = true, .bytes = bytes});
  });
}

void CopyOnDevice(Stream stream, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  CHECK(emulation::InDevice(to, bytes) && emulation::InDevice(from, bytes),
        "{} bytes to copy are not in device memory", bytes);
  emulation::Give(stream, [=] { std::memmove(to, from, static_cast<size_t>(bytes)); });
}

void FillZero(Stream stream, void* device, int64_t bytes) {
  if (bytes == 0) return;
  CHECK(emulation::InDevice(device, bytes), "{} bytes to fill are not in device memory", bytes);
  emulation::Give(stream, [=] { std::memset(device, 0, static_cast<size_t>(bytes)); });
}

Result<Event> Event::Create() {
  RM_TRY(Healthy("creating an event"));
  Event event;
  event.event_ = reinterpret_cast<CUevent_st*>(std::make_unique<EmulatedEvent>().release());
  return event;
}
Event::~Event() { const std::unique_ptr<EmulatedEvent> event(reinterpret_cast<EmulatedEvent*>(event_)); }
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

void Event::Record(Stream stream) {
  CHECK(!emulation::Records(stream), "an event during a capture");
  EmulatedEvent& event = Of(event_);
  if (stream == nullptr) {  // the legacy default stream of other software, which computes at once here
    const std::lock_guard lock(event.mutex);
    event.stream = nullptr;
    return;
  }
  EmulatedStream& of = Of(stream);
  const std::scoped_lock lock(pending_mutex, event.mutex);
  event.stream = &of;
  event.position = of.taken + of.pending.size();
  event.outside = of.given();
  event.spent = emulation::Spent();
}

// Kernels run when they are enqueued, so the work before the event must be done at that time.
void Event::Block(Stream stream) const {
  CHECK(!emulation::Records(stream), "an event during a capture");
  EmulatedEvent& event = Of(event_);
  std::unique_lock lock(event.mutex);
  EmulatedStream* const waited_for = event.stream;
  const uint64_t position = event.position;
  const uint64_t outside = event.outside;
  lock.unlock();
  if (waited_for == nullptr) return;
  waited_for->WaitFor(outside);
  if (stream == nullptr) return;  // as in Record
  const std::lock_guard pending(pending_mutex);
  Of(stream).pending.push_back({.other = waited_for, .position = position});
}

Status Event::Synchronize() const {
  EmulatedEvent& event = Of(event_);
  std::unique_lock lock(event.mutex);
  EmulatedStream* const stream = event.stream;
  const uint64_t position = event.position;
  const uint64_t outside = event.outside;
  lock.unlock();
  if (stream != nullptr) {
    stream->WaitFor(outside);
    FinishTo(*stream, position);
  }
  return AfterWait("waiting for the device");
}

Result<bool> Event::Query() const {
  RM_TRY(Healthy("querying an event"));
  EmulatedEvent& event = Of(event_);
  const std::lock_guard lock(event.mutex);
  if (event.stream == nullptr) return true;
  if (!event.stream->Reached(event.outside)) return false;
  FinishTo(*event.stream, event.position);
  return true;
}

Result<double> Event::Elapsed_ms(const Event& from, const Event& to) {
  return 1.0 + Of(to.event_).spent - Of(from.event_).spent;
}

Result<Graph> Graph::Record(Stream stream, const std::function<void()>& enqueue) {
  RM_TRY(Healthy("starting a capture"));
  emulation::Recording recording(stream);
  enqueue();
  Graph graph;
  graph.graph_ =
      reinterpret_cast<CUgraphExec_st*>(std::make_unique<emulation::Work>(recording.Take()).release());
  return graph;
}
Graph::~Graph() { const std::unique_ptr<emulation::Work> work(reinterpret_cast<emulation::Work*>(graph_)); }
Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}
void Graph::Launch(Stream stream) const {
  CHECK(graph_ != nullptr && stream != nullptr && !emulation::RecordsAny(), "no graph, or a nested launch");
  for (const auto& work : *reinterpret_cast<const emulation::Work*>(graph_)) work();
}

Result<void*> Allocate(MemoryKind kind, int64_t bytes) {
  RM_TRY(Healthy("allocating memory"));
  void* const memory =
      kind == MemoryKind::kDevice ? emulation::AllocateDevice(bytes) : emulation::AllocatePinned(bytes);
  if (memory == nullptr) {
    const auto use = emulation::UseOfDevice();
    return DeviceError(kOutOfMemory, fmt::format("allocating {} bytes, {} are free", bytes,
                                                 use.total_bytes - use.used_bytes));
  }
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return memory;
}

// With the setting, all memory is host-accessible, so that UCX can transfer gradients between emulated
// devices.
bool HostAccessible(MemoryKind kind) {
  return kind == MemoryKind::kPinned || std::getenv("RINGMASTER_EMULATED_UCX") != nullptr;
}

void Release(MemoryKind, void* memory) { emulation::Free(memory); }

Result<PinnedRange> PinnedRange::Create(void* memory, int64_t bytes) {
  RM_TRY(Healthy("pinning memory"));
  emulation::Pin(memory, bytes);
  PinnedRange range;
  range.memory_ = memory;
  return range;
}
PinnedRange::~PinnedRange() { emulation::Unpin(memory_); }

Result<std::vector<DeviceProperties>> ListDevices() {
  const int count = TheMachine().devices;
  if (count < 0) return DeviceError(kNoDriver, "listing GPUs");
  const std::string gpu = PodIf("RINGMASTER_EMULATED_GPU_PER_POD");
  const std::string instance = PodIf("RINGMASTER_EMULATED_INSTANCE_PER_POD");
  std::vector<DeviceProperties> devices;
  for (int i = 0; i < count; ++i)
    devices.push_back({.index = i,
                       .name = "Emulated GPU",
                       .uuid = fmt::format("GPU-emulated-{}{}-{}", gpu, instance, i),
                       .pci = fmt::format("0000{}:{:02x}:00.0", gpu, i + 1),
                       .memory_bytes = emulation::UseOfDevice().total_bytes,
                       .architecture = 90,
                       .multiprocessors = 4,
                       .driver = 13000,
                       .runtime = 13000});
  return devices;
}

Result<DeviceProperties> BindDevice(int index) {
  RM_ASSIGN(const auto devices, ListDevices());
  if (index < 0 || index >= static_cast<int>(devices.size()))
    return DeviceError(kInvalidDevice, fmt::format("selecting GPU {}", index));
  RM_TRY(Healthy("selecting a GPU"));
  return devices[static_cast<size_t>(index)];
}

Status UseDevice(int index) {
  CHECK(index >= 0 && index < TheMachine().devices, "selecting GPU {}", index);
  return Healthy("selecting a GPU");
}

Result<DeviceMemory> GetDeviceMemory() {
  RM_TRY(Healthy("reading the free memory"));
  const auto use = emulation::UseOfDevice();
  return DeviceMemory{.free_bytes = use.total_bytes - use.used_bytes, .total_bytes = use.total_bytes};
}

}  // namespace ringmaster::cuda
