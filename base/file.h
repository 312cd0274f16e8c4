// SPDX-License-Identifier: Apache-2.0

// Reads and durably writes whole files. Errors name the operation, the path and the cause (strerror).
// Thread-safe, except that concurrent writes to the same path race.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ringmaster {

// Errors: kNotFound when the file does not exist, kExhausted when it is larger than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Writes a temporary file in the same folder, fsyncs it, renames it to `path` and fsyncs the folder. Readers
// see either the old or the new content, never part of it.
Status WriteFileAtomic(const std::string& path, std::string_view text);

// Creates or truncates the file, writes it and fsyncs it. Errors: kExhausted when the disk is full.
Status WriteFileDurable(const std::string& path, std::span<const std::byte> bytes);

// Makes renames and new names in the folder durable.
Status FsyncFolder(const std::string& path);

// Creates the folder and its parents. Fails when the folder cannot be created or is not writable.
Status MakeFolder(const std::string& path);

// Returns "open /x/y: No such file or directory" with the Code that matches `error_number`.
Error ErrnoError(std::string_view what, int error_number);

}  // namespace ringmaster
