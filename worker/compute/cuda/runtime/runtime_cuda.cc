// SPDX-License-Identifier: Apache-2.0

// The runtime interfaces of this folder, implemented with the CUDA runtime.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/error.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/graph.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {
namespace {

// The error numbers in error.cc.
static_assert(cudaErrorMemoryAllocation == 2 && cudaErrorInsufficientDriver == 35 &&
              cudaErrorNoDevice == 100 && cudaErrorNoKernelImageForDevice == 209 &&
              cudaErrorECCUncorrectable == 214 && cudaErrorIllegalAddress == 700 &&
              cudaErrorLaunchFailure == 719 && cudaErrorUnknown == 999);

// Converts the result of a call. CUDA also keeps it as the thread's last error, where the next wait would
// report it again, so this clears it there. An error that loses the device cannot be cleared.
Status Check(cudaError_t error, std::string_view action) {
  if (error == cudaSuccess) return Ok();
  (void)cudaGetLastError();
  return DeviceError(error, action);
}

// The same for a device in use.
Status CheckWork(cudaError_t error, std::string_view action) {
  if (error == cudaSuccess) return Ok();
  (void)cudaGetLastError();
  return WorkError(error, action);
}

// Converts the result of a wait, and reports the errors of earlier enqueueing calls of this thread.
Status CheckWait(cudaError_t waited) {
  RM_TRY(CheckWork(waited, "waiting for the device"));
  return LastError();
}

// The same for pinning: the memory that is short is the host's.
Status CheckPinning(cudaError_t error, int64_t bytes) {
  const std::string action = fmt::format("pinning {} bytes of host memory", bytes);
  if (error != cudaErrorMemoryAllocation) return Check(error, action);
  (void)cudaGetLastError();
  return Error{Code::kExhausted, action +
                                     ": not available (cudaErrorMemoryAllocation); give the pod more "
                                     "memory, or raise its memlock limit"};
}

// Ignores the result of an enqueueing call: the next wait reports it.
void IgnoreUntilWait(cudaError_t) {}

}  // namespace

Status LastError() { return CheckWork(cudaGetLastError(), "enqueueing work"); }

Status Synchronize(Stream stream) { return CheckWait(cudaStreamSynchronize(stream)); }

Result<OwnedStream> OwnedStream::Create() {
  OwnedStream stream;
  RM_TRY(Check(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "creating a stream"));
  return stream;
}
OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}
OwnedStream::OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

// Empty memory may have a null address (the second moment of SGD), for which CUDA does not define these
// calls.
void CopyToDevice(Stream stream, void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  IgnoreUntilWait(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
}
void CopyToHost(Stream stream, void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return;
  IgnoreUntilWait(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
}
void CopyOnDevice(Stream stream, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  IgnoreUntilWait(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
}
void FillZero(Stream stream, void* device, int64_t bytes) {
  if (bytes == 0) return;
  IgnoreUntilWait(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream));
}

Result<Event> Event::Create() {
  Event event;
  // A waiting thread sleeps, so that network threads and other ranks can use the core.
  RM_TRY(Check(cudaEventCreateWithFlags(&event.event_, cudaEventBlockingSync), "creating an event"));
  return event;
}
Event::~Event() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}
void Event::Record(Stream stream) { IgnoreUntilWait(cudaEventRecord(event_, stream)); }
void Event::Block(Stream stream) const { IgnoreUntilWait(cudaStreamWaitEvent(stream, event_, 0)); }
Status Event::Synchronize() const { return CheckWait(cudaEventSynchronize(event_)); }
Result<bool> Event::Query() const {
  RM_TRY(LastError());  // before "not ready" replaces the error of an enqueueing call
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  RM_TRY(CheckWork(error, "querying an event"));
  return true;
}
Result<double> Event::Elapsed_ms(const Event& from, const Event& to) {
  float milliseconds = 0;
  RM_TRY(Check(cudaEventElapsedTime(&milliseconds, from.event_, to.event_), "measuring a duration"));
  return static_cast<double>(milliseconds);
}

Result<Graph> Graph::Record(Stream stream, const std::function<void()>& enqueue) {
  // Other threads of the process use the device during the capture.
  RM_TRY(Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture"));
  enqueue();
  cudaGraph_t recorded = nullptr;
  RM_TRY(Check(cudaStreamEndCapture(stream, &recorded), "capturing work"));
  Graph graph;
  const cudaError_t error = cudaGraphInstantiate(&graph.graph_, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  RM_TRY(Check(error, "instantiating a graph"));
  return graph;
}
Graph::~Graph() {
  if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
}
Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}
void Graph::Launch(Stream stream) const { IgnoreUntilWait(cudaGraphLaunch(graph_, stream)); }

Result<void*> Allocate(MemoryKind kind, int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<size_t>(bytes);
  if (kind == MemoryKind::kPinned) {
    RM_TRY(CheckPinning(cudaHostAlloc(&memory, size, cudaHostAllocDefault), bytes));
    std::fill_n(static_cast<char*>(memory), bytes, char{0});
    return memory;
  }
  if (const cudaError_t error = cudaMalloc(&memory, size); error != cudaSuccess) {
    const auto left = GetDeviceMemory();
    return Check(error, left.ok() ? fmt::format("allocating {} bytes, {} are free", bytes, left->free_bytes)
                                  : fmt::format("allocating {} bytes", bytes))
        .error();
  }
  // The streams of this program do not wait for the default stream, which cudaMemset uses, so wait here.
  cudaError_t error = cudaMemset(memory, 0, size);
  if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
  if (error != cudaSuccess) {
    (void)cudaFree(memory);
    return Check(error, "zeroing memory").error();
  }
  return memory;
}

bool HostAccessible(MemoryKind kind) { return kind == MemoryKind::kPinned; }

void Release(MemoryKind kind, void* memory) {
  if (memory == nullptr) return;
  if (kind == MemoryKind::kPinned)
    (void)cudaFreeHost(memory);
  else
    (void)cudaFree(memory);
}

Result<PinnedRange> PinnedRange::Create(void* memory, int64_t bytes) {
  RM_TRY(CheckPinning(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault), bytes));
  PinnedRange range;
  range.memory_ = memory;
  return range;
}
PinnedRange::~PinnedRange() {
  if (memory_ != nullptr) (void)cudaHostUnregister(memory_);
}

Result<std::vector<DeviceProperties>> ListDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) {
    (void)cudaGetLastError();
    return std::vector<DeviceProperties>();
  }
  RM_TRY(Check(error, "listing GPUs"));
  int driver = 0;
  int runtime = 0;
  RM_TRY(Check(cudaDriverGetVersion(&driver), "reading the version of the driver"));
  RM_TRY(Check(cudaRuntimeGetVersion(&runtime), "reading the version of the runtime"));
  std::vector<DeviceProperties> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    RM_TRY(
        Check(cudaGetDeviceProperties(&properties, i), fmt::format("reading the properties of GPU {}", i)));
    const auto* const id = reinterpret_cast<const unsigned char*>(properties.uuid.bytes);
    std::string uuid = "GPU-";
    for (int b = 0; b < 16; ++b)
      uuid += fmt::format("{}{:02x}", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", id[b]);
    devices.push_back({.index = i,
                       .name = properties.name,
                       .uuid = uuid,
                       .pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                          properties.pciBusID, properties.pciDeviceID),
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                       .architecture = properties.major * 10 + properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .driver = driver,
                       .runtime = runtime});
  }
  return devices;
}

Result<DeviceProperties> BindDevice(int index) {
  RM_ASSIGN(const auto devices, ListDevices());
  if (index < 0 || index >= static_cast<int>(devices.size()))
    return DeviceError(devices.empty() ? cudaErrorNoDevice : cudaErrorInvalidDevice,
                       fmt::format("selecting GPU {} of {}", index, devices.size()));
  RM_TRY(Check(cudaSetDevice(index), fmt::format("selecting GPU {}", index)));
  const DeviceProperties& device = devices[static_cast<size_t>(index)];
  if (device.architecture < 80)
    return DeviceError(
        cudaErrorNoKernelImageForDevice,
        fmt::format("GPU {} ({}, sm_{}), sm_80 or newer is needed", index, device.name, device.architecture));
  return device;
}

Status UseDevice(int index) {
  return CheckWork(cudaSetDevice(index), fmt::format("selecting GPU {}", index));
}

Result<DeviceMemory> GetDeviceMemory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RM_TRY(Check(cudaMemGetInfo(&free_bytes, &total_bytes), "reading the free memory"));
  return DeviceMemory{.free_bytes = static_cast<int64_t>(free_bytes),
                      .total_bytes = static_cast<int64_t>(total_bytes)};
}

}  // namespace ringmaster::cuda
