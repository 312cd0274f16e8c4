// SPDX-License-Identifier: Apache-2.0

// Streams: lines split anywhere, all kinds of ends, and no callback after the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/unit/kube_client/transport_rig.h"

namespace ringmaster::kube {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kLines[] = {R"({"type":"ADDED"})", R"({"type":"MODIFIED","object":{"a":"ü"}})",
                                       R"({"type":"DELETED"})"};

TEST(Stream, DeliversLinesAndANormalEnd) {
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

TEST(Stream, AcceptsAnyChunkSizes) {
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
  std::vector<size_t> complete;  // bytes after which this many lines must have arrived
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

TEST(Stream, ErrorResponseEndsTheStreamWithoutALine) {
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

TEST(Stream, SilentStreamFails) {
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

TEST(Stream, EndlessLineIsAnError) {
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
  EXPECT_EQ(end.error().code, Code::kGone) << "the same watch would meet the same line";
  EXPECT_THAT(end.error().message, HasSubstr("line longer"));
  EXPECT_EQ(record.lines().size(), 1u);
}

TEST(Stream, LongLineWithinTheLimitIsDelivered) {
  const std::string line(size_t{6} * 1536 * 1024, 'x');
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

// Sends lines until the client disconnects.
void Pour(Connection& connection) {
  AfterRequest(connection, ChunkedHead());
  while (connection.Write(Chunk("{}\n"))) {
  }
}

TEST(Stream, NoCallbackAfterDestruction) {
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
      client.reset();  // waits for running callbacks
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

// What a continuation of the library keeps when the process exits is never freed.
TEST(Stream, NothingOfItsCallbacksIsLeftAfterItsClient) {
  FaultyServer server([](Connection& connection, int) {
    AfterRequest(connection, ChunkedHead() + Chunk("{}\n"));
    connection.Linger();
  });
  for (int round = 0; round < 50; ++round) {
    const auto held = std::make_shared<int>(0);
    auto client = Client(server.Url());
    std::vector<std::unique_ptr<HttpStream>> streams;
    for (int i = 0; i < 8; ++i)
      streams.push_back(client->Stream(
          {.target = "/w"}, {[held](std::string_view) {}, [held](const Result<HttpResponse>&) {}}));
    if (round % 2 == 0) {
      Record record;
      const auto last = client->Stream({.target = "/w"}, record.Handlers());
      ASSERT_TRUE(record.WaitForLines(1));
    }
    streams.clear();
    client.reset();
    ASSERT_EQ(held.use_count(), 1) << "in round " << round;
  }
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
  Promise<Result<HttpResponse>> answer;
  client->Send({.target = "/version"}, [&](Result<HttpResponse> result) { answer.Set(std::move(result)); });
  EXPECT_TRUE(answer.Get().ok());
}

}  // namespace
}  // namespace ringmaster::kube
