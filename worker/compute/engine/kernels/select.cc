// SPDX-License-Identifier: Apache-2.0

#include <cstring>

#include "worker/compute/engine/kernels/isa.h"
#include "worker/compute/engine/kernels/kernels.h"

namespace ringmaster::engine::kernels {
namespace {

#define RM_REFERENCE(kernel) .kernel = reference::kernel,
#define RM_BASE(kernel) .kernel = base::kernel,
#define RM_AVX2(kernel) .kernel = avx2::kernel,
#define RM_AVX512(kernel) .kernel = avx512::kernel,
#define RM_AVX512_BF16(kernel) .kernel = avx512bf16::kernel,

constexpr Kernels kReference = {.name = "reference", RM_FOR_ALL_KERNELS(RM_REFERENCE)};
constexpr Kernels kBase = {.name = "base", RM_FOR_ALL_KERNELS(RM_BASE)};
#if defined(__x86_64__)
constexpr Kernels kAvx2 = {.name = "avx2", RM_FOR_ALL_KERNELS(RM_AVX2)};
constexpr Kernels kAvx512 = {.name = "avx512", RM_FOR_ALL_KERNELS(RM_AVX512)};
constexpr Kernels kTiles = {.name = "tiles",
                            RM_FOR_ALL_KERNELS(RM_AVX512_BF16).multiply_tiles = MultiplyTiles};
#endif

}  // namespace

const Kernels& ReferenceKernels() { return kReference; }

const Kernels& FastKernels() {
#if defined(__x86_64__)
  if (UsedIsa() >= Isa::kAmx) return kTiles;
  if (UsedIsa() >= Isa::kAvx512) return kAvx512;
  if (UsedIsa() >= Isa::kAvx2) return kAvx2;
#endif
  return kBase;
}

const Kernels* KernelsFor(const char* name) {
  if (std::strcmp(name, "base") == 0) return &kBase;
#if defined(__x86_64__)
  if (std::strcmp(name, "avx2") == 0 && UsedIsa() >= Isa::kAvx2) return &kAvx2;
  if (std::strcmp(name, "avx512") == 0 && UsedIsa() >= Isa::kAvx512) return &kAvx512;
  if (std::strcmp(name, "tiles") == 0 && UsedIsa() >= Isa::kAmx) return &kTiles;
#endif
  return nullptr;
}

}  // namespace ringmaster::engine::kernels
