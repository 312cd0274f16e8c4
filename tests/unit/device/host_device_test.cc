// SPDX-License-Identifier: Apache-2.0

// Members of a job compare fingerprints, so a CPU's has to say everything that changes the bits of its
// results.
#include "worker/compute/device/host_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "worker/compute/engine/kernels/isa.h"

namespace ringmaster::device {
namespace {

using engine::kernels::Isa;
using engine::kernels::UsedIsa;

engine::ModelConfig SmallMlp(engine::Precision precision) {
  engine::ModelConfig config;
  config.kind = engine::ModelKind::kMlp;
  config.layers = 1;
  config.width = 8;
  config.height = 4;
  config.image_width = 4;
  config.precision = precision;
  return config;
}

std::string FingerprintFor(engine::Precision precision) {
  const auto device = NewHostDevice(1);
  const auto model = device->CreateModel(SmallMlp(precision));
  EXPECT_TRUE(model.ok()) << model.error().message;
  return device->Fingerprint();
}

TEST(HostDevice, FingerprintNamesTheUnitForBfloat16Only) {
  const std::string used(engine::kernels::IsaName(UsedIsa()));
  const std::string all = UsedIsa() == Isa::kBase ? "cpu base" : "cpu fma";
  EXPECT_EQ(FingerprintFor(engine::Precision::kFp32), all);
  EXPECT_EQ(FingerprintFor(engine::Precision::kBf16), UsedIsa() >= Isa::kAvx512Bf16 ? "cpu " + used : all);
}

// scripts/test runs this once with DNNL_MAX_CPU_ISA=AVX2, as on a CPU without AVX-512.
TEST(HostDevice, LimitOfOneDnnHoldsForTheKernels) {
  const char* const limit = std::getenv("DNNL_MAX_CPU_ISA");
  if (limit == nullptr || std::string(limit) != "AVX2") GTEST_SKIP() << "DNNL_MAX_CPU_ISA is not AVX2";
  EXPECT_LE(UsedIsa(), Isa::kAvx2);
}

}  // namespace
}  // namespace ringmaster::device
