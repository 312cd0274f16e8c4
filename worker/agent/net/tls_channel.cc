// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <csignal>
#include <cstring>

#include "worker/agent/net/byte_channel.h"

namespace ringmaster::agent {
namespace {

// Initializes OpenSSL without its configuration file: the file that the image or the user's environment names
// is for other programs, and may ask for modules that this one cannot load.
void InitializeOpenssl() {
  ::OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  // OpenSSL writes without MSG_NOSIGNAL: writing to a closed connection must be an error and not end the
  // process.
  ::signal(SIGPIPE, SIG_IGN);
}

class TlsChannel final : public ByteChannel {
 public:
  explicit TlsChannel(Fd fd) : fd_(std::move(fd)) {}
  ~TlsChannel() override {
    if (ssl_ != nullptr) ::SSL_free(ssl_);
    if (context_ != nullptr) ::SSL_CTX_free(context_);
  }
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  Status Open(const std::string& ca_file, const std::string& host) {
    ::ERR_clear_error();
    context_ = ::SSL_CTX_new(::TLS_client_method());
    if (context_ == nullptr) return Problem(Code::kUnavailable, "TLS");
    SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
    SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (::SSL_CTX_load_verify_locations(context_, ca_file.c_str(), nullptr) != 1) {
      return Problem(Code::kInvalid, ca_file + ": no CA certificate");
    }
    ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = ::SSL_new(context_);
    if (ssl_ == nullptr || ::SSL_set_fd(ssl_, fd_.get()) != 1) return Problem(Code::kUnavailable, "TLS");
    // The certificate must be for the address or the name that the agent connects to.
    if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(ssl_), host.c_str()) != 1) {
      ::ERR_clear_error();
      if (::SSL_set1_host(ssl_, host.c_str()) != 1) return Problem(Code::kInvalid, "host " + host);
      SSL_set_tlsext_host_name(ssl_, host.c_str());
    }
    return Ok();
  }

  Status OpenWithKey(const std::string& key, bool server) {
    ::ERR_clear_error();
    key_ = key;
    context_ = ::SSL_CTX_new(server ? ::TLS_server_method() : ::TLS_client_method());
    if (context_ == nullptr) return Problem(Code::kUnavailable, "TLS");
    SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
    SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    ::SSL_CTX_set_num_tickets(context_, 0);
    // A client trusts no certificate: only the key authenticates.
    ::SSL_CTX_set_verify(context_, server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_set_psk_client_callback(context_, GiveKeyToServer);
    ::SSL_CTX_set_psk_server_callback(context_, GiveKeyToClient);
    ssl_ = ::SSL_new(context_);
    if (ssl_ == nullptr || ::SSL_set_fd(ssl_, fd_.get()) != 1 || SSL_set_app_data(ssl_, this) != 1)
      return Problem(Code::kUnavailable, "TLS");
    if (server)
      ::SSL_set_accept_state(ssl_);
    else
      ::SSL_set_connect_state(ssl_);
    return Ok();
  }

  int fd() const override { return fd_.get(); }

  Result<bool> Handshake() override {
    ::ERR_clear_error();
    const int rc = key_.empty() ? ::SSL_connect(ssl_) : ::SSL_do_handshake(ssl_);
    if (rc == 1) return true;
    if (WouldBlock(rc)) return false;
    if (!key_.empty()) return Problem(Code::kForbidden, "TLS handshake");
    if (const long result = ::SSL_get_verify_result(ssl_); result != X509_V_OK) {
      return Error{Code::kForbidden, fmt::format("TLS: the coordinator's certificate: {}",
                                                 ::X509_verify_cert_error_string(result))};
    }
    return Problem(Code::kUnavailable, "TLS handshake");
  }

  Result<size_t> Send(const char* data, size_t size) override {
    ::ERR_clear_error();
    size_t sent = 0;
    const int rc = ::SSL_write_ex(ssl_, data, size, &sent);
    if (rc == 1) return sent;
    if (WouldBlock(rc)) return size_t{0};
    return Problem(Code::kUnavailable, "TLS send");
  }

  Result<size_t> Receive(char* into, size_t size) override {
    ::ERR_clear_error();
    size_t got = 0;
    const int rc = ::SSL_read_ex(ssl_, into, size, &got);
    if (rc == 1) return got;
    if (WouldBlock(rc)) return size_t{0};
    const int why = ::SSL_get_error(ssl_, rc);
    // The server closes without a TLS shutdown. Frames carry their length, so truncation is detected.
    if (why == SSL_ERROR_ZERO_RETURN || why == SSL_ERROR_SYSCALL || why == SSL_ERROR_SSL) {
      return Error{Code::kGone, "closed by the other side"};
    }
    return Problem(Code::kUnavailable, "TLS receive");
  }

 private:
  static constexpr const char* kIdentity = "ringmaster";

  unsigned CopyKey(unsigned char* into, unsigned size) const {
    if (key_.size() > size) return 0;
    std::memcpy(into, key_.data(), key_.size());
    return static_cast<unsigned>(key_.size());
  }
  static unsigned GiveKeyToServer(SSL* ssl, const char*, char* identity, unsigned identity_size,
                                  unsigned char* key, unsigned key_size) {
    if (identity_size < std::strlen(kIdentity) + 1) return 0;
    std::strcpy(identity, kIdentity);
    return static_cast<const TlsChannel*>(SSL_get_app_data(ssl))->CopyKey(key, key_size);
  }
  static unsigned GiveKeyToClient(SSL* ssl, const char*, unsigned char* key, unsigned key_size) {
    return static_cast<const TlsChannel*>(SSL_get_app_data(ssl))->CopyKey(key, key_size);
  }

  bool WouldBlock(int rc) const {
    const int why = ::SSL_get_error(ssl_, rc);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
  }
  Error Problem(Code code, const std::string& what) const {
    char text[256] = "no reason given";
    if (const unsigned long error = ::ERR_get_error(); error != 0)
      ::ERR_error_string_n(error, text, sizeof text);
    return Error{code, what + ": " + text};
  }

  Fd fd_;
  std::string key_;  // empty: the server has a certificate
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<ByteChannel>> MakeTlsChannel(Fd fd, const std::string& ca_file,
                                                    const std::string& host) {
  InitializeOpenssl();
  auto channel = std::make_unique<TlsChannel>(std::move(fd));
  RM_TRY(channel->Open(ca_file, host));
  return std::unique_ptr<ByteChannel>(std::move(channel));
}

Result<std::unique_ptr<ByteChannel>> MakeSharedKeyChannel(Fd fd, const std::string& key, bool server) {
  InitializeOpenssl();
  if (key.empty()) return Error{Code::kInvalid, "TLS: the key is empty"};
  auto channel = std::make_unique<TlsChannel>(std::move(fd));
  RM_TRY(channel->OpenWithKey(key, server));
  return std::unique_ptr<ByteChannel>(std::move(channel));
}

}  // namespace ringmaster::agent
