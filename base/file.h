// SPDX-License-Identifier: Apache-2.0

// Reads and durably writes whole files. Errors name the operation, the path and the cause (strerror).
// Thread-safe, except that concurrent writes to the same path race.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster {

// Errors: kNotFound when the file does not exist, kExhausted when it is larger than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Writes a temporary file in the same folder, fsyncs it, renames it to `path` and fsyncs the folder. Readers
// see either the old or the new content, never part of it.
Status WriteFileAtomic(const std::string& path, std::string_view text);

// Creates or truncates the file, writes it and fsyncs it. Errors: kExhausted when the disk is full.
Status WriteFileDurable(const std::string& path, std::span<const std::byte> bytes);

// Writes all bytes, despite interrupts and short writes.
Status WriteAll(const Fd& file, const std::string& path, std::span<const std::byte> bytes);

// Returns whether a failed fsync means that the file system has none, as FUSE and some network file systems
// for folders. How durable its files are, is then a property of that file system, and no error.
bool HasNoFsync(int error_number);

// Ends the last line of a file of lines, if a process died while it wrote it: otherwise the next line would
// be glued to it. REQUIRES: the file is open for appending.
Status EndTornLine(const Fd& file, const std::string& path);

// Makes the content of the file durable. Succeeds if the file system has no fsync.
Status FsyncFile(const Fd& file, const std::string& path);

// Closes the file. Errors: those of writes that a network file system has delayed until now, such as a full
// disk. REQUIRES: the file is open.
Status CloseFile(Fd file, const std::string& path);

// Makes renames and new names in the folder durable, as FsyncFile.
Status FsyncFolder(const std::string& path);

// Creates the folder and its parents. Fails when the folder cannot be created or is not writable.
Status MakeFolder(const std::string& path);

// Returns "open /x/y: No such file or directory" with the Code that matches `error_number`.
Error ErrnoError(std::string_view what, int error_number);

}  // namespace ringmaster
