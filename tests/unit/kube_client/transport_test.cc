// SPDX-License-Identifier: Apache-2.0

// How the transport handles a server that fails at every stage. The tests also assert the behaviour of the
// HTTP library that the transport relies on: when it changes, a test fails before a cluster does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "operator/kube/priority_http.h"
#include "operator/kube/token_file.h"
#include "tests/unit/kube_client/transport_rig.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

Result<HttpResponse> Ask(HttpClient& client, HttpRequest request = {}) {
  if (request.target.empty()) request.target = "/version";
  auto answer = std::make_shared<Promise<Result<HttpResponse>>>();
  client.Send(std::move(request), [answer](Result<HttpResponse> result) { answer->Set(std::move(result)); });
  return answer->Get();
}

HttpRequest Post(std::string body = "{}") {
  return {.method = "POST", .target = "/api/v1/namespaces/a/pods", .body = std::move(body)};
}

TEST(Transport, SendsARequestAndReturnsItsResponse) {
  Promise<SeenRequest> seen;
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    seen.Set(request);
    connection.Write(
        Answer(201, R"({"kind":"Pod"})",
               "Warning: 299 - \"old \\\"field\\\"\"\r\nWarning: 299 - \"two\"\r\nRetry-After: 7\r\n"));
    connection.Linger();
  });
  auto client = Client(server.Url(), {}, MakeStaticToken("secret"));
  HttpRequest request{.method = "PATCH",
                      .target = "/api/v1/pods?labelSelector=a%3Db%2Cc%20d&force=true",
                      .body = R"({"a":1})",
                      .content_type = "application/apply-patch+yaml",
                      .accept = "application/json;as=Table"};
  const auto answer = Ask(*client, request);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, R"({"kind":"Pod"})");
  EXPECT_EQ(answer->retry_after, seconds(7));
  EXPECT_EQ(answer->warnings, (std::vector<std::string>{"old \"field\"", "two"}));
  SeenRequest got = seen.Get();
  EXPECT_EQ(got.method, "PATCH");
  EXPECT_EQ(got.target, request.target);
  EXPECT_EQ(got.body, request.body);
  EXPECT_EQ(got.headers["content-type"], request.content_type);
  EXPECT_EQ(got.headers["accept"], request.accept);
  EXPECT_EQ(got.headers["authorization"], "Bearer secret");
  EXPECT_EQ(got.headers["user-agent"], "ringmaster-operator");
  EXPECT_EQ(got.headers["host"], fmt::format("127.0.0.1:{}", server.port()));
}

TEST(Transport, ServerPathPrefixesEveryTarget) {
  Promise<SeenRequest> seen;
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    seen.Set(request);
    connection.Write(Answer(200, "{}"));
    connection.Linger();
  });
  auto client = Client(server.Url() + "/k8s/clusters/c-1/");
  ASSERT_TRUE(Ask(*client, {.target = "/api/v1/pods/a%2Fb?limit=5"}).ok());
  EXPECT_EQ(seen.Get().target, "/k8s/clusters/c-1/api/v1/pods/a%2Fb?limit=5");
}

TEST(Transport, ConnectsOverIPv6) {
  FaultyServer server(
      [&](Connection& connection, int) {
        SeenRequest request;
        if (connection.ReadRequest(request)) connection.Write(Answer(200, "{}"));
        connection.Linger();
      },
      {.host = "::1"});
  auto client = Client(server.Url());
  const auto answer = Ask(*client);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
}

// ---- failures by stage

struct Break {
  const char* name;
  Code code;
  std::function<void(Connection&)> does;
};

class BreaksTest : public ::testing::TestWithParam<Break> {};

TEST_P(BreaksTest, ErrorCodeMatchesTheStage) {
  FaultyServer server([&](Connection& connection, int) { GetParam().does(connection); });
  auto client = Client(server.Url(), Impatient());
  for (const char* method : {"GET", "POST"}) {
    HttpRequest request = Post();
    request.method = method;
    if (request.method == "GET") request.body.clear();
    const auto answer = Ask(*client, request);
    ASSERT_FALSE(answer.ok()) << method;
    EXPECT_EQ(answer.error().code, GetParam().code) << method << ": " << answer.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, BreaksTest,
    ::testing::Values(
        Break{"ClosedBeforeTheAnswer", Code::kAmbiguous, [](Connection& c) { AfterRequest(c, ""); }},
        Break{"ResetBeforeTheAnswer", Code::kAmbiguous,
              [](Connection& c) {
                AfterRequest(c, "");
                c.Reset();
              }},
        Break{"ClosedInTheHead", Code::kAmbiguous,
              [](Connection& c) { AfterRequest(c, "HTTP/1.1 200 OK\r\nCo"); }},
        Break{"ClosedInTheBody", Code::kAmbiguous,
              [](Connection& c) { AfterRequest(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\""); }},
        Break{"ClosedInAChunk", Code::kAmbiguous,
              [](Connection& c) { AfterRequest(c, ChunkedHead() + "10\r\n1234"); }},
        Break{"ClosedBetweenChunks", Code::kAmbiguous,
              [](Connection& c) { AfterRequest(c, ChunkedHead() + Chunk("{")); }},
        Break{"ResetInTheBody", Code::kAmbiguous,
              [](Connection& c) {
                AfterRequest(c, ChunkedHead() + Chunk("{"));
                c.Reset();
              }},
        Break{"NotHttp", Code::kAmbiguous, [](Connection& c) { AfterRequest(c, "SSH-2.0-x\r\n\r\n"); }},
        Break{"SilentBeforeTheAnswer", Code::kAmbiguous,
              [](Connection& c) {
                AfterRequest(c, "");
                c.Linger();
              }},
        Break{"SilentInTheBody", Code::kAmbiguous,
              [](Connection& c) {
                AfterRequest(c, ChunkedHead() + Chunk("{"));
                c.Linger();
              }}),
    [](const auto& of) { return of.param.name; });

TEST(Transport, ClosedPortIsUnavailable) {
  uint16_t port = 0;
  {
    FaultyServer server([](Connection&, int) {});
    port = server.port();
  }
  auto client = Client(fmt::format("http://127.0.0.1:{}", port));
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
  EXPECT_THAT(answer.error().message, HasSubstr("Failed to connect"));
}

TEST(Transport, UnknownHostIsUnavailable) {
  auto client = Client("http://ringmaster-test.invalid:80");
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
}

TEST(Transport, ConnectTimeoutIsUnavailable) {
  FullListener listener;
  auto client = Client(listener.Url(), Impatient());
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
  EXPECT_THAT(answer.error().message, HasSubstr("timed out"));
}

TEST(Transport, SlowResponseEndsAtTheLimit) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead());
    while (connection.Write(Chunk("x"))) std::this_thread::yield();
  });
  TransportOptions options;
  options.request_limit = milliseconds(300);
  auto client = Client(server.Url(), options);
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kAmbiguous) << answer.error().message;
}

// Its owner may destroy the client as soon as it has the answer, while the starting thread still cancels the
// request.
TEST(Transport, AClientMayEndWhenARequestReachesItsLimit) {
  FaultyServer server([](Connection& connection, int) { connection.Linger(); });
  TransportOptions options;
  options.request_limit = milliseconds(2);
  for (int i = 0; i < 300; ++i) {
    auto client = Client(server.Url(), options);
    ASSERT_FALSE(Ask(*client).ok());
  }
}

TEST(Transport, TooLargeResponseIsAnError) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead());
    while (connection.Write(Chunk(std::string(10000, 'x')))) {
    }
  });
  TransportOptions options;
  options.max_body_bytes = 1 << 20;
  auto client = Client(server.Url(), options);
  const auto answer = Ask(*client);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kExhausted);
}

TEST(Transport, ResendsARequestThatCouldNotBeWritten) {
  // The server reads only the head and resets: a body this large cannot have been sent.
  FaultyServer server([](Connection& connection, int index) {
    SeenRequest request;
    if (!connection.ReadRequest(request, index == 2)) return;
    if (index < 2) return connection.Reset();
    connection.Write(Answer(201, "{}"));
    connection.Linger();
  });
  auto client = Client(server.Url());
  const auto answer = Ask(*client, Post(std::string(32 << 20, 'x')));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(server.connections(), 3);
}

TEST(Transport, ServerThatNeverReadsIsUnavailable) {
  FaultyServer server([](Connection& connection, int) {
    SeenRequest request;
    connection.ReadRequest(request, false);
    connection.Reset();
  });
  auto client = Client(server.Url());
  const auto answer = Ask(*client, Post(std::string(32 << 20, 'x')));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
  EXPECT_THAT(answer.error().message, HasSubstr("Failed to write request"));
  EXPECT_EQ(server.connections(), 4);
}

// As after a restart of the API server: every kept connection is closed.
TEST(Transport, ClosedKeptConnectionsCostNoRetry) {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  constexpr int kKept = 20;
  FaultyServer server([&](Connection& connection, int index) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    if (index < kKept) {
      std::unique_lock lock(mutex);
      ++waiting;
      changed.notify_all();
      changed.wait_for(lock, kPatience,
                       [&] { return waiting == kKept; });  // so that each uses its own connection
    }
    connection.Write(Answer(200, "{}"));
    if (index < kKept) return connection.Close();
    while (connection.ReadRequest(request)) connection.Write(Answer(200, "{}"));
  });
  auto client = Client(server.Url());
  std::vector<Promise<Result<HttpResponse>>> answers(kKept);
  for (auto& answer : answers)
    client->Send({.target = "/a"}, [&](Result<HttpResponse> result) { answer.Set(std::move(result)); });
  for (auto& answer : answers) ASSERT_TRUE(answer.Get().ok());
  for (int i = 0; i < 30; ++i) {
    const auto answer = Ask(*client, Post(std::string(100000, 'x')));
    ASSERT_TRUE(answer.ok()) << i << ": " << answer.error().message;
  }
}

// The library does this for every verb, so every write must be safe to repeat.
TEST(Transport, PostOnAReusedConnectionMayArriveTwice) {
  std::atomic<int> posts{0};
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    while (connection.ReadRequest(request)) {
      if (request.method == "POST" && ++posts == 1) return;  // read, perhaps executed, not answered
      connection.Write(Answer(200, "{}"));
    }
  });
  auto client = Client(server.Url());
  // The connection returns to the pool shortly after the response, so the first POST may or may not reuse it.
  Result<HttpResponse> answer = Error{};
  do {
    ASSERT_TRUE(Ask(*client).ok());
    posts = 0;
    answer = Ask(*client, Post());
  } while (!answer.ok());
  EXPECT_EQ(posts, 2);
}

TEST(Transport, NeverFollowsARedirect) {
  FaultyServer elsewhere([](Connection& connection, int) { connection.Linger(); });
  FaultyServer server([&](Connection& connection, int) {
    AfterRequest(connection, Answer(302, "", "Location: " + elsewhere.Url() + "/version\r\n"));
    connection.Linger();
  });
  auto client = Client(server.Url(), {}, MakeStaticToken("secret"));
  const auto answer = Ask(*client);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 302);
  EXPECT_EQ(elsewhere.connections(), 0);
}

TEST(Transport, LimitsRequestsInFlight) {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  int most = 0;
  bool go = false;
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    while (connection.ReadRequest(request)) {
      {
        std::unique_lock lock(mutex);
        most = std::max(most, ++waiting);
        changed.notify_all();
        changed.wait_for(lock, kPatience, [&] { return go; });
        --waiting;
      }
      if (!connection.Write(Answer(200, "{}"))) return;
    }
  });
  TransportOptions options;
  options.max_in_flight = 3;
  auto client = Client(server.Url(), options);
  std::vector<Promise<Result<HttpResponse>>> answers(10);
  for (auto& answer : answers)
    client->Send({.target = "/version"},
                 [&answer](Result<HttpResponse> result) { answer.Set(std::move(result)); });
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return waiting == 3; }));
    go = true;
    changed.notify_all();
  }
  for (auto& answer : answers) EXPECT_TRUE(answer.Get().ok());
  EXPECT_EQ(most, 3);
}

// A burst uses all requests in flight, and more of it waits. Urgent requests pass it, and fail early without
// a response.
TEST(Transport, UrgentRequestsPassABurst) {
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    while (connection.ReadRequest(request)) {
      if (request.target == "/mute") return connection.Linger();
      if (request.target == "/burst") {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, kPatience, [&] { return go; });
      }
      if (!connection.Write(Answer(200, "{}"))) return;
    }
  });
  TransportOptions options;
  options.max_in_flight = 2;
  options.request_limit = kPatience;
  options.silence = kPatience;
  auto client = Client(server.Url(), options);
  std::vector<Promise<Result<HttpResponse>>> burst(6);
  for (auto& answer : burst)
    client->Send({.target = "/burst"},
                 [&answer](Result<HttpResponse> result) { answer.Set(std::move(result)); });
  PriorityHttp urgent(*client, RequestPriority::kUrgent, milliseconds(300));
  Promise<Result<HttpResponse>> renewed, mute;
  // The limit does not matter for an answered request, unless this machine stalls.
  PriorityHttp in_time(*client, RequestPriority::kUrgent, kPatience);
  in_time.Send({.target = "/lease"}, [&](Result<HttpResponse> result) { renewed.Set(std::move(result)); });
  EXPECT_TRUE(renewed.Get().ok());
  urgent.Send({.target = "/mute"}, [&](Result<HttpResponse> result) { mute.Set(std::move(result)); });
  EXPECT_EQ(mute.Get().error().code, Code::kAmbiguous);
  for (auto& answer : burst) EXPECT_EQ(answer.times(), 0);
  {
    std::lock_guard lock(mutex);
    go = true;
    changed.notify_all();
  }
  for (auto& answer : burst) EXPECT_TRUE(answer.Get().ok());
}

// A background request is sent when no other request is in flight, or after waiting for long.
TEST(Transport, BackgroundRequestsWaitForABurst) {
  for (const Duration background_wait : {kPatience, Duration(milliseconds(50))}) {
    std::mutex mutex;
    std::condition_variable changed;
    bool go = false;
    FaultyServer server([&](Connection& connection, int) {
      SeenRequest request;
      while (connection.ReadRequest(request)) {
        std::unique_lock lock(mutex);
        if (request.target == "/burst") changed.wait_for(lock, kPatience, [&] { return go; });
        if (!connection.Write(Answer(200, "{}"))) return;
      }
    });
    TransportOptions options;
    options.background_wait = background_wait;
    options.request_limit = kPatience;
    options.silence = kPatience;
    auto client = Client(server.Url(), options);
    PriorityHttp patient(*client, RequestPriority::kBackground);
    Promise<Result<HttpResponse>> burst, usual, event;
    client->Send({.target = "/burst"}, [&](Result<HttpResponse> result) { burst.Set(std::move(result)); });
    patient.Send({.target = "/event"}, [&](Result<HttpResponse> result) { event.Set(std::move(result)); });
    client->Send({.target = "/usual"}, [&](Result<HttpResponse> result) { usual.Set(std::move(result)); });
    EXPECT_TRUE(usual.Get().ok());
    const bool waits = background_wait == kPatience;
    if (waits)
      EXPECT_EQ(event.times(), 0);
    else
      EXPECT_TRUE(event.Get().ok());
    {
      std::lock_guard lock(mutex);
      go = true;
      changed.notify_all();
    }
    EXPECT_TRUE(burst.Get().ok());
    EXPECT_TRUE(event.Get().ok());
  }
}

// A token source that counts rejections.
class CountingToken final : public TokenSource {
 public:
  Result<std::string> Token() override { return fmt::format("token-{}", expired_.load()); }
  void Expire() override { ++expired_; }

 private:
  std::atomic<int> expired_{0};
};

TEST(Transport, RejectedTokenIsNotUsedAgain) {
  FaultyServer server([](Connection& connection, int) {
    SeenRequest request;
    while (connection.ReadRequest(request))
      connection.Write(Answer(request.headers["authorization"] == "Bearer token-1" ? 200 : 401, "{}"));
  });
  auto client = Client(server.Url(), {}, std::make_shared<CountingToken>());
  EXPECT_EQ(Ask(*client)->status, 401);
  EXPECT_EQ(Ask(*client)->status, 200);
}

class NoToken final : public TokenSource {
 public:
  Result<std::string> Token() override { return Error{Code::kNotFound, "open /x/token: No such file"}; }
};

TEST(Transport, FailingTokenSourceSendsNothing) {
  FaultyServer server([](Connection&, int) {});
  auto client = Client(server.Url(), {}, std::make_shared<NoToken>());
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error(), (Error{Code::kUnavailable, "credentials: open /x/token: No such file"}));
  EXPECT_EQ(server.connections(), 0);
}

// ---- destruction of a client with requests in every state

TEST(Transport, DestroyingTheClientEndsRequestsInFlight) {
  Promise<bool> arrived;
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    arrived.Set(true);
    connection.Linger();
  });
  FaultyServer mute([](Connection& connection, int) { connection.Linger(); });
  FullListener full;
  for (const std::string& url :
       {fmt::format("https://127.0.0.1:{}", mute.port()), full.Url(), server.Url()}) {
    TransportOptions options;
    options.max_in_flight = 1;
    auto client = Client(url, options);
    Promise<Result<HttpResponse>> under_way, queued;
    client->Send({.target = "/a"}, [&](Result<HttpResponse> result) { under_way.Set(std::move(result)); });
    client->Send({.target = "/b"}, [&](Result<HttpResponse> result) { queued.Set(std::move(result)); });
    if (url == server.Url()) arrived.Get();
    client.reset();
    EXPECT_EQ(under_way.times(), 1) << url;
    EXPECT_EQ(queued.times(), 1) << url;
    EXPECT_EQ(under_way.Get().error().code, Code::kCancelled) << url;
    EXPECT_EQ(queued.Get().error().code, Code::kCancelled) << url;
  }
}

}  // namespace
}  // namespace ringmaster::kube
