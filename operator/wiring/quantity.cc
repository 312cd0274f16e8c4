// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/quantity.h"

#include <algorithm>
#include <limits>
#include <string>

namespace ringmaster::wiring {
namespace {

__extension__ typedef unsigned __int128 Wide;  // NOLINT: no other type is wide enough

constexpr Wide kLimit = static_cast<Wide>(std::numeric_limits<int64_t>::max());
constexpr int kMaxDigits = 18;  // further digits only scale

Wide Times(Wide value, Wide factor) {
  return value > (kLimit * 1000) / factor ? kLimit * 1000 : value * factor;
}

// The power of ten or of two that a suffix means.
struct Suffix {
  int ten = 0;
  int two = 0;
};

std::optional<Suffix> ReadSuffix(std::string_view text) {
  if (text.empty()) return Suffix{};
  if (text == "n") return Suffix{-9, 0};
  if (text == "u") return Suffix{-6, 0};
  if (text == "m") return Suffix{-3, 0};
  constexpr std::string_view kLarge = "kMGTPE";
  constexpr std::string_view kBinary = "KMGTPE";
  if (text.size() == 1) {
    const size_t i = kLarge.find(text[0]);
    if (i != std::string_view::npos) return Suffix{3 * (static_cast<int>(i) + 1), 0};
  }
  if (text.size() == 2 && text[1] == 'i') {
    const size_t i = kBinary.find(text[0]);
    if (i != std::string_view::npos) return Suffix{0, 10 * (static_cast<int>(i) + 1)};
  }
  if ((text[0] == 'e' || text[0] == 'E') && text.size() <= 4) {
    text.remove_prefix(1);
    int sign = 1;
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
      sign = text[0] == '-' ? -1 : 1;
      text.remove_prefix(1);
    }
    if (text.empty()) return std::nullopt;
    int value = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    return Suffix{sign * value, 0};
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> ParseMilli(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  Wide value = 0;
  int exponent = 3;  // thousandths
  int digits = 0;
  bool any = false;
  bool rest = false;  // nonzero digits were dropped
  bool fraction = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    any = true;
    if (digits < kMaxDigits) {
      value = value * 10 + static_cast<Wide>(c - '0');
      if (value != 0) ++digits;
      if (fraction) --exponent;
    } else {
      rest = rest || c != '0';
      if (!fraction) ++exponent;
    }
  }
  const auto suffix = ReadSuffix(text.substr(i));
  if (!any || !suffix) return std::nullopt;
  exponent += suffix->ten;
  for (int k = 0; k < suffix->two; ++k) value = Times(value, 2);
  for (; exponent > 0 && value > 0 && value < kLimit; --exponent) value = Times(value, 10);
  for (; exponent < 0 && value > 0; ++exponent) {
    rest = rest || value % 10 != 0;
    value /= 10;
  }
  if (rest && !negative) value += 1;
  const auto result = static_cast<int64_t>(std::min(value, kLimit));
  return negative ? -result : result;
}

core::Resources ParseResources(const Json& map) {
  core::Resources resources;
  if (!map.is_object()) return resources;
  for (const auto& [name, quantity] : map.items()) {
    std::optional<int64_t> milli;
    if (quantity.is_string()) milli = ParseMilli(quantity.get_ref<const std::string&>());
    if (quantity.is_number()) milli = ParseMilli(quantity.dump());
    if (!milli || *milli < 0) continue;
    resources[name] = name == "cpu" ? *milli : *milli / 1000 + (*milli % 1000 != 0 ? 1 : 0);
  }
  return resources;
}

std::string QuantityText(const std::string& resource, int64_t amount) {
  if (resource == "cpu" && amount % 1000 != 0) return std::to_string(amount) + "m";
  return std::to_string(resource == "cpu" ? amount / 1000 : amount);
}

}  // namespace ringmaster::wiring
