// SPDX-License-Identifier: Apache-2.0

// The transport's TLS: which servers it trusts, which certificates it sends, and proxies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

#include "base/base64.h"
#include "operator/kube/cpprest_http.h"
#include "tests/unit/kube_client/faulty_server.h"
#include "tests/unit/kube_client/waiting.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

void AnswerAll(Connection& connection) {
  SeenRequest request;
  while (connection.ReadRequest(request))
    if (!connection.Write(Answer(200, "{}"))) return;
}

Result<HttpResponse> Ask(const ClientConfig& config, const std::string& method = "GET") {
  TransportOptions options;
  options.silence = seconds(20);
  auto client = MakeHttpClient(config, options);
  if (!client.ok()) return client.error();
  auto answer = std::make_shared<Promise<Result<HttpResponse>>>();
  (*client)->Send({.method = method, .target = "/version"},
                  [answer](Result<HttpResponse> result) { answer->Set(std::move(result)); });
  return answer->Get();
}

class Tls : public ::testing::Test {
 protected:
  Tls() : authority_(MakeAuthority("cluster")), other_(MakeAuthority("other")) {}

  ServerOptions Serve(const std::vector<std::string>& names) {
    return {.identity = Issue(authority_, "kube-apiserver", names)};
  }
  ClientConfig Config(const FaultyServer& server) {
    ClientConfig config;
    config.server = server.Url();
    config.ca_pem = authority_.cert_pem;
    return config;
  }
  static void Handle(Connection& connection, int) { AnswerAll(connection); }

  const TestIdentity authority_;
  const TestIdentity other_;
};

void ExpectNotTrusted(const Result<HttpResponse>& answer) {
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_THAT(answer.error().message, HasSubstr("certificate is not trusted"));
}

TEST_F(Tls, TrustsTheAuthorityForItsAddress) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  const auto answer = Ask(Config(server));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
}

TEST_F(Tls, TrustsTheAuthorityForItsIPv6Address) {
  ServerOptions options = Serve({"IP:::1"});
  options.host = "::1";
  FaultyServer server(Handle, options);
  const auto answer = Ask(Config(server));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
}

TEST_F(Tls, RejectsAnotherAuthority) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  ClientConfig config = Config(server);
  config.ca_pem = other_.cert_pem;
  ExpectNotTrusted(Ask(config));
}

TEST_F(Tls, RejectsAServerThatTheSystemDoesNotTrust) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  ClientConfig config = Config(server);
  config.ca_pem.clear();
  ExpectNotTrusted(Ask(config));
}

// The system's authorities are not trusted in addition to the cluster's: here one of them signed the server.
TEST_F(Tls, DoesNotTrustTheSystemsAuthorities) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  char name[] = "/tmp/ringmaster-ca-XXXXXX";
  const Fd file(::mkstemp(name));
  ASSERT_EQ(::write(file.get(), authority_.cert_pem.data(), authority_.cert_pem.size()),
            static_cast<ssize_t>(authority_.cert_pem.size()));
  ::setenv("SSL_CERT_FILE", name, 1);
  ClientConfig config = Config(server);
  config.ca_pem = other_.cert_pem;
  ExpectNotTrusted(Ask(config));
  config.ca_pem.clear();
  const auto answer = Ask(config);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  ::unsetenv("SSL_CERT_FILE");
  ::unlink(name);
}

TEST_F(Tls, RejectsACertificateForAnotherHost) {
  FaultyServer server(Handle, Serve({"DNS:kubernetes.default.svc", "IP:10.0.0.1"}));
  ExpectNotTrusted(Ask(Config(server)));
}

TEST_F(Tls, ChecksTheTlsServerName) {
  FaultyServer server(Handle, Serve({"DNS:kubernetes.default.svc"}));
  ClientConfig config = Config(server);
  config.tls_server_name = "kubernetes.default.svc";
  const auto answer = Ask(config);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  config.tls_server_name = "kubernetes.other.svc";
  ExpectNotTrusted(Ask(config));
}

TEST_F(Tls, AcceptsAnyCertificateWithSkipVerify) {
  FaultyServer server(Handle, Serve({"IP:10.0.0.1"}));
  ClientConfig config = Config(server);
  config.ca_pem.clear();
  config.insecure_skip_tls_verify = true;
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Ask(config).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("insecure-skip-tls-verify"));
}

TEST_F(Tls, SendsItsClientCertificate) {
  for (const bool tls12 : {true, false}) {
    ServerOptions options = Serve({"IP:127.0.0.1"});
    options.client_ca = authority_.cert_pem;
    options.tls12 = tls12;
    FaultyServer server(Handle, options);
    ClientConfig config = Config(server);
    const TestIdentity own = Issue(authority_, "system:admin", {});
    config.client_cert_pem = own.cert_pem;
    config.client_key_pem = own.key_pem;
    const auto answer = Ask(config);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
  }
}

TEST_F(Tls, RejectedClientCertificateIsUnavailable) {
  for (const bool tls12 : {true, false}) {
    for (const bool with_wrong_one : {true, false}) {
      ServerOptions options = Serve({"IP:127.0.0.1"});
      options.client_ca = authority_.cert_pem;
      options.tls12 = tls12;
      FaultyServer server(Handle, options);
      ClientConfig config = Config(server);
      const TestIdentity wrong = Issue(other_, "system:admin", {});
      if (with_wrong_one) config.client_cert_pem = wrong.cert_pem, config.client_key_pem = wrong.key_pem;
      const auto answer = Ask(config, "POST");
      ASSERT_FALSE(answer.ok());
      EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message << " tls12=" << tls12;
    }
  }
}

class WithCertificate final : public TokenSource {
 public:
  explicit WithCertificate(KeyPair pair) : pair_(std::move(pair)) {}
  Result<std::string> Token() override { return std::string(); }
  std::optional<KeyPair> Certificate() override { return pair_; }

 private:
  const KeyPair pair_;
};

TEST_F(Tls, SendsTheCertificateOfItsTokenSource) {
  ServerOptions options = Serve({"IP:127.0.0.1"});
  options.client_ca = authority_.cert_pem;
  FaultyServer server(Handle, options);
  ClientConfig config = Config(server);
  const TestIdentity own = Issue(authority_, "system:admin", {});
  config.token = std::make_shared<WithCertificate>(KeyPair{own.cert_pem, own.key_pem});
  const auto answer = Ask(config);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

TEST_F(Tls, PlainHttpServerIsUnavailable) {
  FaultyServer server([](Connection& connection, int) {
    char bytes[100];
    connection.Read(bytes, sizeof bytes);
    connection.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  ClientConfig config = Config(server);
  config.server = fmt::format("https://127.0.0.1:{}", server.port());
  const auto answer = Ask(config, "POST");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
}

TEST_F(Tls, InvalidCertificatesFailAtOnce) {
  ClientConfig config;
  config.server = "https://127.0.0.1:1";
  config.ca_pem = "no certificate";
  EXPECT_EQ(MakeHttpClient(config).error().message,
            "certificate authority: holds no PEM certificate (-----BEGIN CERTIFICATE-----)");
  config.ca_pem = authority_.cert_pem;
  config.client_cert_pem = Issue(authority_, "a", {}).cert_pem;
  config.client_key_pem = Issue(authority_, "b", {}).key_pem;
  EXPECT_EQ(MakeHttpClient(config).error().message, "client key: is not the key of the client certificate");
}

// ---- proxies

// Copies bytes between a client and `port` until either disconnects.
void Tunnel(Connection& client, uint16_t port) {
  const Fd upstream(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(upstream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
  std::thread back([&] {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(upstream.get(), bytes, sizeof bytes, 0)) > 0)
      if (!client.Write({bytes, static_cast<size_t>(got)})) break;
    client.Close();
  });
  char bytes[4096];
  size_t got = 0;
  while ((got = client.Read(bytes, sizeof bytes)) > 0)
    if (::send(upstream.get(), bytes, got, MSG_NOSIGNAL) <= 0) break;
  ::shutdown(upstream.get(), SHUT_RDWR);
  back.join();
}

TEST_F(Tls, ConnectsThroughAProxy) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  Promise<SeenRequest> seen;
  FaultyServer proxy([&](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    seen.Set(request);
    connection.Write("HTTP/1.1 200 Connection established\r\n\r\n");
    Tunnel(connection, server.port());
  });
  ClientConfig config = Config(server);
  config.proxy_url = fmt::format("http://me:p%40ss@127.0.0.1:{}", proxy.port());
  const auto answer = Ask(config);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(seen.Get().method, "CONNECT");
  EXPECT_EQ(seen.Get().target, fmt::format("127.0.0.1:{}", server.port()));
  EXPECT_EQ(seen.Get().headers["proxy-authorization"], "Basic " + EncodeBase64("me:p@ss"));
}

TEST_F(Tls, RefusingProxyIsUnavailable) {
  FaultyServer server(Handle, Serve({"IP:127.0.0.1"}));
  for (const bool answers : {true, false}) {
    FaultyServer proxy([&](Connection& connection, int) {
      SeenRequest request;
      if (connection.ReadRequest(request) && answers)
        connection.Write("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    });
    ClientConfig config = Config(server);
    config.proxy_url = fmt::format("http://127.0.0.1:{}", proxy.port());
    const auto answer = Ask(config, "POST");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
    EXPECT_THAT(answer.error().message, HasSubstr("proxy"));
  }
  EXPECT_EQ(server.connections(), 0);
}

}  // namespace
}  // namespace ringmaster::kube
