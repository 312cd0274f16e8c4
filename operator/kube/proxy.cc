// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

#include "operator/kube/url.h"

namespace ringmaster::kube {
namespace {

struct Address {
  std::array<unsigned char, 16> bytes{};
  int bits = 0;  // 32 or 128; 0: not an address
};

Address ParseAddress(const std::string& text) {
  Address address;
  if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1)
    address.bits = 32;
  else if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1)
    address.bits = 128;
  return address;
}

bool InBlock(const Address& address, const Address& block, int prefix) {
  if (address.bits == 0 || address.bits != block.bits || prefix < 0 || prefix > block.bits) return false;
  for (int bit = 0; bit < prefix; ++bit) {
    const size_t byte = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if ((address.bytes[byte] & mask) != (block.bytes[byte] & mask)) return false;
  }
  return true;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool IsThisMachine(const std::string& host) {
  if (host == "localhost") return true;
  const Address address = ParseAddress(host);
  if (address.bits == 32) return address.bytes[0] == 127;
  return address.bits == 128 && InBlock(address, ParseAddress("::1"), 128);
}

// Returns true if this entry of NO_PROXY, trimmed and in lower case, names the host.
bool Names(std::string entry, const std::string& host, uint16_t port) {
  if (entry == "*") return true;
  if (const size_t slash = entry.find('/'); slash != std::string::npos) {
    int prefix = -1;
    const char* end = entry.data() + entry.size();
    if (std::from_chars(entry.data() + slash + 1, end, prefix).ptr != end) return false;
    return InBlock(ParseAddress(host), ParseAddress(entry.substr(0, slash)), prefix);
  }
  if (const Address address = ParseAddress(entry); address.bits != 0)
    return InBlock(ParseAddress(host), address, address.bits);
  if (const size_t colon = entry.rfind(':'); colon != std::string::npos) {
    if (entry.substr(colon + 1) != std::to_string(port)) return false;
    entry.resize(colon);
    if (entry.starts_with('[') && entry.ends_with(']')) entry = entry.substr(1, entry.size() - 2);
  }
  if (entry.starts_with("*.")) entry.erase(0, 1);
  if (entry.empty()) return false;
  if (entry.starts_with('.')) return host.ends_with(entry);
  return host == entry || host.ends_with("." + entry);
}

bool Excluded(const std::string& no_proxy, const std::string& host, uint16_t port) {
  size_t begin = 0;
  while (begin <= no_proxy.size()) {
    const size_t end = std::min(no_proxy.find(',', begin), no_proxy.size());
    std::string entry = no_proxy.substr(begin, end - begin);
    std::erase_if(entry, [](unsigned char c) { return std::isspace(c); });
    if (!entry.empty() && Names(Lower(entry), host, port)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

Result<std::optional<Proxy>> ChooseProxy(std::string_view server, const std::string& explicit_url,
                                         const std::function<std::string(const char*)>& env) {
  RM_ASSIGN(const Url url, ParseUrl(server));
  std::string wanted = explicit_url;
  std::string from = "proxy-url";
  if (wanted.empty()) {
    const bool tls = url.scheme == "https";
    for (const char* name : {tls ? "HTTPS_PROXY" : "HTTP_PROXY", tls ? "https_proxy" : "http_proxy"}) {
      wanted = env(name);
      from = name;
      if (!wanted.empty()) break;
    }
    if (wanted.empty()) return std::optional<Proxy>();
    std::string no_proxy = env("NO_PROXY");
    if (no_proxy.empty()) no_proxy = env("no_proxy");
    const std::string host = Lower(url.host);
    if (IsThisMachine(host) || Excluded(no_proxy, host, url.port)) return std::optional<Proxy>();
    if (wanted.find("://") == std::string::npos) wanted = "http://" + wanted;
  }
  const Result<Url> proxy = ParseUrl(wanted);
  if (!proxy.ok()) return proxy.error().In(from);
  if (proxy->scheme != "http")
    return Error{Code::kInvalid, from +
                                     ": only http:// proxies are supported (the connection through the proxy "
                                     "still uses TLS to the API server)"};
  const std::string host = proxy->host.find(':') == std::string::npos ? proxy->host : "[" + proxy->host + "]";
  return std::optional<Proxy>(
      Proxy{fmt::format("http://{}:{}", host, proxy->port), proxy->user, proxy->password});
}

}  // namespace ringmaster::kube
