// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/page_guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "base/file.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kTokenBytes = 16;

// "localhost:80" -> "localhost", "[::1]:80" -> "::1".
std::string NameOfHost(const std::string& host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string::npos ? std::string() : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

// Takes the same time for all texts of one length, so that the time does not reveal the token.
bool SameText(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return difference == 0;
}

std::string CookieValue(const std::string& cookies, const std::string& name) {
  size_t begin = 0;
  while (begin < cookies.size()) {
    const size_t end = std::min(cookies.find(';', begin), cookies.size());
    const std::string pair = cookies.substr(begin, end - begin);
    const size_t text = pair.find_first_not_of(' ');
    if (text != std::string::npos && pair.compare(text, name.size() + 1, name + "=") == 0)
      return pair.substr(text + name.size() + 1);
    begin = end + 1;
  }
  return {};
}

Admission Refusal(int status, std::string why) {
  return {Admission::Kind::kRefuse, {status, "text/plain; charset=utf-8", std::move(why)}};
}

// Returns the query without a parameter: "job=a&token=b" -> "job=a".
std::string WithoutParameter(const std::string& query, const std::string& name) {
  std::string rest;
  for (size_t begin = 0; begin < query.size();) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string pair = query.substr(begin, end - begin);
    begin = end + 1;
    if (pair.empty() || pair == name || pair.starts_with(name + "=")) continue;
    rest += (rest.empty() ? "" : "&") + pair;
  }
  return rest;
}

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

Result<PageAddress> ParsePageAddress(const std::string& text) {
  PageAddress address;
  std::string port = text;
  if (const size_t colon = text.rfind(':'); colon != std::string::npos) {
    address.host = text.starts_with('[') ? NameOfHost(text) : text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (address.host == "localhost") address.host = "127.0.0.1";
  in6_addr ignored{};
  const bool valid_host = ::inet_pton(AF_INET, address.host.c_str(), &ignored) == 1 ||
                          ::inet_pton(AF_INET6, address.host.c_str(), &ignored) == 1;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  const bool valid_port =
      port.empty() || (parsed.ec == std::errc() && parsed.ptr == port.data() + port.size());
  if (!valid_host || !valid_port)
    return Error{Code::kInvalid, fmt::format("{}: not an address for the page; give PORT or IP:PORT, for "
                                             "example 8080, 127.0.0.1:8080 or [::1]:8080",
                                             text)};
  return address;
}

bool IsLoopback(const std::string& host) {
  in_addr address{};
  return host == "::1" ||
         (::inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127);
}

Result<std::string> MakePageToken() {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return ErrnoError("getrandom", errno);
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string QueryValue(const std::string& query, const std::string& name) {
  size_t begin = 0;
  while (begin < query.size()) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string pair = query.substr(begin, end - begin);
    begin = end + 1;
    if (!pair.starts_with(name + "=")) continue;
    std::string value;
    for (size_t i = name.size() + 1; i < pair.size(); ++i) {
      const bool escape = pair[i] == '%' && i + 2 < pair.size();
      const int high = escape ? HexDigit(pair[i + 1]) : -1;
      const int low = escape ? HexDigit(pair[i + 2]) : -1;
      if (high >= 0 && low >= 0) {
        value += static_cast<char>(high * 16 + low);
        i += 2;
      } else {
        value += pair[i] == '+' ? ' ' : pair[i];
      }
    }
    return value;
  }
  return {};
}

Admission Admit(const PageGuard& guard, const http::Request& request) {
  if (!request.origin.empty() && request.origin != "http://" + request.host)
    return Refusal(403, "Forbidden: another web site asks for this page\n");
  if (guard.token.empty()) {
    const std::string name = NameOfHost(request.host);
    if (name != "localhost" && !IsLoopback(name))
      return Refusal(403, "Forbidden: open this page as http://127.0.0.1:PORT or http://localhost:PORT\n");
    return {};
  }
  if (SameText(QueryValue(request.query, "token"), guard.token)) {
    const std::string rest = WithoutParameter(request.query, "token");  // which job the page shows
    Admission sign_in{Admission::Kind::kSignIn, {303, "text/plain; charset=utf-8", ""}};
    sign_in.response.headers = {
        {"Location",
         (request.path.starts_with("//") ? "/" : request.path) + (rest.empty() ? "" : "?" + rest)},
        {"Set-Cookie", guard.cookie + "=" + guard.token + "; Path=/; HttpOnly; SameSite=Strict"}};
    return sign_in;
  }
  if (SameText(request.bearer, guard.token) ||
      SameText(CookieValue(request.cookie, guard.cookie), guard.token))
    return {};
  return Refusal(401, "Unauthorized: open the address with ?token=, as the command printed it\n");
}

}  // namespace ringmaster::cli
