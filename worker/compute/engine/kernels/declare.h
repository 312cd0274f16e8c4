// SPDX-License-Identifier: Apache-2.0

// Declares one kernel for the reference and for every instruction set; its type is KernelFn, declared by the
// operation's header. In a kernel source, RM_KERNEL names the function of the set being compiled.
#pragma once

#include <cstdint>

#define RM_DECLARE_KERNEL(kernel) \
  namespace reference {           \
  kernel##Fn kernel;              \
  }                               \
  namespace base {                \
  kernel##Fn kernel;              \
  }                               \
  namespace avx2 {                \
  kernel##Fn kernel;              \
  }                               \
  namespace avx512 {              \
  kernel##Fn kernel;              \
  }                               \
  namespace avx512bf16 {          \
  kernel##Fn kernel;              \
  }
