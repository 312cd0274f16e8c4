// SPDX-License-Identifier: Apache-2.0

// All kernels as one source file, which compiles faster per architecture than separate files.
#include "worker/compute/cuda/kernels/attention.cu"
#include "worker/compute/cuda/kernels/attention_bf16.cu"
#include "worker/compute/cuda/kernels/bias.cu"
#include "worker/compute/cuda/kernels/combine_operands.cu"
#include "worker/compute/cuda/kernels/conv.cu"
#include "worker/compute/cuda/kernels/convert.cu"
#include "worker/compute/cuda/kernels/cross_entropy.cu"
#include "worker/compute/cuda/kernels/embedding.cu"
#include "worker/compute/cuda/kernels/gelu.cu"
#include "worker/compute/cuda/kernels/hash.cu"
#include "worker/compute/cuda/kernels/layernorm.cu"
#include "worker/compute/cuda/kernels/maxpool.cu"
#include "worker/compute/cuda/kernels/numerics.cu"
#include "worker/compute/cuda/kernels/optimizer.cu"
#include "worker/compute/cuda/kernels/relu.cu"
#include "worker/compute/cuda/kernels/sort_rows.cu"
