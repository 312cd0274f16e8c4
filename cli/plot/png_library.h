// SPDX-License-Identifier: Apache-2.0

// Writes a picture as PNG, with cairo. Cairo and the libraries it needs (fonts, X11) are behind a library
// that is loaded when a PNG is requested, so that the program starts without them and the worker image can
// leave them out. ringmaster and libringmaster_png.so are of one build.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/plot/picture.h"

namespace ringmaster::cli {

// Draws with two pixels per unit. Errors: kNotFound when libringmaster_png.so is not next to the program.
Status WritePng(const Picture& picture, const std::string& path);

// The function in the library: returns an empty text or the reason of a failure.
inline constexpr const char* kPngFunction = "ringmaster_write_png";
using PngFunction = std::string (*)(const Picture& picture, const std::string& path);

}  // namespace ringmaster::cli
