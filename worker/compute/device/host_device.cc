// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/host_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/compute/device/host_gradient_device.h"
#include "worker/compute/engine/kernels/isa.h"
#include "worker/compute/engine/kernels/matmul_bf16.h"

namespace ringmaster::device {
namespace {

// Below this, starting a thread costs more than it saves.
constexpr size_t kMinChunksPerThread = 64;

class HostDevice final : public HostGradientDevice<Device> {
 public:
  explicit HostDevice(int threads) : threads_(threads) {}

  std::string Description() const override { return fmt::format("cpu, {} threads", threads_); }
  // Equal fingerprints give equal bits. In fp32 every instruction set does; units for products of bfloat16
  // add in other orders. "base": without AVX2 and FMA, where the C library computes other logarithms
  // and powers, too.
  std::string Fingerprint() const override {
    using engine::kernels::Isa;
    const Isa used = engine::kernels::UsedIsa();
    if (used == Isa::kBase) return "cpu base";
    const bool unit = precision_ == engine::Precision::kBf16 && engine::kernels::MatmulBf16::InHardware();
    return unit ? fmt::format("cpu {}", engine::kernels::IsaName(used)) : "cpu fma";
  }
  std::string Plan() const override { return ""; }

  Status AdoptPlan(const std::string& plan) override {
    if (plan.empty()) return Ok();
    return Error{Code::kInvalid, "the plan is for another kind of device than the CPU"};
  }

  Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config) override {
    if (config.precision == engine::Precision::kBf16 && !engine::kernels::MatmulBf16::InHardware())
      log::Warn(
          "this CPU ({}) has no bf16 products: operands are rounded to bf16 and multiplied as fp32, which is "
          "slower",
          engine::kernels::IsaName(engine::kernels::UsedIsa()));
    precision_ = config.precision;
    return engine::CreateModel(config);
  }

  Status Update(const optimizer::Config& config, const optimizer::StepScalars& scalars,
                const engine::Layout& layout, const optimizer::Slices& slices,
                const UpdateCondition& condition, const optimizer::ChunkHashes& hashes) override {
    if (condition.contributors[0] != condition.required_contributors) return Ok();  // the hashes remain
    optimizer::StepScalars clipped = scalars;
    clipped.gradient_scale = optimizer::ClipFactor(config.clip_norm, condition.norm[0]);
    optimizer::StepAll(config, clipped, layout, slices, threads_, hashes);
    return Ok();
  }

  Status Hash(std::span<const float> values, std::span<uint64_t> hashes) override {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    const size_t chunks = HashChunkCount(bytes.size());
    CHECK(hashes.size() == chunks);
    const size_t pieces =
        std::clamp<size_t>(chunks / kMinChunksPerThread, 1, static_cast<size_t>(std::max(1, threads_)));
    const auto hash = [&](size_t piece) {
      const size_t begin = chunks * piece / pieces;
      const size_t end = chunks * (piece + 1) / pieces;
      const size_t last = std::min(end * kHashChunkBytes, bytes.size());
      HashChunks(bytes.subspan(begin * kHashChunkBytes, last - begin * kHashChunkBytes),
                 hashes.subspan(begin, end - begin));
    };
    std::vector<std::thread> helpers;
    for (size_t piece = 1; piece < pieces; ++piece) helpers.emplace_back(hash, piece);
    hash(0);
    for (std::thread& helper : helpers) helper.join();
    return Ok();
  }

 private:
  const int threads_;
  engine::Precision precision_ = engine::Precision::kFp32;  // of the model
};

}  // namespace

std::unique_ptr<Device> NewHostDevice(int threads) { return std::make_unique<HostDevice>(threads); }

}  // namespace ringmaster::device
