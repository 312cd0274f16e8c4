# SPDX-License-Identifier: Apache-2.0
# Required and optional libraries. docs/internals/dependencies.md gives the reason for each.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(simdjson REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS system)
find_package(OpenSSL REQUIRED)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
find_package(cpprestsdk REQUIRED)  # the API client of the kube backend
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# Debian's dnnl-config requires OpenCL, which nothing here needs.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h REQUIRED)
add_library(ringmaster_dnnl INTERFACE)
target_include_directories(ringmaster_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(ringmaster_dnnl INTERFACE ${DNNL_LIBRARY})
find_library(UCP_LIBRARY ucp REQUIRED)
find_library(UCS_LIBRARY ucs REQUIRED)
find_path(UCX_INCLUDE_DIR ucp/api/ucp.h REQUIRED)
add_library(ringmaster_ucx_headers INTERFACE)
target_include_directories(ringmaster_ucx_headers SYSTEM INTERFACE ${UCX_INCLUDE_DIR})
add_library(ringmaster_ucx INTERFACE)
target_link_libraries(ringmaster_ucx INTERFACE ringmaster_ucx_headers ${UCP_LIBRARY} ${UCS_LIBRARY})

if(RINGMASTER_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(Boost 1.74 REQUIRED COMPONENTS context)  # CUDA kernels on the CPU
endif()
