// SPDX-License-Identifier: Apache-2.0

// kubeconfig files as users have them: merged, with inline data or files, and with errors.
#include "operator/kube/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/base64.h"
#include "base/file.h"
#include "tests/temp_folder.h"
#include "tests/unit/kube_client/certificates.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWhole = R"(apiVersion: v1
kind: Config
current-context: dev
preferences: {}
clusters:
- name: c1
  cluster: {server: "https://one:6443", insecure-skip-tls-verify: true, tls-server-name: other, proxy-url: "http://p:1"}
- name: c2
  cluster: {server: "https://two:6443"}
users:
- name: u1
  user: {token: secret-1, as: boss}
- name: u2
  user: {}
contexts:
- name: dev
  context: {cluster: c1, user: u1, namespace: team}
- name: prod
  context: {cluster: c2, user: u2}
- name: anonymous
  context: {cluster: c2, user: ""}
)";

TEST(Kubeconfig, ContextBecomesAConfig) {
  const Kubeconfig kubeconfig = ParseKubeconfig(kWhole, "/k/config").value();
  const ClientConfig dev = ToClientConfig(kubeconfig, "").value();
  EXPECT_EQ(dev.server, "https://one:6443");
  EXPECT_TRUE(dev.insecure_skip_tls_verify);
  EXPECT_EQ(dev.tls_server_name, "other");
  EXPECT_EQ(dev.proxy_url, "http://p:1");
  EXPECT_EQ(dev.namespace_, "team");
  EXPECT_EQ(dev.impersonate_user, "boss");
  EXPECT_EQ(dev.token->Token().value(), "secret-1");
  const ClientConfig prod = ToClientConfig(kubeconfig, "prod").value();
  EXPECT_EQ(prod.server, "https://two:6443");
  EXPECT_EQ(prod.namespace_, "default");
  EXPECT_EQ(prod.token, nullptr);
  EXPECT_TRUE(ToClientConfig(kubeconfig, "anonymous").ok());
}

// Each case puts an error into one line; the message must name place and problem.
TEST(Kubeconfig, ErrorsNameFileLineAndProblem) {
  struct {
    std::string from;
    std::string to;
    std::string message;
  } const cases[] = {
      {"current-context: dev\n", "",
       "/k/config: current-context is not set; choose a context (available: anonymous, dev, prod)"},
      {"current-context: dev", "current-context: none",
       "/k/config: there is no context \"none\" (available: anonymous, dev, prod)"},
      {"cluster: c1, user", "cluster: c9, user",
       "/k/config:16: context \"dev\": its cluster \"c9\" is not in /k/config (available: c1, c2)"},
      {"cluster: c1, user", "user", "/k/config:16: context \"dev\": names no cluster"},
      {"user: u1,", "user: u9,",
       "/k/config:16: context \"dev\": its user \"u9\" is not in /k/config (available: u1, u2)"},
      {"server: \"https://one:6443\", ", "", "/k/config:6: cluster \"c1\": has no server"},
      {"https://one:6443", "one:6443",
       "/k/config:6: cluster \"c1\": server: the URL has no scheme; expected https://host:port"},
      {"https://one:6443", "https://a:b@one:6443",
       "/k/config:6: cluster \"c1\": server: a name or password in the URL is not supported"},
      {"insecure-skip-tls-verify: true", "insecure-skip-tls-verify: 1",
       "/k/config:7: insecure-skip-tls-verify: expected true or false, found 1"},
      {"insecure-skip-tls-verify: true", "insecure-skip-tls-verify: true, certificate-authority-data: eA==",
       "/k/config:6: cluster \"c1\": has both insecure-skip-tls-verify and a certificate-authority: remove "
       "one of them"},
      {"insecure-skip-tls-verify: true", "certificate-authority-data: eA==",
       "/k/config:6: cluster \"c1\": certificate-authority: holds no PEM certificate (-----BEGIN "
       "CERTIFICATE-----)"},
      {"insecure-skip-tls-verify: true", "certificate-authority-data: \"@\"",
       "/k/config:6: cluster \"c1\": certificate-authority-data: not valid base64"},
      {"insecure-skip-tls-verify: true", "certificate-authority: missing.crt",
       "/k/config:6: cluster \"c1\": certificate-authority: open /k/missing.crt: No such file or directory"},
      {"token: secret-1", "token: [secret-1]", "/k/config:12: token: expected text, found something else"},
      {"token: secret-1", "client-certificate: /nowhere/a.crt",
       "/k/config:11: user \"u1\": client-certificate: open /nowhere/a.crt: No such file or directory"},
      {"token: secret-1",
       "client-key-data: eA==", "/k/config:11: user \"u1\": has a client-key and no client-certificate"},
      {"token: secret-1", "client-certificate-data: eA==",
       "/k/config:11: user \"u1\": has a client-certificate and no client-key"},
      {"token: secret-1", "tokenFile: /nowhere/token",
       "/k/config:11: user \"u1\": tokenFile: open /nowhere/token: No such file or directory"},
      {"token: secret-1", "username: me, password: secret-1",
       "/k/config:11: user \"u1\": username is not supported; supported are token, tokenFile, "
       "client-certificate with "
       "client-key, exec, as"},
      {"token: secret-1", "auth-provider: {name: gcp}",
       "/k/config:11: user \"u1\": auth-provider is not supported; supported are token, tokenFile, "
       "client-certificate "
       "with client-key, exec, as"},
      {"token: secret-1", "exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}",
       "/k/config:11: user \"u1\": exec: apiVersion \"client.authentication.k8s.io/v1alpha1\" is not "
       "supported, "
       "client.authentication.k8s.io/v1 and v1beta1 are"},
      {"token: secret-1",
       "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}",
       "/k/config:11: user \"u1\": exec: x requires a terminal (interactiveMode: Always), which is not "
       "available; use a token or a client certificate"},
      {"token: secret-1", "exec: {apiVersion: client.authentication.k8s.io/v1}",
       "/k/config:11: user \"u1\": exec has no command"},
      {"- name: u1\n", "- nam: u1\n", "/k/config:11: users: an entry without a name"},
      {"kind: Config", "kind: Pod", "/k/config: not a kubeconfig: kind is Pod, not Config"},
      {"clusters:\n- name: c1\n", "clusters:\n- c0\n- name: c1\n",
       "/k/config:6: clusters: expected a map with name and cluster"},
  };
  for (const auto& one : cases) {
    std::string text = kWhole;
    const size_t at = text.find(one.from);
    ASSERT_NE(at, std::string::npos) << one.from;
    text.replace(at, one.from.size(), one.to);
    const Result<Kubeconfig> parsed = ParseKubeconfig(text, "/k/config");
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().message, one.message);
      continue;
    }
    const Result<ClientConfig> config = ToClientConfig(*parsed, "");
    ASSERT_FALSE(config.ok()) << one.message;
    EXPECT_EQ(config.error().message, one.message);
    EXPECT_EQ(config.error().message.find("secret"), std::string::npos);
  }
}

TEST(Kubeconfig, RejectsOtherFiles) {
  for (const char* text : {"a: [", "- 1", "just text", "a: 1\na: 2"}) {
    const auto parsed = ParseKubeconfig(text, "/k/config");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(parsed.error().message.starts_with("/k/config:")) << parsed.error().message;
  }
  EXPECT_TRUE(ParseKubeconfig("", "/k/config").ok());
  EXPECT_TRUE(ParseKubeconfig("clusters: null\nusers: []\n", "/k/config").ok());
}

TEST(Kubeconfig, ErrorsInAnUnusedUserAreIgnored) {
  std::string text = kWhole;
  text.replace(text.find("user: {}"), 8, "user: {auth-provider: {name: gcp}}");
  const Kubeconfig kubeconfig = ParseKubeconfig(text, "/k/config").value();
  EXPECT_TRUE(ToClientConfig(kubeconfig, "dev").ok());
  EXPECT_FALSE(ToClientConfig(kubeconfig, "prod").ok());
}

TEST(Kubeconfig, FirstFileWithAnEntryWins) {
  const Kubeconfig first = ParseKubeconfig(R"(
clusters: [{name: c, cluster: {server: "https://first"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
)",
                                           "/k/first")
                               .value();
  const Kubeconfig second = ParseKubeconfig(R"(
current-context: x
clusters:
- {name: c, cluster: {server: "https://second", tls-server-name: of-the-second}}
- {name: d, cluster: {server: "https://d"}}
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: d}}, {name: w, context: {cluster: d, user: u}}]
)",
                                            "/k/second")
                                .value();
  const Kubeconfig merged = Merge(first, second);
  const ClientConfig x = ToClientConfig(merged, "").value();
  EXPECT_EQ(x.server, "https://first");
  EXPECT_EQ(x.tls_server_name, "");
  EXPECT_EQ(x.token->Token().value(), "t");
  EXPECT_EQ(ToClientConfig(merged, "w")->server, "https://d");
  EXPECT_EQ(ToClientConfig(merged, "z").error().message,
            "/k/first:/k/second: there is no context \"z\" (available: w, x)");
}

// ---- with files

class Files : public ::testing::Test {
 protected:
  Files() {
    for (const char* variable : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"}) {
      const char* value = std::getenv(variable);
      before_.emplace_back(variable, value == nullptr ? "" : value);
      ::unsetenv(variable);
    }
    ::setenv("HOME", folder_.c_str(), 1);
  }
  ~Files() override {
    for (const auto& [variable, value] : before_)
      if (!value.empty()) ::setenv(variable.c_str(), value.c_str(), 1);
  }
  std::string Write(const std::string& name, const std::string& text) { return temporary_.Write(name, text); }
  static std::string Small(const std::string& name) {
    return fmt::format(
        "current-context: {0}\nclusters: [{{name: {0}, cluster: {{server: \"https://{0}\"}}}}]\n"
        "contexts: [{{name: {0}, context: {{cluster: {0}}}}}]\n",
        name);
  }
  const TempFolder temporary_;
  const std::string folder_ = temporary_.path();

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(Files, RelativePathsStartAtTheConfig) {
  const TestIdentity authority = MakeAuthority("cluster");
  const TestIdentity own = Issue(authority, "me", {});
  Write("pki/ca.crt", authority.cert_pem);
  Write("pki/me.crt", own.cert_pem);
  Write("pki/token", "t-1\n");
  const std::string path = Write("config", fmt::format(R"(
current-context: x
clusters: [{{name: c, cluster: {{server: "https://c", certificate-authority: pki/ca.crt}}}}]
users: [{{name: u, user: {{client-certificate: pki/me.crt, client-key-data: {}, token: old, tokenFile: pki/token}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
)",
                                                       EncodeBase64(own.key_pem)));
  const auto config = LoadConfig({.kubeconfig_paths = {path}});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->ca_pem, authority.cert_pem);
  EXPECT_EQ(config->client_cert_pem, own.cert_pem);
  EXPECT_EQ(config->client_key_pem, own.key_pem);
  EXPECT_EQ(config->token->Token().value(), "t-1");
  Write("pki/token", "t-2");
  EXPECT_EQ(config->token->Token().value(), "t-2");
}

TEST_F(Files, AreFoundWhereKubectlFindsThem) {
  Write(".kube/config", Small("home"));
  EXPECT_EQ(LoadConfig({})->server, "https://home");
  const std::string a = Write("a", Small("a"));
  const std::string b = Write("b", Small("b"));
  ::setenv("KUBECONFIG", (":" + folder_ + "/missing:" + a + ":" + b).c_str(), 1);
  EXPECT_EQ(LoadConfig({})->server, "https://a");
  EXPECT_EQ(LoadConfig({.context = "b"})->server, "https://b");
  EXPECT_EQ(LoadConfig({.kubeconfig_paths = {b}})->server, "https://b");
  const auto missing = LoadConfig({.kubeconfig_paths = {folder_ + "/missing"}});
  EXPECT_EQ(missing.error().message, "kubeconfig: open " + folder_ + "/missing: No such file or directory");
}

TEST_F(Files, MissingFilesErrorNamesThePaths) {
  const auto none = LoadConfig({});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "no kubeconfig found (looked for " + folder_ +
                "/.kube/config), and not running in a pod (KUBERNETES_SERVICE_HOST is not set); set "
                "KUBECONFIG");
}

}  // namespace
}  // namespace ringmaster::kube
