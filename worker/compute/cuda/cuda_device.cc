// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "worker/compute/cuda/attention.h"
#include "worker/compute/cuda/collectives.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/kernels/hash.h"
#include "worker/compute/cuda/kernels/numerics.h"
#include "worker/compute/cuda/kernels/optimizer.h"
#include "worker/compute/cuda/models/model.h"
#include "worker/compute/cuda/plan_text.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/numerics/exact.h"
#include "worker/compute/numerics/revision.h"

namespace ringmaster::cuda {
namespace {

template <class T>
int64_t Bytes(std::span<T> span) {
  return static_cast<int64_t>(span.size_bytes());
}

int64_t Blocks(std::span<const int32_t> per_block) { return static_cast<int64_t>(per_block.size()); }

std::string Describe(const DeviceProperties& properties) {
  return fmt::format("{} (sm_{}, {:.1f} GiB, driver for CUDA {}.{})", properties.name,
                     properties.architecture, static_cast<double>(properties.memory_bytes) / (1 << 30),
                     properties.driver / 1000, properties.driver % 1000 / 10);
}

// Two runs that measure may choose different algorithms, and then end with different bits. Without measuring,
// the choice depends on the GPU and the libraries only. PyTorch has the same switch, also off by default:
// torch.backends.cudnn.benchmark.
bool MeasuresAlgorithms() {
  const char* const said = std::getenv("RINGMASTER_MEASURE_ALGORITHMS");
  return said != nullptr && std::string_view(said) == "1";
}

// Returns the folder that stores measured algorithms between runs; empty when the environment names none.
std::string CacheFolder() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/ringmaster";
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/ringmaster";
  return "";
}

class CudaDevice final : public device::Device {
 public:
  explicit CudaDevice(DeviceProperties properties) : properties_(std::move(properties)) {}
  ~CudaDevice() override {
    // Running work uses memory that is freed below.
    for (const OwnedStream* stream : {&compute_, &to_host_, &to_device_}) (void)Synchronize(stream->get());
    collectives_.reset();  // unregisters memory from the transports, after the streams are idle
  }

  Status Start(std::string_view transport) {
    for (OwnedStream* stream : {&compute_, &to_host_, &to_device_}) {
      RM_ASSIGN(*stream, OwnedStream::Create());
    }
    for (Event* event :
         {&final_, &to_host_done_, &to_device_done_, &reduced_, &sync_point_, &foreign_, &enqueued_}) {
      RM_ASSIGN(*event, Event::Create());
    }
    RM_ASSIGN(collectives_, cuda::Collectives::Create(properties_, transport));
    return Ok();
  }

  // What models and optimizers need: a program that only sums gradients does without.
  Status StartModels() {
    const bool measure = MeasuresAlgorithms();
    const std::string folder = CacheFolder();
    // The library's first choice costs less than reading it from a file; the check of attention costs more.
    RM_ASSIGN(gemm_, Gemm::Create({.cache_folder = measure ? folder : "", .measure = measure}));
    RM_ASSIGN(attention_,
              Attention::Create({.cache_folder = measure || folder.empty() ? folder : folder + "/unmeasured",
                                 .measure = measure},
                                properties_));
    RM_ASSIGN(adamw_, Buffer<kernels::AdamWPair>::Create(1));
    RM_ASSIGN(host_adamw_, Pinned<kernels::AdamWPair>::Create(1));
    RM_ASSIGN(sgd_, Buffer<kernels::SgdPair>::Create(1));
    RM_ASSIGN(host_sgd_, Pinned<kernels::SgdPair>::Create(1));
    return Ok();
  }

  std::string Kind() const override { return "cuda"; }
  bool OnHost() const override { return false; }
  std::string Description() const override { return "cuda, " + Describe(properties_); }
  std::string Fingerprint() const override {
    // The plugin is a file apart: it may be of another build than the worker.
    return fmt::format("cuda {} sm_{} CUDA {} numerics={}", properties_.name, properties_.architecture,
                       properties_.runtime, numerics::kRevision);
  }
  std::string Plan() const override {
    return PlanText{.gemm = gemm_->Choices(), .attention = attention_->Choices()}.Text();
  }
  Status AdoptPlan(const std::string& text) override {
    RM_ASSIGN(const PlanText plan, PlanText::Parse(text));
    RM_TRY(attention_->Adopt(plan.attention));
    return gemm_->Adopt(plan.gemm);
  }

  Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config) override {
    return cuda::CreateModel(config, compute_.get(), {*gemm_, *attention_});
  }

  Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) override {
    auto created = collectives_->Allocate(static_cast<int64_t>(bytes));
    if (!created.ok() && created.error().code == Code::kExhausted) return TooSmall(bytes, label);
    if (!created.ok()) return created.error().In(std::string(label));
    allocations_ += fmt::format("{} {:.1f} + ", label, Mib(static_cast<size_t>(created->taken_bytes)));
    return created->memory;
  }

  Result<std::span<std::byte>> AllocateMirror(std::span<std::byte> host, std::string_view label) override {
    auto pinned = PinnedRange::Create(host.data(), Bytes(host));
    if (!pinned.ok()) return pinned.error().In(std::string(label));
    pinned_.push_back(std::move(*pinned));
    return Allocate(host.size(), label);
  }

  Status Upload(std::span<const std::byte> host, std::span<std::byte> memory) override {
    CHECK(host.size() == memory.size());
    cuda::CopyToDevice(compute_.get(), memory.data(), host.data(), Bytes(host));
    return Ok();
  }
  Status Download(std::span<const std::byte> memory, std::span<std::byte> host) override {
    CHECK(host.size() == memory.size());
    cuda::CopyToHost(compute_.get(), host.data(), memory.data(), Bytes(host));
    return Ok();
  }

  Status Copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    CHECK(from.size() == to.size());
    if (from.data() != to.data()) cuda::CopyOnDevice(compute_.get(), to.data(), from.data(), Bytes(from));
    return Ok();
  }

  Status BindThread() override { return UseDevice(properties_.index); }
  Status WaitForStream(device::ForeignStream stream) override {
    foreign_.Record(static_cast<Stream>(stream));
    foreign_.Block(compute_.get());
    return Ok();
  }
  Status LetStreamWait(device::ForeignStream stream) override {
    enqueued_.Record(compute_.get());
    enqueued_.Block(static_cast<Stream>(stream));
    return Ok();
  }

  Status Accumulate(std::span<const float> gradients, std::span<const int32_t> exponents, int quantum_bits,
                    bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima) override {
    const int limbs = numerics::LimbsOf(sums.size(), exponents.size());
    CHECK(gradients.size() <= exponents.size() * engine::kBlock && maxima.size() == exponents.size());
    kernels::Accumulate(compute_.get(), Blocks(exponents), gradients.data(),
                        static_cast<int64_t>(gradients.size()), exponents.data(), quantum_bits, limbs,
                        overwrite, sums.data(), maxima.data());
    return Ok();
  }

  Status Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                double scale, std::span<float> out) override {
    const int limbs = numerics::LimbsOf(sums.size(), exponents.size());
    CHECK(out.size() == exponents.size() * engine::kBlock);
    kernels::Decode(compute_.get(), Blocks(exponents), sums.data(), exponents.data(), quantum_bits, limbs,
                    scale, out.data());
    return Ok();
  }

  Status Add(std::span<const float> gradients, bool overwrite, std::span<float> sums) override {
    CHECK(gradients.size() <= sums.size());
    kernels::AddFloats(compute_.get(), static_cast<int64_t>(gradients.size()), gradients.data(), overwrite,
                       sums.data());
    const std::span<float> missing = sums.subspan(gradients.size());
    if (overwrite) cuda::FillZero(compute_.get(), missing.data(), Bytes(missing));
    return Ok();
  }

  Status Scale(std::span<const float> sums, float factor, std::span<float> out) override {
    CHECK(out.size() == sums.size());
    kernels::ScaleFloats(compute_.get(), static_cast<int64_t>(out.size()), factor, sums.data(), out.data());
    return Ok();
  }

  Status Norm(std::span<const float> values, std::span<double> norm) override {
    const auto count = static_cast<int64_t>(values.size());
    if (norm_scratch_.size() < kernels::NormScratch(count)) {  // first call
      RM_ASSIGN(norm_scratch_, Buffer<double>::Create(kernels::NormScratch(count)));
    }
    kernels::Norm(compute_.get(), count, values.data(), norm.data(), norm_scratch_.get());
    return Ok();
  }

  Status Update(const optimizer::Config& config, const optimizer::StepScalars& scalars,
                const engine::Layout& layout, const optimizer::Slices& slices,
                const device::UpdateCondition& condition, const optimizer::ChunkHashes& hashes) override {
    RM_TRY(MakeRules(layout));
    const kernels::UpdateDecision decision = {.clip_norm = config.clip_norm,
                                              .norm = condition.norm.data(),
                                              .contributors = condition.contributors.data(),
                                              .required_contributors = condition.required_contributors};
    const kernels::Arena arena = {.blocks = rules_.size(),
                                  .rules = rules_.get(),
                                  .gradient = slices.gradient.data(),
                                  .params = slices.params.data(),
                                  .state0 = slices.state0.data(),
                                  .state1 = slices.state1.data(),
                                  .next_params = slices.next_params.data(),
                                  .next_state0 = slices.next_state0.data(),
                                  .next_state1 = slices.next_state1.data()};
    // The pinned scalars may be overwritten: the caller has synchronized since the previous update.
    switch (config.kind) {
      case optimizer::Kind::kSgd:
        *host_sgd_.get() = {optimizer::MakeSgd(config, scalars, false),
                            optimizer::MakeSgd(config, scalars, true)};
        cuda::CopyToDevice(compute_.get(), sgd_.get(), host_sgd_.get(), sgd_.bytes());
        kernels::DecideUpdate(compute_.get(), decision, sgd_.get());
        kernels::Sgd(compute_.get(), sgd_.get(), arena);
        break;
      case optimizer::Kind::kAdamW:
        *host_adamw_.get() = {optimizer::MakeAdamW(config, scalars, false),
                              optimizer::MakeAdamW(config, scalars, true)};
        cuda::CopyToDevice(compute_.get(), adamw_.get(), host_adamw_.get(), adamw_.bytes());
        kernels::DecideUpdate(compute_.get(), decision, adamw_.get());
        kernels::AdamW(compute_.get(), adamw_.get(), arena);
        break;
    }
    RM_TRY(Hash(slices.next_params, hashes.params));
    RM_TRY(Hash(slices.next_state0, hashes.state0));
    return Hash(slices.next_state1, hashes.state1);
  }

  Status Hash(std::span<const float> values, std::span<uint64_t> hashes) override {
    if (hashes.empty()) return Ok();
    CHECK(hashes.size() == HashChunkCount(values.size_bytes()));
    kernels::HashChunks(compute_.get(), static_cast<int64_t>(values.size()) / engine::kBlock, values.data(),
                        hashes.data());
    return Ok();
  }

  Status Sync() override { return Synchronize(compute_.get()); }
  Status RecordSyncPoint() override {
    sync_point_.Record(compute_.get());
    return Ok();
  }
  Status WaitForSyncPoint() override { return sync_point_.Synchronize(); }

  Result<device::Event> RecordEvent() override {
    RM_ASSIGN(const NewEvent event, AddEvent());
    event.event->Record(compute_.get());
    return event.handle;
  }

  Result<device::Event> CopyToHost(std::span<const std::byte> memory, std::span<std::byte> host) override {
    CHECK(host.size() == memory.size());
    RM_ASSIGN(const NewEvent event, AddEvent());
    final_.Record(compute_.get());
    final_.Block(to_host_.get());
    cuda::CopyToHost(to_host_.get(), host.data(), memory.data(), Bytes(host));
    event.event->Record(to_host_.get());
    return event.handle;
  }

  Status SyncEvent(device::Event event) override {
    RM_ASSIGN(const Event* const recorded, FindEvent(event));
    return recorded->Synchronize();
  }

  // Each bucket has its own host memory, so the next one can be reduced during the copy. This thread never
  // waits for the copy: LastError reports a copy that could not be enqueued.
  Status CopyToDevice(std::span<const std::byte> host, std::span<std::byte> memory) override {
    CHECK(host.size() == memory.size());
    cuda::CopyToDevice(to_device_.get(), memory.data(), host.data(), Bytes(host));
    return LastError();
  }

  Status CollectivesWaitEvent(device::Event event) override {
    RM_ASSIGN(const Event* const recorded, FindEvent(event));
    recorded->Block(collectives_->stream());
    return LastError();
  }

  // After a failure some copies to the host may still be running, so the stream of those copies is joined
  // too.
  Status JoinStreams() override {
    if (std::exchange(recorded_, 0) == 0) return Ok();
    const std::pair<Event*, Stream> others[] = {{&to_host_done_, to_host_.get()},
                                                {&to_device_done_, to_device_.get()},
                                                {&reduced_, collectives_->stream()}};
    for (const auto& [event, stream] : others) {
      event->Record(stream);
      event->Block(compute_.get());
    }
    return Ok();
  }

  Result<std::unique_ptr<fabric::AsyncCommunicator>> Collectives(fabric::Communicator* host,
                                                                 const std::atomic<bool>* cancel) override {
    return collectives_->Connect(host, cancel);
  }
  std::string CollectivesTransport() override { return collectives_->Transport(); }

 private:
  struct NewEvent {
    Event* event;
    device::Event handle;
  };
  // Takes the next unused event, creating it the first time.
  Result<NewEvent> AddEvent() {
    const MutexLock lock(mutex_);
    if (recorded_ == events_.size()) {
      RM_ASSIGN(Event event, Event::Create());
      events_.push_back(std::move(event));
    }
    const size_t handle = recorded_++;
    return NewEvent{&events_[handle], handle};
  }

  // Called by the communication thread. Its first call binds that thread to the device.
  Result<const Event*> FindEvent(device::Event event) {
    if (communication_thread_ != std::this_thread::get_id()) {
      RM_TRY(BindThread());
      communication_thread_ = std::this_thread::get_id();
    }
    const MutexLock lock(mutex_);
    return &std::as_const(events_)[event];
  }

  static double Mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

  // Returns the out-of-memory error for an allocation after the model, with the sum of the earlier ones.
  Error TooSmall(size_t bytes, std::string_view label) const {
    const auto left = GetDeviceMemory();
    return {Code::kExhausted,
            fmt::format(
                "the GPU's memory is too small: in addition to the model's activations, {}{} {:.1f} MiB are "
                "needed "
                "and more may follow, {:.1f} of {:.1f} MiB are free; weights, optimizer state, gradients and "
                "their sums are as large as the model: lower its width, layers or vocabulary in "
                "spec.training.model",
                allocations_, label, Mib(bytes), left.ok() ? Mib(static_cast<size_t>(left->free_bytes)) : 0.0,
                Mib(static_cast<size_t>(properties_.memory_bytes)))};
  }

  // Uploads the rules of the arena's blocks with the first update. A device serves one layout.
  Status MakeRules(const engine::Layout& layout) {
    if (rules_.size() > 0) {
      CHECK(rules_.size() * engine::kBlock == layout.elements, "a device serves one layout");
      return Ok();
    }
    const std::vector<kernels::BlockRule> rules = kernels::MakeBlockRules(layout);
    RM_ASSIGN(auto pinned, Pinned<kernels::BlockRule>::Create(static_cast<int64_t>(rules.size())));
    RM_ASSIGN(rules_, Buffer<kernels::BlockRule>::Create(static_cast<int64_t>(rules.size())));
    std::ranges::copy(rules, pinned.get());
    cuda::CopyToDevice(compute_.get(), rules_.get(), pinned.get(), rules_.bytes());
    return Sync();
  }

  const DeviceProperties properties_;
  std::unique_ptr<cuda::Collectives> collectives_;
  OwnedStream compute_;
  OwnedStream to_host_;
  OwnedStream to_device_;
  Event final_;
  Event to_host_done_;
  Event to_device_done_;
  Event reduced_;
  Event sync_point_;
  Event foreign_;   // the work of another stream, for which this one waits
  Event enqueued_;  // and the reverse
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Attention> attention_;
  std::string allocations_;  // earlier allocations for TooSmall, in MiB: "params 474.7 + "
  std::vector<PinnedRange> pinned_;

  Buffer<double> norm_scratch_;
  Buffer<kernels::BlockRule> rules_;
  Buffer<kernels::AdamWPair> adamw_;
  Pinned<kernels::AdamWPair> host_adamw_;
  Buffer<kernels::SgdPair> sgd_;
  Pinned<kernels::SgdPair> host_sgd_;

  Mutex mutex_;
  std::deque<Event> events_ RM_GUARDED_BY(mutex_);  // index: device::Event; reused after JoinStreams
  size_t recorded_ = 0;                             // events since JoinStreams; main thread only
  std::thread::id communication_thread_;            // bound by FindEvent; that thread only
};

}  // namespace

Result<std::string> ProbeDevice(int index) {
  RM_ASSIGN(const std::vector<DeviceProperties> devices, ListDevices());
  if (devices.empty())
    return Error{Code::kUnavailable,
                 "this process sees no GPU (CUDA_VISIBLE_DEVICES, or the container got none)"};
  if (index < 0 || index >= static_cast<int>(devices.size()))
    return Error{Code::kUnavailable,
                 fmt::format("this process sees {} GPUs, and none of number {}", devices.size(), index)};
  return Describe(devices[static_cast<size_t>(index)]);
}

Result<std::unique_ptr<device::Device>> CreateDevice(std::string_view transport) {
  RM_ASSIGN(DeviceProperties properties, BindDevice(0));
  auto created = std::make_unique<CudaDevice>(std::move(properties));
  RM_TRY(created->Start(transport));
  RM_TRY(created->StartModels());
  return std::unique_ptr<device::Device>(std::move(created));
}

Result<std::unique_ptr<device::GradientDevice>> CreateGradientDevice(std::string_view transport, int index) {
  RM_ASSIGN(DeviceProperties properties, BindDevice(index));
  auto created = std::make_unique<CudaDevice>(std::move(properties));
  RM_TRY(created->Start(transport));
  return std::unique_ptr<device::GradientDevice>(std::move(created));
}

}  // namespace ringmaster::cuda
