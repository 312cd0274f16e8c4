// SPDX-License-Identifier: Apache-2.0

// The parts of a build that determine the last bits of a gradient in addition to the sources. Pure functions.
#pragma once

#include <string>

namespace ringmaster::device {

// Returns words that are equal for builds whose results are equal on equal devices:
// "numerics=5 onednn=2.6.3 compiler=gcc-12.2.0". Members of a native job compare them, and a checkpoint
// contains them. No result depends on the C library (base/portable_math.h). A GPU's libraries are in its
// device's fingerprint.
std::string BuildOfNumerics();

}  // namespace ringmaster::device
