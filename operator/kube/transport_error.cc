// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/transport_error.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace ringmaster::kube {
namespace {

// The library's texts for failures before the server can have the whole request. It also reports "Request
// canceled by user" when connecting takes too long.
constexpr std::string_view kNeverSent[] = {
    "Error resolving",
    "Failed to resolve",
    "Failed to connect",
    "Error in SSL handshake",
    "Request canceled by user",
    "Expected a 200 response from proxy",
    "Failed to send connect request to proxy",
    "Invalid HTTP status line during proxy connection",
    "Failed to read HTTP status line from proxy",
};
constexpr std::string_view kBeingSent = "Failed to write request";

bool StartsWithAny(std::string_view text) {
  for (const std::string_view start : kNeverSent)
    if (text.starts_with(start)) return true;
  return false;
}

unsigned long Packed(int number) { return static_cast<unsigned int>(number); }

// In TLS 1.3 the server refuses our certificate after the handshake, while the client waits for the response.
bool RefusedOurCertificate(int number) {
  if (ERR_GET_LIB(Packed(number)) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(Packed(number))) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

// Describes the number. TLS errors have OpenSSL's packed value, whose library part is far above any errno.
// Small numbers are ambiguous: name resolution and the system use the same ones.
std::string DescribeNumber(std::string_view stage, int number) {
  if (number == ETIMEDOUT) return "timed out";
  if (number == 0) return {};
  const unsigned long packed = Packed(number);
  if (RefusedOurCertificate(number)) {
    const char* reason = ERR_reason_error_string(packed);
    return std::string("the server rejects the client certificate, or requires one: ") +
           (reason == nullptr ? "TLS alert" : reason);
  }
  if (ERR_GET_LIB(packed) == ERR_LIB_SSL) {
    if (ERR_GET_REASON(packed) == SSL_R_CERTIFICATE_VERIFY_FAILED)
      return "the server's certificate is not trusted: wrong certificate authority, or it is not for this "
             "host name";
    const char* reason = ERR_reason_error_string(packed);
    return reason == nullptr ? "TLS error" : std::string("TLS: ") + reason;
  }
  if (stage.starts_with("Error resolving") || stage.starts_with("Failed to resolve")) return "no such host";
  switch (number) {
    case EHOSTUNREACH:
      return "connection refused or host unreachable";
    case EPERM:
    case ENOENT:
    case ECONNABORTED:
    case ECONNRESET:
    case EPIPE:
      return "the connection was closed";
    default:
      return fmt::format("error {}", number);
  }
}

}  // namespace

TransportFailure ClassifyFailure(std::string_view stage, int number, bool gave_up) {
  if (gave_up) return {{Code::kCancelled, "cancelled"}};
  std::string message(stage);
  while (!message.empty() && (message.back() == '.' || message.back() == ' ')) message.pop_back();
  if (message == "Request canceled by user") message = "Failed to connect";
  if (const std::string reason = DescribeNumber(stage, number); !reason.empty()) message += ": " + reason;
  const bool being_sent = stage.starts_with(kBeingSent);
  const Code code = being_sent || StartsWithAny(stage) || RefusedOurCertificate(number) ? Code::kUnavailable
                                                                                        : Code::kAmbiguous;
  return {{code, message}, being_sent};
}

}  // namespace ringmaster::kube
