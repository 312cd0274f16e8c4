# SPDX-License-Identifier: Apache-2.0
# cmake -DPTX="a.ptx;b.ptx" -P check_ptx.cmake: fail unless every floating-point operation is a single operation of IEEE 754,
# rounded to nearest even, with subnormals.
set(operations 0)
foreach(file IN LISTS PTX)
  file(STRINGS ${file} lines REGEX "^[ \t]*(@%p[0-9]+ )?(add|sub|mul|fma|mad|div|sqrt|rcp|rsqrt|cvt|ex2|lg2|abs)\\.[a-z0-9.]*f(32|64)")
  foreach(line IN LISTS lines)
    math(EXPR operations "${operations} + 1")
    if(line MATCHES "\\.ftz|\\.approx|\\.full|[ \t](fma|mad|rsqrt|ex2|lg2)\\.")
      message(SEND_ERROR "${file}: ${line}")
    endif()
  endforeach()
endforeach()
if(operations LESS 50)
  message(SEND_ERROR "found only ${operations} floating-point operations: is this the code of the kernels?")
endif()
