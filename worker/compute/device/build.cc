// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/build.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <string_view>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "worker/compute/numerics/revision.h"

namespace ringmaster::device {
namespace {

// The mathematical functions of the C library give other last bits from version to version.
std::string_view LibcVersion() {
#if defined(__GLIBC__)
  return ::gnu_get_libc_version();
#else
  return "unknown";
#endif
}

std::string CompilerVersion() {
#if defined(__clang__)
  return fmt::format("clang-{}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc-{}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string BuildOfNumerics() {
  const dnnl_version_t* const dnnl = dnnl_version();
  return fmt::format("numerics={} onednn={}.{}.{} libc={} compiler={}", numerics::kRevision, dnnl->major,
                     dnnl->minor, dnnl->patch, LibcVersion(), CompilerVersion());
}

}  // namespace ringmaster::device
