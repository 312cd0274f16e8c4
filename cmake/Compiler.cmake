# SPDX-License-Identifier: Apache-2.0
# Language level, warnings as errors, sanitizers and ccache, the same for every target of this project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # All clones of the repository share what was compiled once.
  set(CCACHE_PROGRAM ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(ringmaster_flags INTERFACE)
# A sum must not depend on which operations the compiler fuses (-ffp-contract): the bits of a result are part of the contract.
# On GPUs, too, arithmetic is that of IEEE 754: subnormals are kept, divisions and square roots are correctly rounded. The
# kernels that follow a micro-batch prevent contraction themselves, by intrinsics.
# nvcc does not accept the flags of g++, and its generated code would violate some of the warnings.
target_compile_options(ringmaster_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wno-sign-conversion;-Wshadow;-Wnon-virtual-dtor;-Werror;-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow;-Werror=all-warnings;-ftz=false;-prec-div=true;-prec-sqrt=true>")
# The same binary from every folder: no path of the machine that built it is in it.
target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>")
target_include_directories(ringmaster_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND (CMAKE_UNITY_BUILD OR RINGMASTER_SANITIZE))
  # g++ 12 warns without reason about its own <variant>, <regex> and <string> when address checks are added or much is
  # inlined.
  target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized;-Wno-restrict>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  # In a unity build (CMakePresets.json) g++ takes the sources for headers, in which a class must not have members of types
  # that are local to the file.
  target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-subobject-linkage>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # The sanitizer builds, which clang compiles faster. Their warnings are those of g++, and clang's analysis of locks.
  target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-w;-Wthread-safety;-Werror=thread-safety>")
endif()
if(RINGMASTER_SANITIZE)
  target_compile_options(ringmaster_flags INTERFACE -fsanitize=${RINGMASTER_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ringmaster_flags INTERFACE -fsanitize=${RINGMASTER_SANITIZE})
  if(RINGMASTER_SANITIZE MATCHES "undefined")
    # The address sanitizer also finds accesses through null pointers, and the null checks of the undefined-behaviour
    # sanitizer take two fifths of the compile time.
    target_compile_options(ringmaster_flags INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=null
      "$<$<BOOL:$<TARGET_PROPERTY:RINGMASTER_PLAIN_OBJECTS>>:-fno-sanitize=alignment,vptr>"
      "$<$<AND:$<CXX_COMPILER_ID:Clang>,$<OR:$<BOOL:$<TARGET_PROPERTY:RINGMASTER_PLAIN_OBJECTS>>,$<BOOL:$<TARGET_PROPERTY:RINGMASTER_OWN_FUNCTION_TYPES>>>>:-fno-sanitize=function>")
  endif()
  if(RINGMASTER_SANITIZE MATCHES "thread")
    target_compile_options(ringmaster_flags INTERFACE -Wno-tsan)  # g++ 12's tsan supports fences only in part
  endif()
endif()

# ringmaster_checks(NAME): leave out checks of the undefined-behaviour sanitizer that cannot fail in the target's folder. Checks of
# alignment and of dynamic types take half of the sanitizer's compile time, and those of function types a tenth. These folders
# handle JSON and plain objects: they read no bytes as numbers, convert no base class to a derived one and no function pointer but
# a C library's (tidy_test forbids it), and the address sanitizer finds calls on dead objects.
# What is not hot is not optimized, either.
function(ringmaster_checks name)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^(api|base/http|rendezvous|operator|cli|e2e|tests/conformance|tests/sim)(/|$)" OR
     folder MATCHES "^tests/unit/(api|checkpoint|cli|docs|election|history|http|identity|inventory|kube_client|kube_events|kube_watch|library|operator|plot|rendezvous|serve|track|trainer|ui|wiring)(/|$)")
    set_target_properties(${name} PROPERTIES RINGMASTER_PLAIN_OBJECTS ON)
  endif()
  # Optimization would take two thirds of the time that a sanitizer build (RelWithDebInfo) takes to compile these. Only what
  # computes is optimized: decisions and their simulators, hashes, kernels on the CPU and emulated ones, collectives.
  if(NOT folder MATCHES "^(base|operator/core|tests/(cuda|sim)|worker/(compute|fabric))(/|$)" AND
     NOT folder MATCHES "^tests/unit/(device|engine|fabric|numerics|operator|optimizer)(/|$)" OR
     folder MATCHES "^base/http(/|$)")
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  endif()
endfunction()
