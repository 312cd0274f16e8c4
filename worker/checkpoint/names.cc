// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ringmaster::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kChunk = "chunk-";

bool AllDigits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string StepName(int64_t step) { return fmt::format("{}{:012}", kStep, step); }

std::optional<int64_t> ParseStepName(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  if (digits.empty() || digits.size() > 18 || !AllDigits(digits)) return std::nullopt;
  int64_t step = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (StepName(step) != name) return std::nullopt;
  return step;
}

std::string TemporaryName(int64_t step, std::string_view unique) {
  std::string name = StepName(step) + std::string(kTemporary);
  for (const char c : unique) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_';
    name += plain ? c : '_';
  }
  return name;
}

bool IsTemporaryName(std::string_view name) {
  const size_t at = name.find(kTemporary);
  return at != std::string_view::npos && ParseStepName(name.substr(0, at)).has_value();
}

std::string ChunkName(int64_t index) { return fmt::format("{}{:05}", kChunk, index); }

bool IsChunkName(std::string_view name) {
  if (!name.starts_with(kChunk)) return false;
  const std::string_view digits = name.substr(kChunk.size());
  return digits.size() >= 5 && digits.size() <= 12 && AllDigits(digits);
}

bool IsOurFile(std::string_view name) {
  return name == kManifestName || name == kLockName || IsChunkName(name);
}

bool IsSillyName(std::string_view name) { return name.starts_with(".nfs"); }

}  // namespace ringmaster::checkpoint
