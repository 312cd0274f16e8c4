// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/kube_client/faulty_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>

#include "base/check.h"

namespace ringmaster::kube {
namespace {

struct FreeTls {
  void operator()(SSL_CTX* value) const { SSL_CTX_free(value); }
  void operator()(SSL* value) const { SSL_free(value); }
  void operator()(BIO* value) const { BIO_free(value); }
  void operator()(X509* value) const { X509_free(value); }
  void operator()(EVP_PKEY* value) const { EVP_PKEY_free(value); }
};

class PlainConnection : public Connection {
 public:
  explicit PlainConnection(int fd) : fd_(fd) {}
  bool Write(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(put));
    }
    return true;
  }
  size_t Read(char* buffer, size_t size) override {
    const ssize_t got = ::recv(fd_, buffer, size, 0);
    return got > 0 ? static_cast<size_t>(got) : 0;
  }
  void Close() override { ::shutdown(fd_, SHUT_RDWR); }
  void Reset() override {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    // The descriptor's owner closes it, which sends the RST.
  }

 protected:
  const int fd_;
};

class TlsConnection final : public PlainConnection {
 public:
  TlsConnection(int fd, SSL* ssl) : PlainConnection(fd), ssl_(ssl) {}
  bool Write(std::string_view bytes) override {
    return bytes.empty() || SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  size_t Read(char* buffer, size_t size) override {
    const int got = SSL_read(ssl_, buffer, static_cast<int>(size));
    return got > 0 ? static_cast<size_t>(got) : 0;
  }

 private:
  SSL* const ssl_;
};

std::unique_ptr<BIO, FreeTls> PemReader(const std::string& text) {
  return std::unique_ptr<BIO, FreeTls>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::unique_ptr<SSL_CTX, FreeTls> TlsContext(const ServerOptions& options) {
  std::unique_ptr<SSL_CTX, FreeTls> context(SSL_CTX_new(TLS_server_method()));
  if (options.tls12) SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  const std::unique_ptr<X509, FreeTls> certificate(
      PEM_read_bio_X509(PemReader(options.identity.cert_pem).get(), nullptr, nullptr, nullptr));
  const std::unique_ptr<EVP_PKEY, FreeTls> key(
      PEM_read_bio_PrivateKey(PemReader(options.identity.key_pem).get(), nullptr, nullptr, nullptr));
  CHECK(SSL_CTX_use_certificate(context.get(), certificate.get()) == 1);
  CHECK(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  if (!options.client_ca.empty()) {
    const std::unique_ptr<X509, FreeTls> ca(
        PEM_read_bio_X509(PemReader(options.client_ca).get(), nullptr, nullptr, nullptr));
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

bool Connection::ReadRequest(SeenRequest& request, bool with_body) {
  char piece[16384];
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    const size_t got = Read(piece, sizeof piece);
    if (got == 0) return false;
    buffer_.append(piece, got);
  }
  std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  request = {};
  size_t line_end = head.find("\r\n");
  const std::string first = head.substr(0, line_end);
  const size_t space = first.find(' ');
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, first.rfind(' ') - space - 1);
  for (size_t at = line_end + 2; at < head.size(); at = line_end + 2) {
    line_end = head.find("\r\n", at);
    const std::string line = head.substr(at, line_end - at);
    const size_t colon = line.find(':');
    std::string value = line.substr(colon + 1);
    value.erase(0, value.find_first_not_of(' '));
    request.headers[Lower(line.substr(0, colon))] = value;
  }
  const auto length = request.headers.find("content-length");
  if (!with_body || length == request.headers.end()) return true;
  const size_t size = std::stoul(length->second);
  while (buffer_.size() < size) {
    const size_t got = Read(piece, sizeof piece);
    if (got == 0) return false;
    buffer_.append(piece, got);
  }
  request.body = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return true;
}

void Connection::Linger() {
  char piece[4096];
  while (Read(piece, sizeof piece) > 0) {
  }
}

FaultyServer::FaultyServer(Handler handler, Options options)
    : options_(std::move(options)), handler_(std::move(handler)) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  const bool six = options_.host.find(':') != std::string::npos;
  listener_ = Fd(::socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  if (six) {
    auto* of = reinterpret_cast<sockaddr_in6*>(&address);
    of->sin6_family = AF_INET6;
    inet_pton(AF_INET6, options_.host.c_str(), &of->sin6_addr);
    size = sizeof(sockaddr_in6);
  } else {
    auto* of = reinterpret_cast<sockaddr_in*>(&address);
    of->sin_family = AF_INET;
    inet_pton(AF_INET, options_.host.c_str(), &of->sin_addr);
  }
  CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::listen(listener_.get(), 128) == 0);
  CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(six ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                    : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

FaultyServer::~FaultyServer() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    for (const int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

std::string FaultyServer::Url() const {
  const std::string host =
      options_.host.find(':') == std::string::npos ? options_.host : "[" + options_.host + "]";
  return fmt::format("{}://{}:{}", options_.identity.cert_pem.empty() ? "http" : "https", host, port_);
}

void FaultyServer::Accept() {
  while (true) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    std::lock_guard lock(mutex_);
    if (closed_ || fd < 0) {
      if (fd >= 0) ::close(fd);
      if (closed_) return;
      continue;
    }
    sockets_.insert(fd);
    const int index = connections_++;
    threads_.emplace_back([this, fd, index] {
      {
        if (options_.identity.cert_pem.empty()) {
          PlainConnection connection(fd);
          handler_(connection, index);
        } else {
          const auto context = TlsContext(options_);
          const std::unique_ptr<SSL, FreeTls> ssl(SSL_new(context.get()));
          SSL_set_fd(ssl.get(), fd);
          if (SSL_accept(ssl.get()) == 1) {
            TlsConnection connection(fd, ssl.get());
            handler_(connection, index);
          }
        }
      }
      std::lock_guard inner(mutex_);
      sockets_.erase(fd);
      ::close(fd);
    });
  }
}

std::string Answer(int status, std::string_view body, std::string_view more_headers) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                     status, body.size(), more_headers, body);
}

std::string ChunkedHead() {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
}

std::string Chunk(std::string_view bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

}  // namespace ringmaster::kube
