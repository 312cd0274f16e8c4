// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/png_library.h"

#include <dlfcn.h>

#include <filesystem>

namespace ringmaster::cli {

Status WritePng(const Picture& picture, const std::string& path) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string library = (self.parent_path() / "libringmaster_png.so").string();
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Error{Code::kNotFound,
                 std::string(::dlerror()) + "; PNG needs this library and cairo, SVG needs neither"};
  const auto write = reinterpret_cast<PngFunction>(::dlsym(handle, kPngFunction));
  if (write == nullptr) return Error{Code::kInvalid, library + ": is of another build"};
  const std::string failure = write(picture, path);
  if (!failure.empty()) return Error{Code::kUnavailable, "write " + path + ": " + failure};
  return Ok();
}

}  // namespace ringmaster::cli
