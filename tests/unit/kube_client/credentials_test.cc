// SPDX-License-Identifier: Apache-2.0

// Sources of tokens: files that change, plugins, the service account folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "operator/kube/exec_plugin.h"
#include "operator/kube/in_cluster.h"
#include "operator/kube/token_file.h"
#include "tests/temp_folder.h"
#include "tests/unit/kube_client/certificates.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";

class Credentials : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) { return temporary_.Write(name, text); }
  ExecPlugin Plugin(const std::string& script) {
    ExecPlugin plugin;
    plugin.origin = "/k/config:7";
    plugin.api_version = kV1;
    plugin.command = "sh";
    plugin.args = {"-c", script, "plugin"};
    return plugin;
  }
  std::string Credential(const std::string& status) {
    return fmt::format(R"({{"apiVersion":"{}","kind":"ExecCredential","status":{}}})", kV1, status);
  }
  const TempFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(Credentials, TokenFileIsReadAgainWhenItChanges) {
  const std::string path = Write("token", "one\n");
  const auto source = MakeTokenFile(path, seconds(3600));
  EXPECT_EQ(source->Token().value(), "one");
  Write("token", "two");
  EXPECT_EQ(source->Token().value(), "two");
}

// The kubelet replaces a folder behind a symbolic link.
TEST_F(Credentials, TokenFileBehindALinkIsReadAgain) {
  std::filesystem::create_directory(folder_ + "/a");
  std::filesystem::create_directory(folder_ + "/b");
  Write("a/token", "one");
  Write("b/token", "two");
  std::filesystem::create_directory_symlink("a", folder_ + "/data");
  const auto source = MakeTokenFile(folder_ + "/data/token", seconds(3600));
  EXPECT_EQ(source->Token().value(), "one");
  std::filesystem::remove(folder_ + "/data");
  std::filesystem::create_directory_symlink("b", folder_ + "/data");
  EXPECT_EQ(source->Token().value(), "two");
}

TEST_F(Credentials, KeepsTheLastTokenWhileTheFileIsMissing) {
  const std::string path = Write("token", "one");
  const auto source = MakeTokenFile(path);
  EXPECT_EQ(source->Token().value(), "one");
  ::testing::internal::CaptureStderr();
  Write("token", "");
  EXPECT_EQ(source->Token().value(), "one");
  std::filesystem::remove(path);
  EXPECT_EQ(source->Token().value(), "one");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(path));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("one")));
  Write("token", "two");
  EXPECT_EQ(source->Token().value(), "two");
}

TEST_F(Credentials, MissingTokenFileIsAnError) {
  EXPECT_EQ(MakeTokenFile(folder_ + "/none")->Token().error().code, Code::kNotFound);
  EXPECT_EQ(MakeTokenFile(Write("empty", "\n"))->Token().error().message,
            "token file " + folder_ + "/empty is empty");
  EXPECT_EQ(MakeTokenFile(Write("two", "a\nInjected: header"))->Token().error().message,
            "token file " + folder_ + "/two holds more than one line");
}

// ---- plugins

TEST_F(Credentials, PluginRunsOnceWhileItsTokenIsValid) {
  const std::string count = folder_ + "/count";
  const auto source = MakeExecTokenSource(
      Plugin("echo x >> " + count + "; echo '" +
             Credential(R"({"token":"t","expirationTimestamp":"2999-01-01T00:00:00Z"})") + "'"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(source->Token().value(), "t");
  EXPECT_EQ(ReadFile(count).value(), "x\n");
  source->Expire();
  EXPECT_EQ(source->Token().value(), "t");
  EXPECT_EQ(ReadFile(count).value(), "x\nx\n");
}

TEST_F(Credentials, PluginRunsAgainAfterItsTokenExpires) {
  const std::string count = folder_ + "/count";
  const auto source = MakeExecTokenSource(
      Plugin("echo x >> " + count + "; echo '" +
             Credential(R"({"token":"t","expirationTimestamp":"2001-01-01T00:00:00Z"})") + "'"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(source->Token().value(), "t");
  EXPECT_EQ(ReadFile(count).value(), "x\nx\n");
}

TEST_F(Credentials, PluginGetsArgumentsAndClusterInfo) {
  ExecPlugin plugin = Plugin("printf '%s' \"$KUBERNETES_EXEC_INFO\" > " + folder_ +
                             "/info; printf '%s|%s|%s' "
                             "\"$MINE\" \"$1\" \"$(cat)\" > " +
                             folder_ + "/rest; echo '" + Credential(R"({"token":"t"})") + "'");
  plugin.args.push_back("first");
  plugin.env = {{"MINE", "mine"}};
  plugin.cluster = {{"server", "https://c"}};
  ASSERT_TRUE(RunExecPlugin(plugin).ok());
  EXPECT_EQ(Json::parse(ReadFile(folder_ + "/info").value()),
            (Json{{"apiVersion", kV1}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}}));
  EXPECT_EQ(ReadFile(folder_ + "/rest").value(), "mine|first|");
  plugin.provide_cluster_info = true;
  ASSERT_TRUE(RunExecPlugin(plugin).ok());
  EXPECT_EQ(Json::parse(ReadFile(folder_ + "/info").value())["spec"]["cluster"], plugin.cluster);
}

// The operator hides the system's authorities from OpenSSL; plugins of cloud providers need them.
TEST_F(Credentials, PluginGetsTheOriginalEnvironment) {
  ::setenv("RINGMASTER_TEST_VARIABLE", "given", 1);
  const ExecPlugin plugin = Plugin("printf '%s' \"$RINGMASTER_TEST_VARIABLE\" > " + folder_ +
                                   "/seen; echo '" + Credential(R"({"token":"t"})") + "'");
  ::setenv("RINGMASTER_TEST_VARIABLE", "for ourselves", 1);
  ASSERT_TRUE(RunExecPlugin(plugin).ok());
  EXPECT_EQ(ReadFile(folder_ + "/seen").value(), "given");
  ::unsetenv("RINGMASTER_TEST_VARIABLE");
}

TEST_F(Credentials, PluginMayReturnACertificate) {
  const TestIdentity own = Issue(MakeAuthority("a"), "me", {});
  const std::string path = Write(
      "out", Credential(DumpJson({{"clientCertificateData", own.cert_pem}, {"clientKeyData", own.key_pem}})));
  const auto source = MakeExecTokenSource(Plugin("cat " + path));
  EXPECT_EQ(source->Certificate(), std::nullopt);
  EXPECT_EQ(source->Token().value(), "");
  ASSERT_NE(source->Certificate(), std::nullopt);
  EXPECT_EQ(source->Certificate()->cert_pem, own.cert_pem);
}

TEST_F(Credentials, FailureOfAPluginNamesTheReason) {
  struct {
    ExecPlugin plugin;
    std::string message;
  } cases[] = {
      {Plugin("echo 'log in first' >&2; exit 3"), "exec plugin sh: failed with exit code 3: log in first "},
      {Plugin("kill -9 $$"), "exec plugin sh: failed with signal 9: "},
      {Plugin("echo secret"), "exec plugin sh: printed something that is not a JSON object"},
      {Plugin("echo '{\"kind\":\"Pod\"}'"),
       "exec plugin sh: printed an object whose kind is not ExecCredential"},
      {Plugin(R"(echo '{"kind":"ExecCredential","apiVersion":"x/v1"}')"),
       "exec plugin sh: printed apiVersion \"x/v1\", expected \"client.authentication.k8s.io/v1\""},
      {Plugin("echo '" + Credential("{}") + "'"),
       "exec plugin sh: printed neither a token nor a client certificate"},
      {Plugin("echo '" + Credential(R"({"token":"secret","expirationTimestamp":"soon"})") + "'"),
       "exec plugin sh: expirationTimestamp: "},
      {Plugin("echo '" + Credential(R"({"token":"secret","clientKeyData":"x"})") + "'"),
       "exec plugin sh: client certificate: "},
      {Plugin("head -c 2000000 /dev/zero"), "exec plugin sh: did not end within"},
  };
  for (auto& one : cases) {
    const auto credential = RunExecPlugin(one.plugin);
    ASSERT_FALSE(credential.ok()) << one.message;
    EXPECT_TRUE(credential.error().message.starts_with("/k/config:7: " + one.message))
        << credential.error().message;
    EXPECT_THAT(credential.error().message, ::testing::Not(HasSubstr("secret")));
  }
  ExecPlugin absent = Plugin("");
  absent.command = "ringmaster-no-such-plugin";
  absent.install_hint = "get it from your provider";
  EXPECT_EQ(RunExecPlugin(absent).error().message,
            "/k/config:7: exec plugin ringmaster-no-such-plugin: cannot start: No such file or "
            "directory; get it "
            "from your provider");
}

TEST_F(Credentials, HangingPluginIsKilled) {
  ExecPlugin plugin = Plugin("exec sleep 1000");
  plugin.time_limit = milliseconds(200);
  const auto credential = RunExecPlugin(plugin);
  ASSERT_FALSE(credential.ok());
  EXPECT_EQ(credential.error().code, Code::kUnavailable);
}

// ---- in a pod

TEST_F(Credentials, InClusterConfigIsLoaded) {
  const TestIdentity authority = MakeAuthority("cluster");
  Write("ca.crt", authority.cert_pem);
  Write("token", "t-1");
  Write("namespace", "team\n");
  ::setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  ::setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
  const auto config = LoadInCluster(folder_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://10.96.0.1:6443");
  EXPECT_EQ(config->ca_pem, authority.cert_pem);
  EXPECT_EQ(config->namespace_, "team");
  EXPECT_EQ(config->token->Token().value(), "t-1");
  Write("token", "t-2");
  EXPECT_EQ(config->token->Token().value(), "t-2");
  ::setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  EXPECT_EQ(LoadInCluster(folder_)->server, "https://[fd00::1]:6443");
  std::filesystem::remove(folder_ + "/token");
  EXPECT_EQ(LoadInCluster(folder_).error().message,
            "service account (is automountServiceAccountToken false?): open " + folder_ +
                "/token: No such file or directory");
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  ::unsetenv("KUBERNETES_SERVICE_PORT");
  EXPECT_FALSE(InCluster());
  EXPECT_FALSE(LoadInCluster(folder_).ok());
}

}  // namespace
}  // namespace ringmaster::kube
