// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/choice_table.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>

#include "base/file.h"
#include "worker/compute/cuda/text_lines.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kLargestFile = 16 << 20;

}  // namespace

std::string ChoiceHeader(const ChoiceFormat& format, std::string_view key) {
  return fmt::format("{}\n{}\n", format.magic, key);
}

Status ParseChoices(std::string_view text, const ChoiceFormat& format, std::string_view key,
                    const std::function<Status(std::string_view line, bool complete)>& read_line) {
  if (NextLine(text) != format.magic)
    return Error{Code::kCorrupt,
                 fmt::format("{} must begin with \"{}\"; this text does not", format.name, format.magic)};
  if (const std::string_view theirs = NextLine(text); theirs != key)
    return Error{Code::kInvalid, fmt::format("the {} are for {}, this is {}: members of one job need {}",
                                             format.name, theirs, key, format.requirement)};
  while (!text.empty()) {
    const bool complete = text.find('\n') != std::string_view::npos;
    RM_TRY(read_line(NextLine(text), complete));
  }
  return Ok();
}

std::string ChoicePath(const std::string& folder, std::string_view prefix, std::string_view key) {
  return fmt::format("{}/{}-{:016x}.txt", folder, prefix, XXH3_64bits(key.data(), key.size()));
}

std::string ReadStoredChoices(const std::string& path) {
  auto text = ReadFile(path, kLargestFile);
  return text.ok() ? std::move(*text) : std::string();
}

void StoreChoices(const std::string& path, std::string_view text) {
  if (MakeFolder(std::filesystem::path(path).parent_path()).ok()) (void)WriteFileAtomic(path, text);
}

}  // namespace ringmaster::cuda
