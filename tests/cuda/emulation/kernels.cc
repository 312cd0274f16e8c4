// All kernels, compiled for the CPU.
#include "worker/compute/cuda/kernels/all.cu"
