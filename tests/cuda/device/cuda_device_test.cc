// SPDX-License-Identifier: Apache-2.0

// The emulated GPU as a device gives the bits of the CPU.
#include "worker/compute/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"
#include "tests/cuda/runtime/cudnn.h"
#include "tests/cuda/runtime/faults.h"
#include "tests/unit/engine/fixtures.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/device/host_device.h"
#include "worker/compute/numerics/exact.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/agree.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/host_device_buffer.h"
#include "worker/trainer/state.h"

namespace ringmaster {
namespace {

using device::Device;
using trainer::HostDeviceBuffer;
using trainer::SpanOf;

engine::Layout Layout() {
  engine::Layout layout;
  layout.parameters = {{"w", {700, 3}, 0, 2100, true}, {"b", {700}, 3072, 700, false}};
  layout.buckets = {{0, 3072}, {3072, 4096}};
  layout.elements = 4096;
  layout.trainable = 2800;
  return layout;
}

// A device with its own fabric.
struct Machine {
  std::unique_ptr<fabric::Fabric> fabric =
      fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}).value();
  std::unique_ptr<Device> device;

  explicit Machine(std::unique_ptr<Device> made) : device(std::move(made)) {}

  template <class T>
  HostDeviceBuffer<T> Make(const std::vector<T>& values) {
    const auto twin =
        HostDeviceBuffer<T>::Create(fabric.get(), device.get(), static_cast<int64_t>(values.size()), "test")
            .value();
    std::ranges::copy(values, twin.host.begin());
    EXPECT_TRUE(twin.Upload(device.get()).ok());
    EXPECT_TRUE(device->Sync().ok());
    return twin;
  }
  template <class T>
  std::vector<T> Read(const HostDeviceBuffer<T>& twin) {
    EXPECT_TRUE(twin.Download(device.get()).ok());
    EXPECT_TRUE(device->Sync().ok());
    return {twin.host.begin(), twin.host.end()};
  }
};

std::vector<float> Normal(size_t count, uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int64_t>(rng.Next()) >> 40) * 1e-6f;
  return values;
}

// The results of all operations of a step, on values of two micro-batches.
struct Step {
  std::vector<int32_t> sums, maxima, wide_sums;
  std::vector<float> float_sums, decoded, wide_decoded, params, state0, state1;
  std::vector<uint64_t> hashes, read_hashes;  // by the update, and of what it wrote
  double norm = 0;
  bool operator==(const Step&) const = default;
};

Step Walk(Machine* on, optimizer::Kind kind) {
  Device& device = *on->device;
  const engine::Layout layout = Layout();
  const auto n = static_cast<size_t>(layout.elements);
  const size_t blocks = n / engine::kBlock;
  const auto first = on->Make(Normal(n, 1));
  const auto second = on->Make(Normal(n, 2));
  const auto exponents = on->Make(std::vector<int32_t>{4, 5, 4, -30});  // the last one overflows
  const auto sums = on->Make(std::vector<int32_t>(n, 77));
  const auto maxima = on->Make(std::vector<int32_t>(blocks, 78));
  EXPECT_TRUE(device.Accumulate(first.device, exponents.device, 24, true, sums.device, maxima.device).ok());
  EXPECT_TRUE(device.Accumulate(second.device, exponents.device, 24, false, sums.device, maxima.device).ok());
  const auto wide = on->Make(std::vector<int32_t>(2 * n, 77));
  EXPECT_TRUE(device.Accumulate(first.device, exponents.device, 24, true, wide.device, maxima.device).ok());
  EXPECT_TRUE(device.Accumulate(second.device, exponents.device, 24, false, wide.device, maxima.device).ok());
  const auto wide_gradient = on->Make(std::vector<float>(n));
  EXPECT_TRUE(device.Decode(wide.device, exponents.device, 24, 1.0 / 3, wide_gradient.device).ok());
  const auto floats = on->Make(std::vector<float>(n, 7));
  EXPECT_TRUE(device.Add(first.device, true, floats.device).ok());
  EXPECT_TRUE(device.Add(second.device, false, floats.device).ok());
  EXPECT_TRUE(device.Scale(floats.device, 0.25f, floats.device).ok());
  const auto gradient = on->Make(std::vector<float>(n));
  EXPECT_TRUE(device.Decode(sums.device, exponents.device, 24, 1.0 / 3, gradient.device).ok());
  const auto norm = on->Make(std::vector<double>{-1});
  EXPECT_TRUE(device.Norm(gradient.device, norm.device).ok());
  const auto params = on->Make(Normal(n, 3));
  const auto state0 = on->Make(Normal(n, 4));
  std::vector<float> squares = Normal(n, 5);
  for (float& value : squares) value *= value;
  const bool adam = kind == optimizer::Kind::kAdamW;
  const auto state1 = adam ? on->Make(squares) : HostDeviceBuffer<float>{};
  const auto next_params = on->Make(std::vector<float>(n, 1));
  const auto next_state0 = on->Make(std::vector<float>(n, 1));
  const auto next_state1 = adam ? on->Make(std::vector<float>(n, 1)) : HostDeviceBuffer<float>{};
  optimizer::Config config;
  config.kind = kind;
  config.weight_decay = 0.1;
  config.clip_norm = 0.01;
  const auto contributors = on->Make(std::vector<int32_t>{2});
  const auto hashes = on->Make(std::vector<uint64_t>(3, 0));  // one chunk per array
  const std::span<uint64_t> state1_hash = hashes.device.subspan(2, adam ? 1 : 0);
  const auto update = [&](int32_t required) {
    EXPECT_TRUE(device
                    .Update(config, {.step = 3, .learning_rate = 1e-2}, layout,
                            {gradient.device, params.device, state0.device, state1.device, next_params.device,
                             next_state0.device, next_state1.device},
                            {norm.device, contributors.device, required},
                            {hashes.device.first(1), hashes.device.subspan(1, 1), state1_hash})
                    .ok());
    EXPECT_TRUE(device.Sync().ok());
  };
  update(3);  // a contributor is missing: nothing is written
  EXPECT_EQ(on->Read(next_params), std::vector<float>(n, 1));
  EXPECT_EQ(on->Read(next_state0), std::vector<float>(n, 1));
  EXPECT_EQ(adam ? on->Read(next_state1) : std::vector<float>(n, 1), std::vector<float>(n, 1));
  update(2);
  Step step;
  step.norm = on->Read(norm)[0];
  EXPECT_GT(step.norm, config.clip_norm);
  step.sums = on->Read(sums);
  step.maxima = on->Read(maxima);
  step.float_sums = on->Read(floats);
  step.decoded = on->Read(gradient);
  step.wide_sums = on->Read(wide);
  step.wide_decoded = on->Read(wide_gradient);
  step.params = on->Read(next_params);
  step.state0 = on->Read(next_state0);
  if (adam) step.state1 = on->Read(next_state1);
  step.hashes = on->Read(hashes);
  EXPECT_TRUE(device.Hash(next_params.device, hashes.device.first(1)).ok());
  EXPECT_TRUE(device.Hash(next_state0.device, hashes.device.subspan(1, 1)).ok());
  EXPECT_TRUE(device.Hash(next_state1.device, state1_hash).ok());
  step.read_hashes = on->Read(hashes);
  EXPECT_EQ(step.hashes, step.read_hashes);
  EXPECT_EQ(step.hashes[0], Hash64(std::as_bytes(std::span(step.params))));
  return step;
}

TEST(Device, StepHasTheBitsOfTheCpu) {
  for (const auto kind : {optimizer::Kind::kAdamW, optimizer::Kind::kSgd}) {
    Machine cpu(device::NewHostDevice(1));
    Machine gpu(cuda::CreateDevice().value());
    EXPECT_TRUE(Walk(&gpu, kind) == Walk(&cpu, kind)) << static_cast<int>(kind);
  }
}

// Two ranks that reduce buckets through the host.
TEST(Device, BucketsAreReducedThroughTheHost) {
  std::vector<std::unique_ptr<Machine>> ranks;
  std::vector<std::string> addresses;
  std::vector<HostDeviceBuffer<int32_t>> sums;
  for (int r = 0; r < 2; ++r) {
    ranks.push_back(std::make_unique<Machine>(cuda::CreateDevice().value()));
    sums.push_back(ranks.back()->Make(std::vector<int32_t>(4096, r + 1)));
    std::ranges::fill(sums.back().host, -1);  // only the values on the device count
    addresses.push_back(ranks.back()->fabric->Address());
  }
  std::vector<std::vector<int32_t>> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Machine& rank = *ranks[static_cast<size_t>(r)];
      const HostDeviceBuffer<int32_t>& data = sums[static_cast<size_t>(r)];
      const auto comm = rank.fabric->Connect({1, r, addresses}).value();
      trainer::CommQueue queue(rank.device.get());
      for (int round = 0; round < 3; ++round) {
        for (const auto& bucket : Layout().buckets) {
          EXPECT_TRUE(queue.Add({comm.get()}, data.Part(bucket.begin, bucket.end)).ok());
        }
        EXPECT_TRUE(queue.Drain().ok());
      }
      results[static_cast<size_t>(r)] = rank.Read(data);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, std::vector<int32_t>(4096, 12));
}

TEST(Device, StateSurvivesCommitAndRollBack) {
  Machine cpu(device::NewHostDevice(1));
  Machine gpu(cuda::CreateDevice().value());
  const auto fill = [](Machine* on) {
    auto state = trainer::TrainState::Create(on->device.get(), on->fabric.get(), Layout(),
                                             optimizer::Kind::kAdamW, true)
                     .value();
    uint64_t seed = 10;
    const auto parts = state->Parts().value();
    for (const auto& part : parts) {
      if (part.type == "f32") std::ranges::copy(Normal(4096, ++seed), SpanOf<float>(part.bytes).begin());
    }
    EXPECT_TRUE(state->Adopt(5, {1, 2}, 0.5).ok());
    // The next image is the current one, halved by the device. Commit, roll back, and commit again.
    EXPECT_TRUE(on->device->Scale(state->current().params, 0.5f, state->next().params).ok());
    EXPECT_TRUE(on->device->Scale(state->current().state0, 0.5f, state->next().state0).ok());
    EXPECT_TRUE(on->device->Scale(state->current().state1, 0.5f, state->next().state1).ok());
    std::vector<uint64_t> hashes;
    const auto note = [&] {
      hashes.push_back(state->ParamsHash().value());
      hashes.push_back(state->OptimizerHash().value());
    };
    note();
    state->Commit();
    note();
    state->RollBack();
    note();
    state->Commit();
    note();
    return hashes;
  };
  const auto hashes = fill(&gpu);
  EXPECT_EQ(hashes, fill(&cpu));
  EXPECT_EQ(hashes[0], hashes[4]);
  EXPECT_NE(hashes[0], hashes[2]);
}

// A worker without a GPU cannot join workers with GPUs; workers with the same kind of GPU can.
TEST(Device, RejectsAnotherKindOfDevice) {
  const auto agree = [](std::unique_ptr<Device> first, std::unique_ptr<Device> second) {
    Machine ranks[] = {Machine(std::move(first)), Machine(std::move(second))};
    const std::vector<std::string> addresses = {ranks[0].fabric->Address(), ranks[1].fabric->Address()};
    Status statuses[2];
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        const auto comm = ranks[r].fabric->Connect({1, r, addresses}).value();
        statuses[r] = trainer::AgreeOnDevice(comm.get(), 0, ranks[r].device.get());
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(statuses[0].ok());
    return statuses[1];
  };
  EXPECT_TRUE(agree(cuda::CreateDevice().value(), cuda::CreateDevice().value()).ok());
  EXPECT_TRUE(agree(device::NewHostDevice(1), device::NewHostDevice(2)).ok());
  const Status refused = agree(cuda::CreateDevice().value(), device::NewHostDevice(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_NE(refused.error().message.find(", the others on cuda Emulated GPU"), std::string::npos)
      << refused.error().message;
}

// A member adopts the choices that another one has measured, or reports why it cannot.
TEST(Device, AttentionIsPartOfThePlan) {
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "", 1), 0);
  const std::string home = testing::TempDir() + "plan-" + std::to_string(::getpid());
  ASSERT_EQ(::setenv("HOME", home.c_str(), 1), 0);
  engine::ModelConfig config = engine::SmallGpt();
  config.heads = 3;
  config.precision = engine::Precision::kBf16;
  const auto make = [&](const cuda::emulation::Cudnn& cudnn) {
    std::filesystem::remove_all(home);  // no device reads the choices of another one
    cuda::emulation::SetCudnn(cudnn);
    auto device = cuda::CreateDevice().value();
    EXPECT_TRUE(device->CreateModel(config).ok());
    return device;
  };
  // Without measuring, the plan does not depend on speed.
  const cuda::emulation::Cudnn fast{.there = true, .forward_saves_ms = 1, .backward_saves_ms = 1};
  EXPECT_EQ(make({.there = true, .forward_saves_ms = -1, .backward_saves_ms = -1})->Plan(),
            make(fast)->Plan());
  ASSERT_EQ(::setenv("RINGMASTER_MEASURE_ALGORITHMS", "1", 1), 0);
  const auto theirs = make(fast);
  const auto slower = make({.there = true, .forward_saves_ms = -1, .backward_saves_ms = -1});
  const auto without = make({});
  EXPECT_NE(slower->Plan(), theirs->Plan());
  EXPECT_EQ(slower->Plan(), without->Plan());
  EXPECT_TRUE(slower->AdoptPlan(theirs->Plan()).ok());
  EXPECT_EQ(slower->Plan(), theirs->Plan());
  const Status refused = without->AdoptPlan(theirs->Plan());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_NE(refused.error().message.find("no libcudnn.so.9"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(theirs->AdoptPlan(without->Plan()).ok()) << "native kernels are always available";
  EXPECT_FALSE(theirs->AdoptPlan("ringmaster product choices 2\n").ok()) << "a plan of an older version";
  cuda::emulation::SetCudnn(cuda::emulation::CudnnOfEnvironment());
  std::filesystem::remove_all(home);
  ASSERT_EQ(::unsetenv("RINGMASTER_MEASURE_ALGORITHMS"), 0);
}

TEST(Device, LostDeviceIsGone) {
  Machine gpu(cuda::CreateDevice().value());
  cuda::emulation::FailAtWait(2, 700);
  EXPECT_TRUE(gpu.device->Sync().ok());
  const Status lost = gpu.device->Sync();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Code::kGone);
  EXPECT_NE(lost.error().message.find("cudaErrorIllegalAddress"), std::string::npos);
  const auto event = gpu.device->RecordEvent();
  const Status waited = event.ok() ? gpu.device->SyncEvent(*event) : event.error();
  EXPECT_EQ(waited.error().code, Code::kGone);
  cuda::emulation::FailAtWait(0, 0);
}

TEST(Device, ProbeReportsWhatIsMissing) {
  cuda::emulation::SetDevices(0);
  EXPECT_NE(cuda::ProbeDevice().error().message.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  cuda::emulation::SetDevices(-1);
  EXPECT_EQ(cuda::ProbeDevice().error().code, Code::kUnavailable);
  cuda::emulation::SetDevices(1);
  EXPECT_NE(cuda::ProbeDevice().value().find("Emulated GPU"), std::string::npos);
}

TEST(ForeignStreams, AreWaitedForAndWait) {
  const auto gpu = cuda::CreateGradientDevice("auto", 0).value();
  const auto program = cuda::OwnedStream::Create().value();
  const auto memory = cuda::Buffer<float>::Create(1).value();
  const auto host = cuda::Pinned<float>::Create(2).value();
  memory.get()[0] = 3;  // the memory of an emulated GPU is ordinary memory
  const std::span<float> first = host.span().first(1);
  const std::span<float> second = host.span().subspan(1);

  ASSERT_TRUE(gpu->BindThread().ok());
  cuda::CopyToHost(program.get(), first.data(), memory.get(), sizeof(float));
  ASSERT_TRUE(gpu->Sync().ok());
  EXPECT_EQ(first[0], 0) << "nothing waits for the other stream yet";
  ASSERT_TRUE(gpu->WaitForStream(program.get()).ok());
  ASSERT_TRUE(gpu->Sync().ok());
  EXPECT_EQ(first[0], 3);

  ASSERT_TRUE(gpu->Download(std::as_bytes(memory.span()), std::as_writable_bytes(second)).ok());
  ASSERT_TRUE(cuda::Synchronize(program.get()).ok());
  EXPECT_EQ(second[0], 0);
  ASSERT_TRUE(gpu->LetStreamWait(program.get()).ok());
  ASSERT_TRUE(cuda::Synchronize(program.get()).ok());
  EXPECT_EQ(second[0], 3);

  EXPECT_TRUE(gpu->WaitForStream(nullptr).ok() && gpu->LetStreamWait(nullptr).ok());
}

TEST(GradientDevice, IsOneOfTheGpusOfThisProcess) {
  cuda::emulation::SetDevices(2);
  EXPECT_TRUE(cuda::CreateGradientDevice("auto", 1).ok());
  EXPECT_NE(cuda::ProbeDevice(2).error().message.find("none of number 2"), std::string::npos);
  cuda::emulation::SetDevices(1);
}

}  // namespace
}  // namespace ringmaster
