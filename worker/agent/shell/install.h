// SPDX-License-Identifier: Apache-2.0

// InstallAgent copies the running program to a file. An init container with Ringmaster's image does this, so
// that a container with any other image can run the agent (`ringmaster-agent install FILE`). Thread-safe.
#pragma once

#include <string>

#include "base/result.h"

namespace ringmaster::agent {

// Creates the folder of `path`, and copies this program to `path` with mode 0755, whatever the umask, because
// the other container may run as another user. Replaces an older file at once. Errors name the path and the
// cause.
Status InstallAgent(const std::string& path);

}  // namespace ringmaster::agent
