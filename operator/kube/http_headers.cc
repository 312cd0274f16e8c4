// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/http_headers.h"

#include <algorithm>
#include <charconv>

namespace ringmaster::kube {
namespace {

constexpr int kMaxRetrySeconds = 3600;
constexpr size_t kMaxWarnings = 20;
constexpr size_t kMaxWarningBytes = 1024;

}  // namespace

std::optional<Duration> ParseRetryAfter(std::string_view value) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) return std::nullopt;
  return seconds(std::min<int64_t>(number, kMaxRetrySeconds));
}

std::vector<std::string> ParseWarnings(std::string_view value) {
  std::vector<std::string> warnings;
  while (warnings.size() < kMaxWarnings) {
    const size_t open = value.find('"');
    if (open == std::string_view::npos) break;
    value.remove_prefix(open + 1);
    std::string text;
    bool closed = false;
    while (!value.empty() && !closed) {
      char c = value.front();
      value.remove_prefix(1);
      if (c == '"') {
        closed = true;
        break;
      }
      if (c == '\\' && !value.empty()) {
        c = value.front();
        value.remove_prefix(1);
      }
      // Warnings are logged, one line each.
      if (text.size() < kMaxWarningBytes) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    if (!closed) break;
    if (!text.empty()) warnings.push_back(std::move(text));
    // A quoted date may follow the text of a warning. The next warning starts after a comma.
    const size_t comma = value.find(',');
    const size_t quote = value.find('"');
    if (quote != std::string_view::npos && quote < comma) {
      const size_t end = value.find('"', quote + 1);
      value.remove_prefix(end == std::string_view::npos ? value.size() : end + 1);
    }
  }
  return warnings;
}

}  // namespace ringmaster::kube
