// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/fd.h"
#include "base/file.h"
#include "base/json.h"
#include "base/open_file.h"

namespace ringmaster::cli {
namespace {

std::array<std::byte, 8> LittleEndian(uint64_t value) {
  std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  return bytes;
}

Status WriteTo(const Fd& file, const std::vector<Tensor>& tensors, const std::string& path,
               WorkCounter* counter) {
  const std::string header = SafetensorsHeader(tensors);
  RM_TRY(WriteAll(file, path, LittleEndian(header.size())));
  RM_TRY(WriteAll(file, path, std::as_bytes(std::span(header))));
  int64_t total = 0;
  for (const Tensor& tensor : tensors) total += static_cast<int64_t>(tensor.values.size_bytes());
  if (counter != nullptr) counter->Begin(total);
  for (const Tensor& tensor : tensors) {
    RM_TRY(WriteAll(file, path, std::as_bytes(tensor.values)));
    if (counter != nullptr) counter->Add(static_cast<int64_t>(tensor.values.size_bytes()));
  }
  return FsyncFile(file, path);
}

}  // namespace

std::string SafetensorsHeader(const std::vector<Tensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const size_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors, WorkCounter* counter) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  Fd file = OpenFile(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!file.valid()) return ErrnoError("open " + temporary, errno);
  Status written = WriteTo(file, tensors, path, counter);
  if (const Status closed = CloseFile(std::move(file), path); written.ok()) written = closed;
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    written = ErrnoError("rename to " + path, errno);
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const Status durable = FsyncFolder(folder.empty() ? "." : folder);
  if (durable.ok()) return Ok();
  // It may have replaced an older file, so it is not removed.
  return Error{durable.error().code,
               fmt::format("{} is complete, but may be lost when the machine loses power: {}", path,
                           durable.error().message)};
}

}  // namespace ringmaster::cli
