// SPDX-License-Identifier: Apache-2.0

// The pure parts: paths, URLs, proxies, headers, lines, PEM, and the classification of failures.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "operator/kube/api_error.h"
#include "operator/kube/http_headers.h"
#include "operator/kube/line_splitter.h"
#include "operator/kube/pem.h"
#include "operator/kube/proxy.h"
#include "operator/kube/resource.h"
#include "operator/kube/transport_error.h"
#include "operator/kube/url.h"
#include "tests/unit/kube_client/certificates.h"

namespace ringmaster::kube {
namespace {

TEST(ResourceTest, Paths) {
  const Resource pods{"", "v1", "pods"};
  const Resource jobs{"ringmaster.dev", "v1alpha1", "trainingjobs"};
  EXPECT_EQ(pods.Path("default", "x", "status"), "/api/v1/namespaces/default/pods/x/status");
  EXPECT_EQ(pods.Path("default"), "/api/v1/namespaces/default/pods");
  EXPECT_EQ(pods.Path(""), "/api/v1/pods");
  EXPECT_EQ(jobs.Path("a", "b"), "/apis/ringmaster.dev/v1alpha1/namespaces/a/trainingjobs/b");
  EXPECT_EQ((Resource{"", "v1", "nodes"}.Path("", "n1")), "/api/v1/nodes/n1");
  EXPECT_EQ(pods.Path("a/../b", "x?y#z%"), "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy%23z%25");
  EXPECT_EQ(jobs.ApiVersion(), "ringmaster.dev/v1alpha1");
  EXPECT_EQ(pods.ApiVersion(), "v1");
}

TEST(ResourceTest, Queries) {
  EXPECT_EQ(Query({{"a", "1"}, {"b", ""}, {"c", "x=y,z in (p, q)&+/ü"}}),
            "a=1&c=x%3Dy%2Cz%20in%20%28p%2C%20q%29%26%2B%2F%C3%BC");
  EXPECT_EQ(Query({}), "");
}

TEST(DescribeTest, DescribesRequests) {
  const auto describe = [](const char* method, const char* target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    return Describe(request);
  };
  EXPECT_EQ(describe("GET", "/api/v1/namespaces/rm/pods/x?a=b"), "GET pods rm/x");
  EXPECT_EQ(describe("GET", "/api/v1/namespaces/rm/pods"), "GET pods rm/");
  EXPECT_EQ(describe("GET", "/api/v1/pods"), "GET pods");
  EXPECT_EQ(describe("GET", "/api/v1/nodes/n1"), "GET nodes n1");
  EXPECT_EQ(describe("GET", "/api/v1/namespaces/rm"), "GET namespaces rm");
  EXPECT_EQ(describe("PATCH", "/apis/g/v1/namespaces/rm/jobs/x/status"), "PATCH jobs/status rm/x");
  EXPECT_EQ(describe("GET", "/version"), "GET /version");
  EXPECT_EQ(describe("GET", "/apis"), "GET /apis");
  EXPECT_EQ(describe("GET", ""), "GET ");
}

TEST(UrlTest, Parts) {
  const Url url = ParseUrl("HTTPS://me:p%3aw@[fd00::1]:6443/k8s/c-1/").value();
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.user, "me");
  EXPECT_EQ(url.password, "p:w");
  EXPECT_EQ(url.host, "fd00::1");
  EXPECT_EQ(url.port, 6443);
  EXPECT_EQ(url.path, "/k8s/c-1");
  EXPECT_EQ(ParseUrl("https://a")->port, 443);
  EXPECT_EQ(ParseUrl("http://a/")->port, 80);
  EXPECT_EQ(ParseUrl("http://a/")->path, "");
  for (const char* bad : {"", "a:6443", "ftp://a", "https://", "https://:443", "https://a:0",
                          "https://a:70000", "https://a:b", "https://fd00::1", "https://[fd00::1",
                          "https://[fd00::1]x", "https://a b", "https://a/?x=1", "https://a#b"})
    EXPECT_FALSE(ParseUrl(bad).ok()) << bad;
}

TEST(ProxyTest, FollowsTheEnvironment) {
  struct {
    const char* server;
    std::map<std::string, std::string> env;
    const char* address;  // empty: none
  } const cases[] = {
      {"https://api.example:6443", {}, ""},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p:3128"}}, "http://p:3128"},
      {"https://api.example:6443", {{"https_proxy", "p:3128"}}, "http://p:3128"},
      {"https://api.example:6443", {{"HTTP_PROXY", "http://p:3128"}}, ""},
      {"http://api.example", {{"HTTP_PROXY", "http://p"}}, "http://p:80"},
      {"https://localhost:6443", {{"HTTPS_PROXY", "http://p"}}, ""},
      {"https://127.1.2.3:6443", {{"HTTPS_PROXY", "http://p"}}, ""},
      {"https://[::1]:6443", {{"HTTPS_PROXY", "http://p"}}, ""},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "*"}}, ""},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "a, EXAMPLE ,b"}}, ""},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p"}, {"no_proxy", ".example"}}, ""},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "xample"}}, "http://p:80"},
      {"https://example:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", ".example"}}, "http://p:80"},
      {"https://api.example:6443",
       {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "api.example:443"}},
       "http://p:80"},
      {"https://api.example:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "api.example:6443"}}, ""},
      {"https://10.1.2.3:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "10.0.0.0/8"}}, ""},
      {"https://11.1.2.3:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "10.0.0.0/8"}}, "http://p:80"},
      {"https://10.1.2.3:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "10.1.2.3"}}, ""},
      {"https://[fd00::5]:6443", {{"HTTPS_PROXY", "http://p"}, {"NO_PROXY", "fd00::/16"}}, ""},
      {"https://api.example", {{"HTTPS_PROXY", "http://[fd00::9]:1"}}, "http://[fd00::9]:1"},
  };
  for (const auto& one : cases) {
    const auto proxy = ChooseProxy(one.server, "", [&](const char* name) {
      const auto it = one.env.find(name);
      return it == one.env.end() ? std::string() : it->second;
    });
    ASSERT_TRUE(proxy.ok()) << proxy.error().message;
    EXPECT_EQ(*proxy ? (**proxy).address : "", one.address) << one.server << " " << one.env.begin()->second;
  }
}

TEST(ProxyTest, ExplicitProxyWins) {
  const auto env = [](const char*) { return std::string("*"); };
  const auto proxy = ChooseProxy("https://127.0.0.1:6443", "http://me:secret@p:1", env).value();
  ASSERT_TRUE(proxy);
  EXPECT_EQ(proxy->address, "http://p:1");
  EXPECT_EQ(proxy->user, "me");
  EXPECT_EQ(proxy->password, "secret");
  for (const char* bad : {"https://me:secret@p:1", "socks5://me:secret@p:1", "http://me:secret@"}) {
    const auto refused = ChooseProxy("https://a", bad, env);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().message.find("secret"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(refused.error().message.starts_with("proxy-url: ")) << refused.error().message;
  }
}

TEST(HeadersTest, RetryAfter) {
  EXPECT_EQ(ParseRetryAfter("0"), seconds(0));
  EXPECT_EQ(ParseRetryAfter("12"), seconds(12));
  EXPECT_EQ(ParseRetryAfter("999999999"), seconds(3600));
  for (const char* bad :
       {"", "-1", "1.5", "soon", "12 ", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999"})
    EXPECT_EQ(ParseRetryAfter(bad), std::nullopt) << bad;
}

TEST(HeadersTest, Warnings) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(ParseWarnings(R"(299 - "one")"), Texts{"one"});
  EXPECT_EQ(ParseWarnings(R"(299 - "one, two", 299 - "a \"b\" \\")"), (Texts{"one, two", R"(a "b" \)"}));
  EXPECT_EQ(ParseWarnings(R"(299 x "one" "Wed, 21 Oct 2026 07:28:00 GMT", 299 - "two")"),
            (Texts{"one", "two"}));
  EXPECT_EQ(ParseWarnings("299 - \"a\nb\""), Texts{"a b"});
  EXPECT_EQ(ParseWarnings(""), Texts{});
  EXPECT_EQ(ParseWarnings(R"(299 - "open)"), Texts{});
  EXPECT_EQ(ParseWarnings(R"(299 - "")"), Texts{});
  std::string many;
  for (int i = 0; i < 100; ++i) many += "299 - \"" + std::string(5000, 'x') + "\",";
  const Texts kept = ParseWarnings(many);
  EXPECT_EQ(kept.size(), 20u);
  EXPECT_EQ(kept[0].size(), 1024u);
}

TEST(LineSplitterTest, AnySplitGivesTheSameLines) {
  const std::string text = "one\n\ntwo\nthree\nrest";
  const std::vector<std::string> wanted = {"one", "two", "three"};
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      LineSplitter splitter(100);
      std::vector<std::string> lines;
      const auto take = [&](std::string_view line) {
        lines.emplace_back(line);
        return true;
      };
      ASSERT_TRUE(splitter.Feed(text.substr(0, first), take));
      ASSERT_TRUE(splitter.Feed(text.substr(first, second - first), take));
      ASSERT_TRUE(splitter.Feed(text.substr(second), take));
      ASSERT_EQ(lines, wanted) << first << " " << second;
    }
  }
}

TEST(LineSplitterTest, Limits) {
  const auto all = [](std::string_view) { return true; };
  LineSplitter exact(5);
  EXPECT_TRUE(exact.Feed("12345", all));
  EXPECT_TRUE(exact.Feed("\n12345\n", all));
  EXPECT_FALSE(exact.Feed("123456\n", all));
  EXPECT_TRUE(exact.too_long());
  LineSplitter pieces(5);
  EXPECT_TRUE(pieces.Feed("123", all));
  EXPECT_FALSE(pieces.Feed("456", all));
  EXPECT_TRUE(pieces.too_long());
  LineSplitter stopped(5);
  int seen = 0;
  EXPECT_FALSE(stopped.Feed("1\n2\n3\n", [&](std::string_view) { return ++seen < 2; }));
  EXPECT_EQ(seen, 2);
  EXPECT_FALSE(stopped.too_long());
}

TEST(PemTest, NamesTheProblem) {
  const TestIdentity authority = MakeAuthority("a");
  const TestIdentity one = Issue(authority, "one", {});
  EXPECT_TRUE(CheckCertificates(authority.cert_pem).ok());
  EXPECT_TRUE(CheckCertificates("# comment\n" + authority.cert_pem + one.cert_pem + "\n").ok());
  EXPECT_FALSE(CheckCertificates("").ok());
  EXPECT_FALSE(CheckCertificates(one.key_pem).ok());
  std::string broken = authority.cert_pem + one.cert_pem;
  broken[broken.size() - 60] = broken[broken.size() - 60] == 'A' ? 'B' : 'A';
  broken[broken.size() - 100] = '!';
  EXPECT_FALSE(CheckCertificates(broken).ok());
  EXPECT_TRUE(CheckKeyPair(one.cert_pem, one.key_pem).ok());
  EXPECT_FALSE(CheckKeyPair(one.cert_pem, authority.key_pem).ok());
  EXPECT_FALSE(CheckKeyPair(one.cert_pem, "").ok());
  EXPECT_FALSE(CheckKeyPair("", one.key_pem).ok());
}

TEST(ClassifyTest, StageDecidesTheCode) {
  struct {
    const char* stage;
    int number;
    Code code;
    bool again;
  } const cases[] = {
      {"Error resolving address", EPERM, Code::kUnavailable, false},
      {"Failed to resolve address", 0, Code::kUnavailable, false},
      {"Failed to connect to any resolved endpoint", EHOSTUNREACH, Code::kUnavailable, false},
      {"Request canceled by user.", ETIMEDOUT, Code::kUnavailable, false},
      {"Error in SSL handshake", 167772294, Code::kUnavailable, false},
      {"Error resolving proxy address", EPERM, Code::kUnavailable, false},
      {"Failed to connect to any resolved proxy endpoint", EHOSTUNREACH, Code::kUnavailable, false},
      {"Expected a 200 response from proxy, received: 407", 0, Code::kUnavailable, false},
      {"Failed to read HTTP status line from proxy", ENOENT, Code::kUnavailable, false},
      {"Failed to write request headers", EPIPE, Code::kUnavailable, true},
      {"Failed to write request body", EPIPE, Code::kUnavailable, true},
      {"Failed to read HTTP status line", ECONNABORTED, Code::kAmbiguous, false},
      {"Failed to read HTTP status line", ETIMEDOUT, Code::kAmbiguous, false},
      {"Failed to read HTTP status line", 167773276, Code::kUnavailable, false},
      {"Invalid HTTP status line", 0, Code::kAmbiguous, false},
      {"Retrieving message chunk header", ECONNRESET, Code::kAmbiguous, false},
      {"Failed to read chunked response part", ENOENT, Code::kAmbiguous, false},
      {"Failed to read response body", ETIMEDOUT, Code::kAmbiguous, false},
      {"an unknown stage", 12345, Code::kAmbiguous, false},
  };
  for (const auto& one : cases) {
    const TransportFailure failure = ClassifyFailure(one.stage, one.number, false);
    EXPECT_EQ(failure.error.code, one.code) << one.stage;
    EXPECT_EQ(failure.send_again, one.again) << one.stage;
    EXPECT_EQ(ClassifyFailure(one.stage, one.number, true).error.code, Code::kCancelled);
  }
  EXPECT_EQ(ClassifyFailure("Failed to read HTTP status line", ETIMEDOUT, false).error.message,
            "Failed to read HTTP status line: timed out");
  EXPECT_EQ(ClassifyFailure("Error resolving address", EPERM, false).error.message,
            "Error resolving address: no such host");
}

}  // namespace
}  // namespace ringmaster::kube
