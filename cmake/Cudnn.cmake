# SPDX-License-Identifier: Apache-2.0
# Find cuDNN, which is used for attention only: its C++ headers and its library, from the toolkit of scripts/setup-cuda or of
# the system, and NVRTC, with which cuDNN compiles its kernels. Sets RINGMASTER_HAS_CUDNN and the target
# ringmaster_cudnn_library; without cuDNN, everything else is built in the same way.
set(RINGMASTER_HAS_CUDNN OFF)
if(NOT RINGMASTER_HAS_CUDA)
  return()
endif()
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
find_path(NVRTC_INCLUDE_DIR nvrtc.h HINTS ${CUDAToolkit_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_ROOT}/lib64 ${CUDAToolkit_LIBRARY_DIR})
find_library(NVRTC_LIBRARY nvrtc HINTS ${CUDAToolkit_ROOT}/lib64 ${CUDAToolkit_LIBRARY_DIR})
find_library(NVRTC_BUILTINS_LIBRARY nvrtc-builtins HINTS ${CUDAToolkit_ROOT}/lib64 ${CUDAToolkit_LIBRARY_DIR})
foreach(part CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR NVRTC_INCLUDE_DIR CUDNN_LIBRARY NVRTC_LIBRARY NVRTC_BUILTINS_LIBRARY)
  if(NOT ${part})
    message(STATUS "cuDNN: no ${part}; attention uses our own kernels")
    return()
  endif()
endforeach()
file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h major REGEX "^#define CUDNN_MAJOR 9$")
if(NOT major)
  message(STATUS "cuDNN: ${CUDNN_INCLUDE_DIR} has no cuDNN 9; attention uses our own kernels")
  return()
endif()

# cuDNN loads NVRTC by name, and NVRTC loads its builtins by name; both find a library that is already loaded. Therefore link
# them even where no symbol is needed.
add_library(ringmaster_cudnn_library INTERFACE)
target_include_directories(ringmaster_cudnn_library SYSTEM INTERFACE
  ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR} ${NVRTC_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(ringmaster_cudnn_library INTERFACE ${CUDNN_LIBRARY}
  -Wl,--push-state,--no-as-needed ${NVRTC_LIBRARY} ${NVRTC_BUILTINS_LIBRARY} -Wl,--pop-state)
message(STATUS "cuDNN: ${CUDNN_LIBRARY}")
set(RINGMASTER_HAS_CUDNN ON)
