// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/page_guard.h"

#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

using Kind = Admission::Kind;

http::Request From(std::string host, std::string origin = "") {
  http::Request request;
  request.path = "/";
  request.host = std::move(host);
  request.origin = std::move(origin);
  return request;
}

TEST(PageAddress, HasAPortAnAddressOrBoth) {
  EXPECT_EQ(*ParsePageAddress(""), (PageAddress{"127.0.0.1", 0}));
  EXPECT_EQ(*ParsePageAddress("8080"), (PageAddress{"127.0.0.1", 8080}));
  EXPECT_EQ(*ParsePageAddress("0.0.0.0:80"), (PageAddress{"0.0.0.0", 80}));
  EXPECT_EQ(*ParsePageAddress("[::1]:80"), (PageAddress{"::1", 80}));
  EXPECT_EQ(*ParsePageAddress("localhost:80"), (PageAddress{"127.0.0.1", 80}));
  for (const char* bad : {"job.yaml", "70000", "-1", "80x", "example.com:80", ":80", "[::1:80", "::1"})
    EXPECT_FALSE(ParsePageAddress(bad).ok()) << bad;
}

TEST(PageGuard, OnLoopbackOnlyLoopbackNamesAreServed) {
  const PageGuard guard;
  for (const char* host : {"127.0.0.1:8080", "localhost:8080", "localhost", "[::1]:8080"})
    EXPECT_EQ(Admit(guard, From(host)).kind, Kind::kServe) << host;
  for (const char* host :
       {"evil.example:8080", "", "127.evil.example", "localhost.evil.example", "10.0.0.1"}) {
    const Admission admission = Admit(guard, From(host));
    EXPECT_EQ(admission.kind, Kind::kRefuse) << host;
    EXPECT_EQ(admission.response.status, 403) << host;
  }
}

TEST(PageGuard, OtherSitesAreRefused) {
  EXPECT_EQ(Admit({}, From("localhost:1", "http://localhost:1")).kind, Kind::kServe);
  for (const char* origin : {"http://evil.example", "http://localhost:2", "https://localhost:1", "null"})
    EXPECT_EQ(Admit({}, From("localhost:1", origin)).kind, Kind::kRefuse) << origin;
}

TEST(PageGuard, ElsewhereATokenIsNeeded) {
  const PageGuard guard{"0123456789abcdef", "ringmaster-0123"};
  http::Request request = From("gpu-7.example:8080");
  EXPECT_EQ(Admit(guard, request).response.status, 401);
  request.query = "token=0123456789abcdeX";
  EXPECT_EQ(Admit(guard, request).response.status, 401);
  request.query = "token=";
  EXPECT_EQ(Admit(guard, request).response.status, 401);
  request.query = "token=0123456789abcdef";
  const Admission sign_in = Admit(guard, request);
  EXPECT_EQ(sign_in.kind, Kind::kSignIn);
  EXPECT_EQ(sign_in.response.status, 303);
  ASSERT_EQ(sign_in.response.headers.size(), 2U);
  EXPECT_EQ(sign_in.response.headers[0].second, "/") << "the token leaves the address bar";
  request.query = "namespace=ml&token=0123456789abcdef&job=gpt%20text";
  EXPECT_EQ(Admit(guard, request).response.headers[0].second, "/?namespace=ml&job=gpt%20text")
      << "and the page keeps its job";
  EXPECT_NE(sign_in.response.headers[1].second.find("HttpOnly; SameSite=Strict"), std::string::npos);
  request.query.clear();
  request.cookie = "other=1; ringmaster-0123=0123456789abcdef";
  EXPECT_EQ(Admit(guard, request).kind, Kind::kServe);
  request.cookie = "ringmaster-0123=";
  EXPECT_EQ(Admit(guard, request).kind, Kind::kRefuse);
  request.bearer = "0123456789abcdef";
  EXPECT_EQ(Admit(guard, request).kind, Kind::kServe);
  request.origin = "http://evil.example";
  EXPECT_EQ(Admit(guard, request).kind, Kind::kRefuse);
}

TEST(PageGuard, TheRedirectStaysOnThisSite) {
  http::Request request = From("h:1");
  request.path = "//evil.example";
  request.query = "token=secret";
  EXPECT_EQ(Admit({"secret", "c"}, request).response.headers[0].second, "/");
}

TEST(QueryValue, DecodesPercentSigns) {
  EXPECT_EQ(QueryValue("a=1&worker=x%2Fy+z&b", "worker"), "x/y z");
  EXPECT_EQ(QueryValue("worker=100%", "worker"), "100%");
  EXPECT_EQ(QueryValue("workers=1", "worker"), "");
}

TEST(PageToken, IsDifferentEachTime) {
  const auto one = MakePageToken();
  const auto other = MakePageToken();
  EXPECT_EQ(one->size(), 32U);
  EXPECT_NE(*one, *other);
}

}  // namespace
}  // namespace ringmaster::cli
