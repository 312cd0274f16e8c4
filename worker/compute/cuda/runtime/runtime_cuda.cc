// SPDX-License-Identifier: Apache-2.0

// The runtime's interfaces on CUDA's own.
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

// The numbers that error.cc knows.
static_assert(cudaErrorMemoryAllocation == 2 && cudaErrorInsufficientDriver == 35 &&
              cudaErrorNoDevice == 100 && cudaErrorNoKernelImageForDevice == 209 &&
              cudaErrorECCUncorrectable == 214 && cudaErrorIllegalAddress == 700 &&
              cudaErrorLaunchFailure == 719 && cudaErrorUnknown == 999);

// A failed call also remains as the thread's last error, where the next wait would find it again: what is
// told here is forgotten there. An error that loses the device stays whatever one does.
Status Told(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return Ok();
  (void)cudaGetLastError();
  return DeviceError(error, doing);
}

// Of a device that is at work.
Status ToldAtWork(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return Ok();
  (void)cudaGetLastError();
  return WorkError(error, doing);
}

// What enqueueing calls of this thread have left behind.
Status AfterWait(cudaError_t waited) {
  RM_TRY(ToldAtWork(waited, "waiting for the device"));
  return LastError();
}

// Of memory of the host: what is short then is not the device's.
Status ToldOfPinning(cudaError_t error, int64_t bytes) {
  const std::string doing = fmt::format("pinning {} bytes of host memory", bytes);
  if (error != cudaErrorMemoryAllocation) return Told(error, doing);
  (void)cudaGetLastError();
  return Error{Code::kExhausted, doing +
                                     ": it cannot be had (cudaErrorMemoryAllocation); give the pod more "
                                     "memory, or raise its memlock limit"};
}

// The status of calls whose failure the next wait tells.
void Enqueue(cudaError_t) {}

}  // namespace

Status LastError() { return ToldAtWork(cudaGetLastError(), "giving work to the device"); }

Status Synchronize(Stream stream) { return AfterWait(cudaStreamSynchronize(stream)); }

Result<OwnedStream> OwnedStream::Create() {
  OwnedStream stream;
  RM_TRY(Told(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "making a stream"));
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

// Nothing to copy may have no address (the second moment of SGD), of which CUDA does not say what it does.
void CopyToDevice(Stream stream, void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  Enqueue(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
}
void CopyToHost(Stream stream, void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return;
  Enqueue(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
}
void CopyOnDevice(Stream stream, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  Enqueue(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
}
void FillZero(Stream stream, void* device, int64_t bytes) {
  if (bytes == 0) return;
  Enqueue(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream));
}

Result<Event> Event::Create() {
  Event event;
  // A waiting thread sleeps: the cores belong to the network and to other ranks.
  RM_TRY(Told(cudaEventCreateWithFlags(&event.event_, cudaEventBlockingSync), "making an event"));
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
void Event::Record(Stream stream) { Enqueue(cudaEventRecord(event_, stream)); }
void Event::Block(Stream stream) const { Enqueue(cudaStreamWaitEvent(stream, event_, 0)); }
Status Event::Synchronize() const { return AfterWait(cudaEventSynchronize(event_)); }
Result<bool> Event::Query() const {
  RM_TRY(LastError());  // "not ready" takes the place of what enqueueing has left behind
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  RM_TRY(ToldAtWork(error, "asking the device"));
  return true;
}
Result<double> Event::Elapsed_ms(const Event& from, const Event& to) {
  float milliseconds = 0;
  RM_TRY(Told(cudaEventElapsedTime(&milliseconds, from.event_, to.event_), "measuring"));
  return static_cast<double>(milliseconds);
}

Result<Graph> Graph::Record(Stream stream, const std::function<void()>& enqueue) {
  // Other threads of the process go on using the device meanwhile.
  RM_TRY(Told(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning to record"));
  enqueue();
  cudaGraph_t recorded = nullptr;
  RM_TRY(Told(cudaStreamEndCapture(stream, &recorded), "recording work for the device"));
  Graph graph;
  const cudaError_t error = cudaGraphInstantiate(&graph.graph_, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  RM_TRY(Told(error, "making a graph of recorded work"));
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
void Graph::Launch(Stream stream) const { Enqueue(cudaGraphLaunch(graph_, stream)); }

Result<void*> Allocate(MemoryKind kind, int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<size_t>(bytes);
  if (kind == MemoryKind::kPinned) {
    RM_TRY(ToldOfPinning(cudaHostAlloc(&memory, size, cudaHostAllocDefault), bytes));
    std::fill_n(static_cast<char*>(memory), bytes, char{0});
    return memory;
  }
  if (const cudaError_t error = cudaMalloc(&memory, size); error != cudaSuccess) {
    const auto left = GetDeviceMemory();
    return Told(error, left.ok() ? fmt::format("taking {} bytes, {} are free", bytes, left->free_bytes)
                                 : fmt::format("taking {} bytes", bytes))
        .error();
  }
  // Our streams do not wait for the stream that cudaMemset uses, so this has to be over before they begin.
  cudaError_t error = cudaMemset(memory, 0, size);
  if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
  if (error != cudaSuccess) {
    (void)cudaFree(memory);
    return Told(error, "zeroing memory").error();
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
  RM_TRY(ToldOfPinning(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault), bytes));
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
  RM_TRY(Told(error, "looking for GPUs"));
  int driver = 0;
  int runtime = 0;
  RM_TRY(Told(cudaDriverGetVersion(&driver), "asking for the driver's version"));
  RM_TRY(Told(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version"));
  std::vector<DeviceProperties> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    RM_TRY(Told(cudaGetDeviceProperties(&properties, i), fmt::format("asking GPU {} for its properties", i)));
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
                       fmt::format("choosing GPU {} of {}", index, devices.size()));
  RM_TRY(Told(cudaSetDevice(index), fmt::format("choosing GPU {}", index)));
  const DeviceProperties& device = devices[static_cast<size_t>(index)];
  if (device.architecture < 80)
    return DeviceError(
        cudaErrorNoKernelImageForDevice,
        fmt::format("GPU {} ({}, sm_{}), sm_80 or newer is needed", index, device.name, device.architecture));
  return device;
}

Result<DeviceMemory> GetDeviceMemory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RM_TRY(Told(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the device's memory"));
  return DeviceMemory{.free_bytes = static_cast<int64_t>(free_bytes),
                      .total_bytes = static_cast<int64_t>(total_bytes)};
}

}  // namespace ringmaster::cuda
