# SPDX-License-Identifier: Apache-2.0
# Language level, warnings as errors, sanitizers and ccache: the same for every target of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(ringmaster_flags INTERFACE)
# A sum must not depend on what the compiler fuses (-ffp-contract): bits are part of our contract. nvcc knows neither
# these flags nor all that its own output would be warned of.
target_compile_options(ringmaster_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wno-sign-conversion;-Wshadow;-Wnon-virtual-dtor;-Werror;-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow;-Werror=all-warnings>")
target_include_directories(ringmaster_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND (CMAKE_UNITY_BUILD OR RINGMASTER_SANITIZE))
  # False alarms of g++ 12 about its own <variant>, <regex> and <string>, once address checks are in between or much
  # is inlined.
  target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized;-Wno-restrict>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  # Several sources compiled as one (CMakePresets.json) look like headers to g++, in which a class must not have
  # members of types that only that file knows.
  target_compile_options(ringmaster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-subobject-linkage>")
endif()
if(RINGMASTER_SANITIZE)
  target_compile_options(ringmaster_flags INTERFACE -fsanitize=${RINGMASTER_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ringmaster_flags INTERFACE -fsanitize=${RINGMASTER_SANITIZE})
  if(RINGMASTER_SANITIZE MATCHES "undefined")
    # What reaches through a null pointer is seen by the address sanitizer, too; to check for it before each use takes
    # the compiler two fifths of its time.
    target_compile_options(ringmaster_flags INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=null)
  endif()
  if(RINGMASTER_SANITIZE MATCHES "thread")
    target_compile_options(ringmaster_flags INTERFACE -Wno-tsan)  # fences are understood by g++ 12's tsan only in part
  endif()
endif()
