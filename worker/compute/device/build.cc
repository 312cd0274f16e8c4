// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/build.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include "worker/compute/numerics/revision.h"

namespace ringmaster::device {
namespace {

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
  return fmt::format("numerics={} onednn={}.{}.{} compiler={}", numerics::kRevision, dnnl->major, dnnl->minor,
                     dnnl->patch, CompilerVersion());
}

}  // namespace ringmaster::device
