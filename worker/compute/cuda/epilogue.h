// SPDX-License-Identifier: Apache-2.0

// Epilogues of products by kernels of ours, where the library's own is missing or slower.
#pragma once

#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// Whether a kernel can follow the plain product.
inline bool HasKernel(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluGradient;
}

// The product without its epilogue, and the operands it then has.
GemmShape PlainOf(const GemmShape& shape);
GemmOperands PlainOf(const GemmShape& shape, const GemmOperands& operands);

// Enqueues what follows the plain product.
void RunEpilogue(Stream stream, const GemmShape& shape, const GemmOperands& operands);

}  // namespace ringmaster::cuda
