// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/isa.h"

#include <oneapi/dnnl/dnnl.hpp>

#include "worker/compute/engine/kernels/tiles.h"

namespace ringmaster::engine::kernels {
namespace {

#if defined(__x86_64__)
Isa DetectIsa() {
  // oneDNN's values are bit sets: a newer instruction set contains the bits of those that it extends.
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [effective](dnnl::cpu_isa isa) {
    const auto bits = static_cast<unsigned>(isa);
    return (effective & bits) == bits;
  };
  if (has(dnnl::cpu_isa::avx512_core_amx) && HasTiles()) return Isa::kAmx;
  if (has(dnnl::cpu_isa::avx512_core_bf16)) return Isa::kAvx512Bf16;
  if (has(dnnl::cpu_isa::avx512_core)) return Isa::kAvx512;
  if (has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma")) return Isa::kAvx2;
  return Isa::kBase;
}
#else
Isa DetectIsa() { return Isa::kBase; }
#endif

}  // namespace

Isa UsedIsa() {
  static const Isa isa = DetectIsa();
  return isa;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return "base";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "";
}

}  // namespace ringmaster::engine::kernels
