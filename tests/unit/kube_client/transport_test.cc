// What the transport makes of a server that breaks at every stage. These tests also pin down the habits of
// the HTTP library that the transport relies on: when one changes, a test fails, not a cluster.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>

#include "base/fd.h"
#include "operator/kube/cpprest_http.h"
#include "operator/kube/token_file.h"
#include "tests/unit/kube_client/faulty_server.h"
#include "tests/unit/kube_client/waiting.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<HttpClient> Client(const std::string& url, const TransportOptions& options = {},
                                   std::shared_ptr<TokenSource> token = nullptr) {
  ClientConfig config;
  config.server = url;
  config.token = std::move(token);
  auto client = MakeHttpClient(config, options);
  EXPECT_TRUE(client.ok()) << client.error().message;
  return std::move(client).value();
}

Result<HttpResponse> Ask(HttpClient& client, HttpRequest request = {}) {
  if (request.target.empty()) request.target = "/version";
  auto answer = std::make_shared<Promise<Result<HttpResponse>>>();
  client.Send(std::move(request), [answer](Result<HttpResponse> result) { answer->Set(std::move(result)); });
  return answer->Get();
}

HttpRequest Post(std::string body = "{}") {
  return {.method = "POST", .target = "/api/v1/namespaces/a/pods", .body = std::move(body)};
}

TransportOptions Impatient() {
  TransportOptions options;
  options.silence = milliseconds(300);
  options.stream_silence = milliseconds(300);
  return options;
}

TEST(Transport, CarriesARequestAndItsAnswer) {
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

TEST(Transport, APathOfTheServerStandsBeforeEveryTarget) {
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

TEST(Transport, ServesOverIPv6) {
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

// ---- what a break means, stage by stage

struct Break {
  const char* name;
  Code code;
  std::function<void(Connection&)> does;
};

class BreaksTest : public ::testing::TestWithParam<Break> {};

TEST_P(BreaksTest, SaysWhatMayHaveHappened) {
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

void AfterRequest(Connection& connection, std::string_view bytes) {
  SeenRequest request;
  if (!connection.ReadRequest(request)) return;
  connection.Write(bytes);
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

TEST(Transport, NobodyListensIsUnavailable) {
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

TEST(Transport, NoSuchHostIsUnavailable) {
  auto client = Client("http://ringmaster-test.invalid:80");
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
}

// A listener whose queue is full: the kernel drops what would connect.
class FullListener {
 public:
  FullListener() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(::listen(listener_.get(), 0) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 4; ++i) {
      Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size);
      waiting_.push_back(std::move(fd));
    }
  }
  std::string Url() const { return fmt::format("http://127.0.0.1:{}", port_); }

 private:
  Fd listener_;
  uint16_t port_ = 0;
  std::vector<Fd> waiting_;
};

TEST(Transport, ConnectingForTooLongIsUnavailable) {
  FullListener listener;
  auto client = Client(listener.Url(), Impatient());
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kUnavailable) << answer.error().message;
  EXPECT_THAT(answer.error().message, HasSubstr("timed out"));
}

TEST(Transport, AnAnswerThatDribblesOnEndsAtTheLimit) {
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

TEST(Transport, AnAnswerThatIsTooLargeIsRefused) {
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
  EXPECT_EQ(answer.error().code, Code::kInvalid);
}

TEST(Transport, SendsAgainWhatCouldNotBeWritten) {
  // The server looks at the head only, and resets: a body this large cannot have left.
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

TEST(Transport, AServerThatNeverReadsIsUnavailable) {
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

// As after a restart of the API server: every kept connection is useless.
TEST(Transport, KeptConnectionsThatWereClosedCostNothing) {
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
      changed.wait_for(lock, kPatience, [&] { return waiting == kKept; });  // so that none is used twice
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

// The library does this on its own, whatever the verb: the reason why every write must be harmless twice.
TEST(Transport, APostOnAUsedConnectionMayArriveTwice) {
  std::atomic<int> posts{0};
  FaultyServer server([&](Connection& connection, int) {
    SeenRequest request;
    while (connection.ReadRequest(request)) {
      if (request.method == "POST" && ++posts == 1) return;  // read, perhaps done, not answered
      connection.Write(Answer(200, "{}"));
    }
  });
  auto client = Client(server.Url());
  // The connection goes back to the pool a moment after the answer, so that the first POST may find it or
  // not.
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

TEST(Transport, SendsOnlySoManyAtOnce) {
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

// A token that counts how often it was refused.
class CountingToken final : public TokenSource {
 public:
  Result<std::string> Token() override { return fmt::format("token-{}", expired_.load()); }
  void Expire() override { ++expired_; }

 private:
  std::atomic<int> expired_{0};
};

TEST(Transport, ARefusedTokenIsNotUsedAgain) {
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

TEST(Transport, WithoutATokenNothingIsSent) {
  FaultyServer server([](Connection&, int) {});
  auto client = Client(server.Url(), {}, std::make_shared<NoToken>());
  const auto answer = Ask(*client, Post());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error(), (Error{Code::kUnavailable, "credentials: open /x/token: No such file"}));
  EXPECT_EQ(server.connections(), 0);
}

// ---- the end of a client, in whatever state its requests are

TEST(Transport, DestroyingTheClientEndsWhatIsUnderWay) {
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

// ---- streams

constexpr std::string_view kLines[] = {R"({"type":"ADDED"})", R"({"type":"MODIFIED","object":{"a":"ü"}})",
                                       R"({"type":"DELETED"})"};

TEST(Stream, BringsLinesAndAGoodEnd) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead());
    for (const std::string_view line : kLines) connection.Write(Chunk(std::string(line) + "\n"));
    connection.Write(kLastChunk);
    connection.Linger();
  });
  auto client = Client(server.Url());
  Record record;
  const auto stream = client->Stream({.target = "/api/v1/pods?watch=true"}, record.Handlers());
  const auto end = record.End();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->status, 200);
  EXPECT_EQ(end->body, "");
  EXPECT_THAT(record.lines(), ::testing::ElementsAreArray(kLines));
}

TEST(Stream, HoweverTheServerCutsItsChunks) {
  std::string text;
  for (const std::string_view line : kLines) text += std::string(line) + "\n";
  FaultyServer server([&](Connection& connection, int index) {
    AfterRequest(connection, ChunkedHead());
    const size_t cut = static_cast<size_t>(index) % (text.size() - 1) + 1;
    connection.Write(Chunk(text.substr(0, cut)));
    connection.Write(Chunk(text.substr(cut)));
    connection.Write(kLastChunk);
  });
  auto client = Client(server.Url());
  for (size_t cut = 1; cut < text.size(); ++cut) {
    Record record;
    const auto stream = client->Stream({.target = "/w"}, record.Handlers());
    ASSERT_TRUE(record.End().ok()) << cut;
    ASSERT_THAT(record.lines(), ::testing::ElementsAreArray(kLines)) << cut;
  }
}

TEST(Stream, CutAtEveryByte) {
  std::string text = ChunkedHead();
  std::vector<size_t> complete;  // bytes after which that many lines must have come
  for (const std::string_view line : kLines) {
    text += Chunk(std::string(line) + "\n");
    complete.push_back(text.size());
  }
  text += kLastChunk;
  std::atomic<size_t> cut{0};
  FaultyServer server([&](Connection& connection, int) { AfterRequest(connection, text.substr(0, cut)); });
  auto client = Client(server.Url());
  for (cut = 0; cut <= text.size(); ++cut) {
    Record record;
    const auto stream = client->Stream({.target = "/w"}, record.Handlers());
    const auto end = record.End();
    ASSERT_EQ(end.ok(), cut == text.size()) << "cut at " << cut;
    const std::vector<std::string> lines = record.lines();
    const auto whole = static_cast<size_t>(
        std::count_if(complete.begin(), complete.end(), [&](size_t at) { return at <= cut; }));
    ASSERT_EQ(lines.size(), whole) << "cut at " << cut;
    for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], kLines[i]);
    ASSERT_EQ(record.ends(), 1);
  }
}

TEST(Stream, ARefusalIsTheEndNotALine) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, Answer(410, "{\"reason\":\"Expired\"}\n{}\n"));
    connection.Linger();
  });
  auto client = Client(server.Url());
  Record record;
  const auto stream = client->Stream({.target = "/w"}, record.Handlers());
  const auto end = record.End();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->status, 410);
  EXPECT_EQ(end->body, "{\"reason\":\"Expired\"}\n{}\n");
  EXPECT_TRUE(record.lines().empty());
}

TEST(Stream, ASilentOneEnds) {
  FaultyServer server([](Connection& connection, int index) {
    AfterRequest(connection, index == 0 ? "" : ChunkedHead() + Chunk("{}\n"));
    connection.Linger();
  });
  auto client = Client(server.Url(), Impatient());
  for (const size_t lines : {size_t{0}, size_t{1}}) {
    Record record;
    const auto stream = client->Stream({.target = "/w"}, record.Handlers());
    const auto end = record.End();
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, Code::kAmbiguous) << end.error().message;
    EXPECT_EQ(record.lines().size(), lines);
  }
}

TEST(Stream, ALineWithoutEndIsRefused) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead() + Chunk("{}\n"));
    const std::string chunk = Chunk(std::string(1 << 20, 'x'));
    for (int i = 0; i < 64 && connection.Write(chunk); ++i) {
    }
    connection.Linger();
  });
  auto client = Client(server.Url());
  Record record;
  const auto stream = client->Stream({.target = "/w"}, record.Handlers());
  const auto end = record.End();
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code, Code::kUnavailable);
  EXPECT_THAT(end.error().message, HasSubstr("line longer"));
  EXPECT_EQ(record.lines().size(), 1u);
}

TEST(Stream, ALongLineWithinTheLimitComes) {
  const std::string line(size_t{7} << 20, 'x');
  FaultyServer server([&](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead() + Chunk(line + "\n") + std::string(kLastChunk));
  });
  auto client = Client(server.Url());
  Record record;
  const auto stream = client->Stream({.target = "/w"}, record.Handlers());
  EXPECT_TRUE(record.End().ok());
  ASSERT_EQ(record.lines().size(), 1u);
  EXPECT_EQ(record.lines()[0].size(), line.size());
}

// Sends lines until the client goes.
void Pour(Connection& connection) {
  AfterRequest(connection, ChunkedHead());
  while (connection.Write(Chunk("{}\n"))) {
  }
}

TEST(Stream, IsSilentOnceDestroyed) {
  Promise<bool> arrived;
  FaultyServer idle([&](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    arrived.Set(true);
    connection.Linger();
  });
  FaultyServer busy([](Connection& connection, int) { Pour(connection); });
  FaultyServer mute([](Connection& connection, int) { connection.Linger(); });
  FullListener full;
  struct {
    std::string url;
    int wait;  // 0: destroy at once, 1: for the request to arrive, 2: for lines
  } const cases[] = {{idle.Url(), 0}, {idle.Url(), 1}, {busy.Url(), 0},
                     {busy.Url(), 2}, {full.Url(), 0}, {fmt::format("https://127.0.0.1:{}", mute.port()), 0}};
  for (int round = 0; round < 20; ++round) {
    for (const auto& one : cases) {
      auto client = Client(one.url);
      Record record;
      auto stream = client->Stream({.target = "/w"}, record.Handlers());
      if (one.wait == 1) arrived.Get();
      if (one.wait == 2) {
        EXPECT_TRUE(record.WaitForLines(3));
      }
      stream.reset();
      const size_t lines = record.lines().size();
      client.reset();  // waits for whatever still runs
      EXPECT_EQ(record.lines().size(), lines) << one.url;
      EXPECT_EQ(record.ends(), 0) << one.url;
    }
  }
}

TEST(Stream, EndsWithItsClient) {
  FaultyServer server([](Connection& connection, int) { Pour(connection); });
  auto client = Client(server.Url());
  Record record;
  const auto stream = client->Stream({.target = "/w"}, record.Handlers());
  ASSERT_TRUE(record.WaitForLines(3));
  client.reset();
  EXPECT_EQ(record.ends(), 1);
  EXPECT_EQ(record.End().error().code, Code::kCancelled);
}

TEST(Stream, DoesNotCountAsARequestInFlight) {
  FaultyServer server([](Connection& connection, int) {
    SeenRequest request;
    if (!connection.ReadRequest(request)) return;
    connection.Write(request.target == "/w" ? ChunkedHead() + Chunk("{}\n") : Answer(200, "{}"));
    connection.Linger();
  });
  TransportOptions options;
  options.max_in_flight = 1;
  auto client = Client(server.Url(), options);
  Record one, two;
  const auto first = client->Stream({.target = "/w"}, one.Handlers());
  const auto second = client->Stream({.target = "/w"}, two.Handlers());
  ASSERT_TRUE(one.WaitForLines(1));
  ASSERT_TRUE(two.WaitForLines(1));
  EXPECT_TRUE(Ask(*client).ok());
}

}  // namespace
}  // namespace ringmaster::kube
