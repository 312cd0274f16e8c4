// SPDX-License-Identifier: Apache-2.0

// Epilogues of GEMM as separate kernels, where the library's fused one is missing or slower.
#pragma once

#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// Returns whether a separate kernel exists for the epilogue.
inline bool HasKernel(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluGradient;
}

// Return the product without its epilogue, and its operands.
GemmShape WithoutEpilogue(const GemmShape& shape);
GemmOperands WithoutEpilogue(const GemmShape& shape, const GemmOperands& operands);

// Enqueues the epilogue of the plain product.
void RunEpilogue(Stream stream, const GemmShape& shape, const GemmOperands& operands);

}  // namespace ringmaster::cuda
