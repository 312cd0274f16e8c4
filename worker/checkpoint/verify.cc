// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/verify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/open_file.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::checkpoint {
namespace fs = std::filesystem;
namespace {

Error WrongSize(const std::string& path, int64_t have, const Chunk& chunk) {
  return {Code::kCorrupt, fmt::format("{}: has {} bytes instead of {}", path, have, chunk.bytes)};
}

}  // namespace

Result<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  auto text = ReadFile(path, kMaxManifestBytes);
  if (!text.ok()) {
    if (text.error().code != Code::kNotFound) return text.error();
    return Error{Code::kCorrupt, folder + ": has no MANIFEST, so it was never finished"};
  }
  auto manifest = ParseManifest(*text);
  if (!manifest.ok()) return manifest.error().In(path);
  const auto named = ParseStepName(fs::path(folder).filename().string());
  if (named.has_value() && *named != manifest->step) {
    return Error{Code::kCorrupt, fmt::format("{}: is the manifest of step {}", path, manifest->step)};
  }
  return manifest;
}

Status ReadChunk(const std::string& folder, const Chunk& chunk, std::span<std::byte> to) {
  const std::string path = folder + "/" + chunk.file;
  const Fd file = OpenFile(path, O_RDONLY | O_NONBLOCK);
  if (!file.valid()) {
    if (errno == ENOENT) return Error{Code::kCorrupt, path + ": is missing"};
    return ErrnoError("open " + path, errno);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return ErrnoError("stat " + path, errno);
  if (info.st_size != chunk.bytes) {
    return WrongSize(path, info.st_size, chunk);
  }
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(file.get(), to.data() + done, to.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read " + path, errno);
    if (got == 0) return Error{Code::kCorrupt, path + ": ended while it was read"};
    done += static_cast<size_t>(got);
  }
  if (Hash64(to) != chunk.hash)
    return Error{Code::kCorrupt, path + ": is damaged: its checksum does not match"};
  return Ok();
}

Status CheckSize(const std::string& folder, const Chunk& chunk) {
  const std::string path = folder + "/" + chunk.file;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return Error{Code::kCorrupt, path + ": is missing"};
  if (error) return ErrnoError("stat " + path, error.value());
  if (size == static_cast<uintmax_t>(chunk.bytes)) return Ok();
  return WrongSize(path, static_cast<int64_t>(size), chunk);
}

Status CheckSizes(const std::string& folder, const Manifest& manifest) {
  for (const ArrayEntry& array : manifest.arrays) {
    for (const Chunk& chunk : array.chunks) RM_TRY(CheckSize(folder, chunk));
  }
  return Ok();
}

Result<Manifest> Verify(const std::string& folder) {
  RM_ASSIGN(Manifest manifest, ReadManifest(folder));
  RM_TRY(CheckSizes(folder, manifest));
  std::vector<std::byte> buffer;
  for (const ArrayEntry& array : manifest.arrays) {
    for (const Chunk& chunk : array.chunks) {
      buffer.resize(static_cast<size_t>(chunk.bytes));
      RM_TRY(ReadChunk(folder, chunk, buffer));
    }
  }
  return manifest;
}

Result<std::vector<int64_t>> StepsIn(const std::string& folder) {
  std::error_code error;
  std::vector<int64_t> steps;
  auto it = fs::directory_iterator(folder, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    if (const auto step = ParseStepName(it->path().filename().string())) steps.push_back(*step);
  }
  if (error) return ErrnoError("read folder " + folder, error.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  auto it = fs::directory_iterator(folder, error);
  for (; !error && it != fs::end(it); it.increment(error)) names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ringmaster::checkpoint
