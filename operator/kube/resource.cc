// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/resource.h"

#include <string_view>

#include "base/check.h"

namespace ringmaster::kube {
namespace {

// Percent-encodes everything except the unreserved characters of RFC 3986.
std::string Encode(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

}  // namespace

std::string Resource::Path(const std::string& namespace_, const std::string& name,
                           const std::string& subresource) const {
  CHECK(!version.empty() && !plural.empty(), "a resource without version or plural");
  CHECK(!name.empty() || subresource.empty(), "subresource {} of {} without a name", subresource, plural);
  std::string path = group.empty() ? "/api" : "/apis";
  const auto append = [&path](const std::string& part) {
    if (!part.empty()) path.append("/").append(Encode(part));
  };
  append(group);
  append(version);
  if (!namespace_.empty()) append("namespaces");
  append(namespace_);
  append(plural);
  append(name);
  append(subresource);
  return path;
}

std::string Query(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string query;
  for (const auto& [key, value] : pairs) {
    if (value.empty()) continue;
    if (!query.empty()) query += '&';
    query.append(Encode(key)).append("=").append(Encode(value));
  }
  return query;
}

}  // namespace ringmaster::kube
