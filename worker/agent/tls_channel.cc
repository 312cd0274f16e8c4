// SPDX-License-Identifier: Apache-2.0

#include <dlfcn.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <csignal>

#include "worker/agent/byte_channel.h"

namespace ringmaster::agent {
namespace {

// The functions of libssl and libcrypto that the agent uses, looked up by name.
struct Openssl {
// clang-format off
#define RM_SSL_FUNCTIONS(X)                                                                         \
  X(TLS_client_method) X(SSL_CTX_new) X(SSL_CTX_free) X(SSL_CTX_ctrl) X(SSL_CTX_set_verify)         \
  X(SSL_CTX_load_verify_locations) X(SSL_new) X(SSL_free) X(SSL_ctrl) X(SSL_set_fd)                 \
  X(SSL_set1_host) X(SSL_get0_param) X(SSL_connect) X(SSL_read_ex) X(SSL_write_ex) X(SSL_get_error) \
  X(SSL_get_verify_result)
#define RM_CRYPTO_FUNCTIONS(X)                                                                      \
  X(ERR_get_error) X(ERR_clear_error) X(ERR_error_string_n) X(X509_VERIFY_PARAM_set1_ip_asc)        \
  X(X509_verify_cert_error_string)
// clang-format on
#define RM_DECLARE(name) decltype(&::name) name = nullptr;
  RM_SSL_FUNCTIONS(RM_DECLARE)
  RM_CRYPTO_FUNCTIONS(RM_DECLARE)
#undef RM_DECLARE
};

// Only the first call is expensive: the libraries stay loaded.
Result<Openssl> Load() {
  Openssl functions;
  void* ssl = ::dlopen("libssl.so.3", RTLD_NOW | RTLD_GLOBAL);
  void* crypto = ::dlopen("libcrypto.so.3", RTLD_NOW | RTLD_GLOBAL);
  if (ssl == nullptr || crypto == nullptr) {
    const char* why = ::dlerror();
    return Error{Code::kUnavailable,
                 fmt::format("TLS needs libssl.so.3: {}", why != nullptr ? why : "not found")};
  }
#define RM_LOOK_UP(library, name)                                                       \
  functions.name = reinterpret_cast<decltype(functions.name)>(::dlsym(library, #name)); \
  if (functions.name == nullptr) return Error{Code::kUnavailable, "this libssl lacks " #name};
#define RM_LOOK_UP_SSL(name) RM_LOOK_UP(ssl, name)
#define RM_LOOK_UP_CRYPTO(name) RM_LOOK_UP(crypto, name)
  RM_SSL_FUNCTIONS(RM_LOOK_UP_SSL)
  RM_CRYPTO_FUNCTIONS(RM_LOOK_UP_CRYPTO)
#undef RM_LOOK_UP
#undef RM_LOOK_UP_SSL
#undef RM_LOOK_UP_CRYPTO
  // libssl writes without MSG_NOSIGNAL: writing to a closed connection must be an error and not end the
  // process.
  ::signal(SIGPIPE, SIG_IGN);
  return functions;
}

class TlsChannel final : public ByteChannel {
 public:
  TlsChannel(const Openssl& api, Fd fd) : api_(api), fd_(std::move(fd)) {}
  ~TlsChannel() override {
    if (ssl_ != nullptr) api_.SSL_free(ssl_);
    if (context_ != nullptr) api_.SSL_CTX_free(context_);
  }
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  Status Open(const std::string& ca_file, const std::string& host) {
    api_.ERR_clear_error();
    context_ = api_.SSL_CTX_new(api_.TLS_client_method());
    if (context_ == nullptr) return Problem(Code::kUnavailable, "TLS");
    api_.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
    api_.SSL_CTX_ctrl(context_, SSL_CTRL_MODE,
                      SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, nullptr);
    if (api_.SSL_CTX_load_verify_locations(context_, ca_file.c_str(), nullptr) != 1) {
      return Problem(Code::kInvalid, ca_file + ": no CA certificate");
    }
    api_.SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ssl_ = api_.SSL_new(context_);
    if (ssl_ == nullptr || api_.SSL_set_fd(ssl_, fd_.get()) != 1) return Problem(Code::kUnavailable, "TLS");
    // The certificate must be for the address or the name that the agent connects to.
    if (api_.X509_VERIFY_PARAM_set1_ip_asc(api_.SSL_get0_param(ssl_), host.c_str()) != 1) {
      api_.ERR_clear_error();
      if (api_.SSL_set1_host(ssl_, host.c_str()) != 1) return Problem(Code::kInvalid, "host " + host);
      api_.SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    const_cast<char*>(host.c_str()));
    }
    return Ok();
  }

  int fd() const override { return fd_.get(); }

  Result<bool> Handshake() override {
    api_.ERR_clear_error();
    const int rc = api_.SSL_connect(ssl_);
    if (rc == 1) return true;
    if (WouldBlock(rc)) return false;
    if (const long result = api_.SSL_get_verify_result(ssl_); result != X509_V_OK) {
      return Error{Code::kForbidden, fmt::format("TLS: the coordinator's certificate: {}",
                                                 api_.X509_verify_cert_error_string(result))};
    }
    return Problem(Code::kUnavailable, "TLS handshake");
  }

  Result<size_t> Send(const char* data, size_t size) override {
    api_.ERR_clear_error();
    size_t sent = 0;
    const int rc = api_.SSL_write_ex(ssl_, data, size, &sent);
    if (rc == 1) return sent;
    if (WouldBlock(rc)) return size_t{0};
    return Problem(Code::kUnavailable, "TLS send");
  }

  Result<size_t> Receive(char* into, size_t size) override {
    api_.ERR_clear_error();
    size_t got = 0;
    const int rc = api_.SSL_read_ex(ssl_, into, size, &got);
    if (rc == 1) return got;
    if (WouldBlock(rc)) return size_t{0};
    const int why = api_.SSL_get_error(ssl_, rc);
    // The server closes without a TLS shutdown. Frames carry their length, so truncation is detected.
    if (why == SSL_ERROR_ZERO_RETURN || why == SSL_ERROR_SYSCALL || why == SSL_ERROR_SSL) {
      return Error{Code::kGone, "closed by the other side"};
    }
    return Problem(Code::kUnavailable, "TLS receive");
  }

 private:
  bool WouldBlock(int rc) const {
    const int why = api_.SSL_get_error(ssl_, rc);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
  }
  Error Problem(Code code, const std::string& what) const {
    char text[256] = "no reason given";
    if (const unsigned long error = api_.ERR_get_error(); error != 0)
      api_.ERR_error_string_n(error, text, sizeof text);
    return Error{code, what + ": " + text};
  }

  const Openssl api_;
  Fd fd_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<ByteChannel>> MakeTlsChannel(Fd fd, const std::string& ca_file,
                                                    const std::string& host) {
  RM_ASSIGN(const Openssl api, Load());
  auto channel = std::make_unique<TlsChannel>(api, std::move(fd));
  RM_TRY(channel->Open(ca_file, host));
  return std::unique_ptr<ByteChannel>(std::move(channel));
}

}  // namespace ringmaster::agent
