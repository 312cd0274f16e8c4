# SPDX-License-Identifier: Apache-2.0
# Find the CUDA toolkit for the GPU plugin: a system toolkit, or that of scripts/setup-cuda. Sets RINGMASTER_HAS_CUDA and
# enables the language; without a toolkit, everything else is built in the same way. Sanitizer builds have no CUDA: nvcc does
# not support the sanitizers, and the kernels run under them by emulation (tests/cuda).
set(RINGMASTER_HAS_CUDA OFF)
if(RINGMASTER_CUDA STREQUAL "OFF" OR RINGMASTER_SANITIZE)
  return()
endif()

execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/setup-cuda --where OUTPUT_VARIABLE toolkit
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  if(RINGMASTER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RINGMASTER_CUDA=ON, but no CUDA toolkit was found; scripts/setup-cuda installs one")
  endif()
  message(STATUS "CUDA: no toolkit; the worker is built for CPUs only (scripts/setup-cuda installs one)")
  return()
endif()

# A build folder caches the compiler, headers and libraries of the first toolkit that it finds. When the toolkit changes, for
# example because scripts/setup-cuda names other packages, remove them from the cache, so that CMake searches again.
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/setup-cuda)
if(NOT "${RINGMASTER_CUDA_TOOLKIT}" STREQUAL "${toolkit}")
  file(REMOVE ${CMAKE_PLATFORM_INFO_DIR}/CMakeCUDACompiler.cmake)
  get_cmake_property(remembered CACHE_VARIABLES)
  foreach(name IN LISTS remembered)
    if(name MATCHES "^(CUDA_|CUDAToolkit_|NVML_)")
      unset(${name} CACHE)
    endif()
  endforeach()
endif()
set(RINGMASTER_CUDA_TOOLKIT ${toolkit} CACHE INTERNAL "The toolkit that this build folder was configured with")

set(CMAKE_CUDA_COMPILER ${toolkit}/bin/nvcc)
set(CMAKE_CUDA_ARCHITECTURES ${RINGMASTER_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # cmake 3.25 does not know that this nvcc supports it
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CUDAToolkit_ROOT ${toolkit})
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA: ${CUDAToolkit_VERSION} at ${toolkit}, for ${RINGMASTER_CUDA_ARCHITECTURES}")
set(RINGMASTER_HAS_CUDA ON)
