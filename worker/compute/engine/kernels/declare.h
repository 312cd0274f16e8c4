// SPDX-License-Identifier: Apache-2.0

// RM_DECLARE_KERNEL(Name) declares the kernel `Name` for the reference and for every instruction set. The
// type of the kernel is NameFn, which the header of the operation declares.
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
