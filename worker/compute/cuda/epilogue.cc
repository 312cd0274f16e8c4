// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/epilogue.h"

#include "base/check.h"
#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/kernels/gelu.h"

namespace ringmaster::cuda {
namespace {

template <class T>
void RunAs(Stream stream, const GemmShape& shape, const GemmOperands& operands) {
  auto* const c = static_cast<T*>(operands.c);
  auto* const aux = static_cast<T*>(operands.aux);
  if (shape.epilogue == Epilogue::kBiasGelu)
    kernels::BiasGeluForward<T>(stream, shape.m, shape.n, static_cast<const T*>(operands.bias), aux, c);
  else
    kernels::GeluBackward<T>(stream, shape.m * shape.n, aux, c);
}

}  // namespace

GemmShape WithoutEpilogue(const GemmShape& shape) {
  GemmShape plain = shape;
  plain.epilogue = Epilogue::kNone;
  return plain;
}

GemmOperands WithoutEpilogue(const GemmShape& shape, const GemmOperands& operands) {
  return {.a = operands.a,
          .b = operands.b,
          .c = shape.epilogue == Epilogue::kBiasGelu ? operands.aux : operands.c};
}

void RunEpilogue(Stream stream, const GemmShape& shape, const GemmOperands& operands) {
  CHECK(HasKernel(shape.epilogue) && (shape.ldc == 0 || shape.ldc == shape.n), "no kernel for this epilogue");
  if (shape.out == DType::kBf16)
    RunAs<Bf16>(stream, shape, operands);
  else
    RunAs<float>(stream, shape, operands);
}

}  // namespace ringmaster::cuda
