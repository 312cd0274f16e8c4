// SPDX-License-Identifier: Apache-2.0

// The instruction set of the kernels of this process. oneDNN computes products of bfloat16, the kernels of
// this folder everything else. Both obey the same limit, oneDNN's environment variable DNNL_MAX_CPU_ISA (for
// example AVX2), which makes a newer CPU compute the bits of an older one. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringmaster::engine::kernels {

// In ascending order: each contains the previous ones.
enum class Isa : uint8_t { kBase, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Returns the newest instruction set that the CPU, the operating system and DNNL_MAX_CPU_ISA allow. The
// result is constant for the lifetime of the process.
Isa UsedIsa();

// Returns "base", "avx2", "avx512", "avx512_bf16" or "amx".
std::string_view IsaName(Isa isa);

}  // namespace ringmaster::engine::kernels
