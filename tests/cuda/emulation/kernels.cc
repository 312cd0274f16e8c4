// All kernels, compiled for the CPU.
#include "worker/cuda/kernels/all.cu"
