# SPDX-License-Identifier: Apache-2.0
# ringmaster_library(NAME SOURCES a.cc ... DEPS lib ...): define a static library, one per folder, with explicit sources.
function(ringmaster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PUBLIC_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  ringmaster_checks(${name})
  target_link_libraries(${name} PUBLIC ringmaster_flags ${ARG_PUBLIC_DEPS} PRIVATE ${ARG_DEPS})
endfunction()

# ringmaster_binary(NAME SOURCES ... DEPS ...): define a program. In an image its libraries are in ../lib/ringmaster
# (images/gather), independent of the base image. An RPATH, unlike a RUNPATH, also applies to libraries of libraries and to
# libraries that are loaded by name.
function(ringmaster_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  ringmaster_checks(${name})
  target_link_libraries(${name} PRIVATE ringmaster_flags ${ARG_DEPS})
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    BUILD_RPATH "$ORIGIN/../lib/ringmaster")
endfunction()

# ringmaster_self_contained(NAME): a library that programs load by name brings all it needs, and binds to its own copies.
function(ringmaster_self_contained name)
  if(NOT RINGMASTER_SANITIZE)  # the program has the sanitizer's runtime
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)
endfunction()

# Everything that scripts/test builds with sanitizers: tests that start no other program, the simulators, and the programs that
# other tests need instrumented.
add_custom_target(sanitized_tests)
function(ringmaster_sanitized)
  add_dependencies(sanitized_tests ${ARGN})
endfunction()

# ringmaster_address_sanitized(NAME...): tests with the address sanitizer alone start these programs (e2e/operator).
function(ringmaster_address_sanitized)
  if(NOT RINGMASTER_SANITIZE MATCHES "thread")
    ringmaster_sanitized(${ARGN})
  endif()
endfunction()

# ringmaster_single_threaded(NAME...): these programs start no thread, so the thread sanitizer has nothing to look for in them,
# and they are not built or run with it. The test single_threaded fails when one of them can start a thread.
function(ringmaster_single_threaded)
  foreach(name ${ARGN})
    set_property(GLOBAL APPEND PROPERTY RINGMASTER_SINGLE_THREADED $<TARGET_FILE:${name}>)
    ringmaster_address_sanitized(${name})
  endforeach()
endfunction()

# Everything that `scripts/test cuda` builds: the GPU plugin, its tests under emulation, and its tests on a GPU.
add_custom_target(cuda_code)

# ringmaster_test(NAME SOURCES ... DEPS ... [LABELS unit|sim|process|...] [TIMEOUT seconds] [SINGLE_THREADED])
function(ringmaster_test name)
  cmake_parse_arguments(ARG "SINGLE_THREADED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  ringmaster_checks(${name})
  target_link_libraries(${name} PRIVATE ringmaster_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  # Optimizing tests fully would take the compiler a third of its time. What they call is optimized in its own library.
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(ARG_SINGLE_THREADED)
    ringmaster_single_threaded(${name})
    if(RINGMASTER_SANITIZE MATCHES "thread")
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      return()
    endif()
  elseif(ARG_LABELS MATCHES "unit|conformance")
    ringmaster_sanitized(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(ARG_LABELS MATCHES "cuda|gpu")
    add_dependencies(cuda_code ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)  # ends a hang, but not slow instrumented code on a busy machine
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(RINGMASTER_SANITIZE MATCHES "thread")
    # UCX patches mmap in the running process, which crashes the thread sanitizer.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none")
  endif()
endfunction()

# ringmaster_gpu_test(NAME SOURCES ... DEPS ...): define a test that needs a GPU; without one it is reported as skipped.
function(ringmaster_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  ringmaster_test(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} ringmaster_cuda_device LABELS gpu)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR}")
  if(TARGET ringmaster_cudnn)
    add_dependencies(${name} ringmaster_cudnn)
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "RINGMASTER_CUDNN_PLUGIN=${CMAKE_BINARY_DIR}/bin/libringmaster_cudnn.so")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\];no GPU for these tests" RUN_SERIAL ON)
endfunction()
