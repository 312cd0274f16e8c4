// SPDX-License-Identifier: Apache-2.0

// Members of a job compare the kinds of their CPUs: whatever makes a library choose other kernels is in them.
#include "worker/compute/device/cpu_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace ringmaster::device {
namespace {

using ::testing::HasSubstr;

// Registers of CPUs that exist, without the flags that no library chooses kernels by.
CpuRegisters Haswell() { return {"GenuineIntel", 0x18001000, 0x20, 0, 0, 0, 0x7}; }
CpuRegisters Skylake() { return {"GenuineIntel", 0x18001000, 0xc0030020, 0, 0, 0, 0xe7}; }
CpuRegisters SapphireRapids() {
  return {"GenuineIntel", 0x18001000, 0xc0030020, 0x800, 0x1c00000, 0x30, 0x600e7};
}
CpuRegisters Zen4() { return {"AuthenticAMD", 0x18001000, 0xc0030020, 0x800, 0, 0x20, 0xe7}; }

TEST(CpuKind, NamesVendorAndInstructionSets) {
  EXPECT_EQ(CpuKindOf(Haswell()), "GenuineIntel avx fma avx2");
  EXPECT_EQ(CpuKindOf(Skylake()), "GenuineIntel avx fma avx2 avx512");
  EXPECT_EQ(CpuKindOf(SapphireRapids()),
            "GenuineIntel avx fma avx2 avx_vnni avx512 avx512_vnni avx512_bf16 avx512_fp16 amx");
  EXPECT_EQ(CpuKindOf(Zen4()), "AuthenticAMD avx fma avx2 avx512 avx512_vnni avx512_bf16");
  EXPECT_EQ(CpuKindOf({}), "");
}

TEST(CpuKind, WhatTheOperatingSystemDoesNotSaveIsNotUsed) {
  CpuRegisters registers = SapphireRapids();
  registers.xcr0 = 0xe7;
  EXPECT_EQ(CpuKindOf(registers),
            "GenuineIntel avx fma avx2 avx_vnni avx512 avx512_vnni avx512_bf16 avx512_fp16");
  registers.xcr0 = 0x7;
  EXPECT_EQ(CpuKindOf(registers), "GenuineIntel avx fma avx2 avx_vnni");
  registers.xcr0 = 0;
  EXPECT_EQ(CpuKindOf(registers), "GenuineIntel");
}

TEST(CpuKind, OfThisMachineIsStableAndHasItsLimits) {
  const char* const name = "MKL_DEBUG_CPU_TYPE";
  ::unsetenv(name);
  const std::string kind = CpuKind();
  EXPECT_EQ(CpuKind(), kind);
  ::setenv(name, "5", 1);
  EXPECT_THAT(CpuKind(), HasSubstr(" MKL_DEBUG_CPU_TYPE=5"));
  EXPECT_NE(CpuKind(), kind);
  ::setenv(name, "", 1);
  EXPECT_EQ(CpuKind(), kind);
  ::unsetenv(name);
#if defined(__x86_64__)
  // What the compiler's runtime finds out by itself.
  for (const auto& [set, supported] :
       {std::pair<const char*, bool>{" avx2", __builtin_cpu_supports("avx2") != 0},
        {" avx512_vnni", __builtin_cpu_supports("avx512vnni") != 0},
        {" avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0}}) {
    EXPECT_EQ((kind + " ").find(std::string(set) + " ") != std::string::npos, supported) << kind;
  }
#endif
}

}  // namespace
}  // namespace ringmaster::device
