// SPDX-License-Identifier: Apache-2.0

// All kernels, compiled for the CPU.
#include "worker/compute/cuda/kernels/all.cu"
