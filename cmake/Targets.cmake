# SPDX-License-Identifier: Apache-2.0
# ringmaster_library(NAME SOURCES a.cc ... DEPS lib ...): one static library per folder, explicit sources.
function(ringmaster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PUBLIC_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ringmaster_flags ${ARG_PUBLIC_DEPS} PRIVATE ${ARG_DEPS})
endfunction()

# A program. In an image its libraries lie beside it (images/gather), whatever the base has. They find each other, and what they
# load by name, by the older kind of run path, which holds for libraries of libraries too.
function(ringmaster_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ringmaster_flags ${ARG_DEPS})
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
    BUILD_RPATH "$ORIGIN/../lib/ringmaster")
endfunction()

# What scripts/test builds with sanitizers: tests that start nothing else, the simulators, and whatever programs
# other tests want instrumented.
add_custom_target(sanitized_tests)
function(ringmaster_sanitized)
  add_dependencies(sanitized_tests ${ARGN})
endfunction()

# What scripts/test cuda builds: the GPU plugin, its tests by emulation, and those for a GPU.
add_custom_target(cuda_code)

# ringmaster_test(NAME SOURCES ... DEPS ... [LABELS unit|sim|process|...] [TIMEOUT seconds])
function(ringmaster_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ringmaster_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(ARG_LABELS MATCHES "unit|conformance")
    ringmaster_sanitized(${name})
  endif()
  if(ARG_LABELS MATCHES "cuda|gpu")
    add_dependencies(cuda_code ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)  # a hang must end; instrumented code on a busy machine must not be mistaken for one
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(RINGMASTER_SANITIZE MATCHES "thread")
    # UCX patches mmap in the running image, which the thread sanitizer does not survive.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none")
  endif()
endfunction()

# ringmaster_gpu_test(NAME SOURCES ... DEPS ...): on a real GPU; skipped, and named as such, where there is none.
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
