// SPDX-License-Identifier: Apache-2.0

// Whole-file reading and durable writing. Errors name the path and the cause in the system's words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster {

// kNotFound when it is not there, kExhausted when it is larger than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Writes beside the target, fsyncs, renames over it and fsyncs the folder: readers see the old text or the
// new, never half.
Status WriteFileAtomic(const std::string& path, std::string_view text);

// Writes and fsyncs a new file; kExhausted when the disk is full.
Status WriteFileDurable(const std::string& path, std::span<const std::byte> bytes);

Status FsyncFolder(const std::string& path);

// mkdir -p; fails with the reason when the folder cannot be made or written to.
Status MakeFolder(const std::string& path);

// "open /x/y: No such file or directory", with a code that fits errno.
Error ErrnoError(std::string_view what, int error_number);

}  // namespace ringmaster
