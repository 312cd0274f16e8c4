// SPDX-License-Identifier: Apache-2.0

// Which instruction set the kernels of this process use. Products come from oneDNN and everything else from
// our own kernels; both follow the same limit, so one environment variable, oneDNN's DNNL_MAX_CPU_ISA (for
// example AVX2), makes a newer CPU compute the bits of an older one. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringmaster::engine::kernels {

// Each contains the ones before it.
enum class Isa : uint8_t { kBase, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The newest that the CPU, the operating system and DNNL_MAX_CPU_ISA allow. Constant for the life of the
// process.
Isa UsedIsa();

// "base", "avx2", "avx512", "avx512_bf16", "amx".
std::string_view IsaName(Isa isa);

}  // namespace ringmaster::engine::kernels
