// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/cpu_kind.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#else
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#endif

namespace ringmaster::device {
namespace {

// State components in XCR0.
constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = kAvxState | 0xe0;
constexpr uint64_t kTileState = 0x60000;

struct InstructionSet {
  std::string_view name;
  uint32_t CpuRegisters::*flags;
  uint32_t mask;
  uint64_t state;  // that the operating system has to save
};

constexpr uint32_t Bit(int number) { return uint32_t{1} << number; }

constexpr InstructionSet kInstructionSets[] = {
    {"avx", &CpuRegisters::leaf1_ecx, Bit(28), kAvxState},
    {"fma", &CpuRegisters::leaf1_ecx, Bit(12), kAvxState},
    {"avx2", &CpuRegisters::leaf7_ebx, Bit(5), kAvxState},
    {"avx_vnni", &CpuRegisters::leaf7_1_eax, Bit(4), kAvxState},
    // F, DQ, BW and VL, which every library requires together.
    {"avx512", &CpuRegisters::leaf7_ebx, Bit(16) | Bit(17) | Bit(30) | Bit(31), kAvx512State},
    {"avx512_vnni", &CpuRegisters::leaf7_ecx, Bit(11), kAvx512State},
    {"avx512_bf16", &CpuRegisters::leaf7_1_eax, Bit(5), kAvx512State},
    {"avx512_fp16", &CpuRegisters::leaf7_edx, Bit(23), kAvx512State},
    {"amx", &CpuRegisters::leaf7_edx, Bit(22) | Bit(24), kAvx512State | kTileState},
};

// oneDNN, MKL, OpenBLAS and NumPy read them. ATEN_CPU_CAPABILITY is in what ringmaster.torch reports.
constexpr const char* kLimits[] = {
    "DNNL_MAX_CPU_ISA",         "ONEDNN_MAX_CPU_ISA", "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",       "OPENBLAS_CORETYPE",  "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
};

#if defined(__x86_64__)
CpuRegisters ReadRegisters() {
  CpuRegisters registers;
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) {
    const uint32_t words[] = {ebx, edx, ecx};
    registers.vendor.resize(sizeof(words));
    std::memcpy(registers.vendor.data(), words, sizeof(words));
  }
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) registers.leaf1_ecx = ecx;
  uint32_t subleaves = 0;
  if (__get_cpuid_count(7, 0, &subleaves, &ebx, &ecx, &edx) != 0) {
    registers.leaf7_ebx = ebx;
    registers.leaf7_ecx = ecx;
    registers.leaf7_edx = edx;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) registers.leaf7_1_eax = eax;
  }
  if ((registers.leaf1_ecx & bit_OSXSAVE) != 0) {
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    registers.xcr0 = uint64_t{high} << 32 | low;
  }
  return registers;
}

std::string KindOfThisCpu() { return CpuKindOf(ReadRegisters()); }
#else
std::string KindOfThisCpu() {
  utsname machine{};
  ::uname(&machine);
  return fmt::format("{} hwcap {:x} {:x}", machine.machine, ::getauxval(AT_HWCAP), ::getauxval(AT_HWCAP2));
}
#endif

}  // namespace

std::string CpuKindOf(const CpuRegisters& registers) {
  std::string kind = registers.vendor;
  for (const InstructionSet& set : kInstructionSets) {
    if ((registers.*set.flags & set.mask) == set.mask && (registers.xcr0 & set.state) == set.state)
      kind.append(" ").append(set.name);
  }
  return kind;
}

std::string CpuKind() {
  std::string kind = KindOfThisCpu();
  for (const char* const name : kLimits) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') kind.append(" ").append(name).append("=").append(value);
  }
  return kind;
}

}  // namespace ringmaster::device
