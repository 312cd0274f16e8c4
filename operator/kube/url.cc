// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/url.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace ringmaster::kube {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = high >= 0 ? HexValue(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

Result<Url> ParseUrl(std::string_view text) {
  const auto bad = [](const std::string& why) {
    return Error{Code::kInvalid, why + "; expected https://host:port"};
  };
  Url url;
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return bad("the URL has no scheme");
  url.scheme = std::string(text.substr(0, scheme_end));
  std::transform(url.scheme.begin(), url.scheme.end(), url.scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (url.scheme != "http" && url.scheme != "https") return bad("scheme " + url.scheme + " is not supported");
  text.remove_prefix(scheme_end + 3);
  if (text.find_first_of("?#") != std::string_view::npos) return bad("the URL has a query or fragment");

  const size_t path_begin = std::min(text.find('/'), text.size());
  url.path = std::string(text.substr(path_begin));
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  std::string_view authority = text.substr(0, path_begin);
  if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = authority.substr(0, at);
    const size_t colon = login.find(':');
    url.user = Decode(login.substr(0, colon));
    if (colon != std::string_view::npos) url.password = Decode(login.substr(colon + 1));
    authority.remove_prefix(at + 1);
  }

  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("an IPv6 address without its closing bracket");
    url.host = std::string(authority.substr(1, close - 1));
    authority.remove_prefix(close + 1);
    if (!authority.empty() && !authority.starts_with(':')) return bad("unexpected text after the host");
    if (!authority.empty()) port = authority.substr(1);
  } else {
    const size_t colon = authority.find(':');
    if (colon != authority.rfind(':'))
      return bad("an IPv6 address must be in brackets: https://[fd00::1]:443");
    url.host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
  }
  if (url.host.empty()) return bad("the URL has no host");
  if (url.host.find_first_of(" \t\r\n\"<>\\^`{|}") != std::string::npos)
    return bad("the host contains invalid characters");
  url.port = url.scheme == "https" ? 443 : 80;
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || end != port.data() + port.size() || url.port == 0)
      return bad("the port is not a number from 1 to 65535");
  }
  return url;
}

}  // namespace ringmaster::kube
