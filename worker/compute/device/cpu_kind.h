// SPDX-License-Identifier: Apache-2.0

// The kind of this CPU, for programs whose libraries choose their kernels by it: MKL, OpenBLAS, oneDNN, XLA.
// Another kind may give other last bits. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace ringmaster::device {

// What cpuid reports, and the state that the operating system saves.
struct CpuRegisters {
  std::string vendor;  // leaf 0
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;
};

// Returns the vendor and the instruction sets that a program can use: "GenuineIntel avx fma avx2 avx512".
std::string CpuKindOf(const CpuRegisters& registers);

// Returns that of this machine, and the environment variables that limit which kernels libraries choose:
// "AuthenticAMD avx fma avx2 DNNL_MAX_CPU_ISA=AVX2".
std::string CpuKind();

}  // namespace ringmaster::device
