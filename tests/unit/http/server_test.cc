// SPDX-License-Identifier: Apache-2.0

// The server with real sockets: its responses, its streams, and hostile clients.
#include "base/http/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/http/raw_client.h"

namespace ringmaster::http {
namespace {

TEST(HttpServer, PassesPathQueryAndToken) {
  const auto server = Start([](const Request& query, const Responder& reply) {
    reply({200, "text/plain", query.path + "|" + query.query + "|" + query.bearer});
  });
  const std::string answer = Get(server->port(), "/a/b?c=d", "Authorization: Bearer t0k\r\n");
  EXPECT_NE(answer.find("200 OK"), std::string::npos);
  EXPECT_NE(answer.find("/a/b|c=d|t0k"), std::string::npos);
}

TEST(HttpServer, KeepsTheConnection) {
  const auto server = Start([](const Request& query, const Responder& reply) {
    reply({200, "t/p", query.path});
  });
  const Fd fd = Connect(server->port());
  for (int i = 0; i < 3; ++i) {
    const std::string path = "/again" + std::to_string(i);
    Send(fd, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_NE(Receive(fd, path).find(path), std::string::npos);
  }
}

TEST(HttpServer, ResponsesMayComeLaterFromAnotherThread) {
  std::thread later;
  const auto server = Start([&](const Request&, Responder reply) {
    later = std::thread([reply] { reply({200, "text/plain", "late"}); });
  });
  EXPECT_NE(Get(server->port(), "/").find("late"), std::string::npos);
  later.join();
}

TEST(HttpServer, ResponseAfterTheEndIsDropped) {
  Responder kept;
  std::atomic<bool> asked{false};
  auto server = Start([&](const Request&, Responder reply) {
    kept = std::move(reply);
    asked = true;
    asked.notify_all();
  });
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  asked.wait(false);
  server.reset();
  kept({200, "text/plain", "dropped"});
  EXPECT_EQ(Receive(fd), "");
}

TEST(HttpServer, OnlyGetAndHead) {
  const auto server = Start([](const Request&, const Responder& reply) { reply({200, "t/p", "secret"}); });
  const Fd fd = Connect(server->port());
  Send(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  const std::string answer = Receive(fd);
  EXPECT_NE(answer.find("405"), std::string::npos);
  EXPECT_EQ(answer.find("secret"), std::string::npos);
}

TEST(HttpServer, RejectsTooLargeHeadsAndBodies) {
  const auto server = Start([](const Request&, const Responder& reply) { reply({200, "t/p", "ok"}); });
  const Fd head = Connect(server->port());
  const std::string endless = "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x');
  send(head.get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  EXPECT_EQ(Receive(head).find("200"), std::string::npos);
  const Fd body = Connect(server->port());
  Send(body, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(Receive(body).find("200"), std::string::npos);
}

TEST(HttpServer, SilentConnectionsAreClosed) {
  ServerOptions options;
  options.idle_limit = milliseconds(100);
  const auto server = Start(
      [](const Request&, const Responder& reply) {
        reply({200, "t/p", "ok"});
      },
      options);
  EXPECT_EQ(Receive(Connect(server->port())), "");
}

TEST(HttpServer, SilentConnectionsDoNotBlockOthers) {
  ServerOptions options;
  options.max_connections = 4;
  const auto server = Start(
      [](const Request&, const Responder& reply) {
        reply({200, "t/p", "ok"});
      },
      options);
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect(server->port()));
  EXPECT_NE(Get(server->port(), "/").find("200"), std::string::npos);
  EXPECT_EQ(Receive(silent[0]), "");
}

TEST(HttpServer, ProbesThatOnlyConnectAreCleanedUp) {
  const auto server = Start([](const Request&, const Responder& reply) { reply({200, "t/p", "ok"}); });
  for (int i = 0; i < 300; ++i) Connect(server->port());
  EXPECT_NE(Get(server->port(), "/").find("200"), std::string::npos);  // there were more than max_connections
}

TEST(HttpServer, PortInUseIsAnError) {
  const auto server = Start([](const Request&, const Responder& reply) { reply({}); });
  ServerOptions options;
  options.port = server->port();
  const auto second = Server::Start(options, [](const Request&, const Responder&) {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST(HttpServer, InvalidCertificateIsAnError) {
  ServerOptions options;
  options.tls_cert_pem = "nonsense";
  options.tls_key_pem = "nonsense";
  const auto server = Server::Start(options, [](const Request&, const Responder&) {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Code::kInvalid);
}

TEST(HttpServer, PassesHostOriginAndCookie) {
  const auto server = Start([](const Request& query, const Responder& reply) {
    reply({200, "text/plain", query.host + "|" + query.origin + "|" + query.cookie, {{"X-More", "yes"}}});
  });
  const std::string answer = Get(server->port(), "/", "Origin: http://other\r\nCookie: a=b\r\n");
  EXPECT_NE(answer.find("x|http://other|a=b"), std::string::npos) << answer;
  EXPECT_NE(answer.find("X-More: yes"), std::string::npos) << answer;
}

// Passes the stream of a request from the server's thread to the test.
struct StreamOfTest {
  std::promise<BodyStream> started;
  Handler handler = [this](const Request&, const Responder& reply) {
    Response response;
    response.content_type = "text/event-stream";
    response.stream = [this](BodyStream stream) { started.set_value(std::move(stream)); };
    reply(std::move(response));
  };
};

TEST(HttpServer, StreamsUntilTheLastCopyIsGone) {
  StreamOfTest of;
  const auto server = Start(of.handler);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  std::optional<BodyStream> stream = of.started.get_future().get();
  for (const char* piece : {"data: one\n\n", "data: two\n\n"}) {
    EXPECT_TRUE(stream->Write(piece));
    EXPECT_NE(Receive(fd, piece).find(piece), std::string::npos) << "each piece is sent at once";
  }
  EXPECT_TRUE(stream->Write("last"));
  stream.reset();
  EXPECT_EQ(Receive(fd), "last");
}

TEST(HttpServer, TheEndSendsWhatEndedStreamsHaveQueued) {
  StreamOfTest of;
  auto server = Start(of.handler);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  std::optional<BodyStream> stream = of.started.get_future().get();
  // More than sockets buffer, so that the last piece waits while the first one is written.
  EXPECT_TRUE(stream->Write(std::string(BodyStream::kMaxQueuedBytes - 4, 'x')));
  EXPECT_TRUE(stream->Write("last"));
  stream.reset();
  std::thread ending([&] { server.reset(); });
  const std::string text = Receive(fd);
  ending.join();
  EXPECT_EQ(text.substr(text.size() - 4), "last");
}

TEST(HttpServer, TheEndDoesNotAwaitAClientThatDoesNotRead) {
  StreamOfTest of;
  auto server = Start(of.handler);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  std::optional<BodyStream> stream = of.started.get_future().get();
  EXPECT_TRUE(stream->Write(std::string(BodyStream::kMaxQueuedBytes, 'x')));
  stream.reset();
  server.reset();
}

TEST(HttpServer, StreamsMayBeSilentForLongerThanTheIdleLimit) {
  StreamOfTest of;
  ServerOptions options;
  options.idle_limit = milliseconds(50);
  const auto server = Start(of.handler, options);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const BodyStream stream = of.started.get_future().get();
  Receive(fd, "\r\n\r\n");
  // A connection without a request ends after the limit; the stream, which is older, does not.
  EXPECT_EQ(Receive(Connect(server->port())), "");
  EXPECT_TRUE(stream.Write("still here"));
  EXPECT_EQ(Receive(fd, "here"), "still here");
}

TEST(HttpServer, AStreamEndsWhenItsClientGoes) {
  StreamOfTest of;
  const auto server = Start(of.handler);
  Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const BodyStream stream = of.started.get_future().get();
  fd.Reset();
  while (stream.Write("")) std::this_thread::yield();
}

TEST(HttpServer, AClientThatDoesNotReadLosesItsStream) {
  StreamOfTest of;
  const auto server = Start(of.handler);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const BodyStream stream = of.started.get_future().get();
  size_t accepted = 0;
  const std::string piece(1U << 20, 'x');
  while (stream.Write(piece)) accepted += piece.size();
  // What the sockets buffer comes on top.
  EXPECT_LE(accepted, BodyStream::kMaxQueuedBytes + (64U << 20));
  EXPECT_FALSE(stream.Write("more"));
}

TEST(HttpServer, AStreamMayOutliveTheServer) {
  StreamOfTest of;
  auto server = Start(of.handler);
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const BodyStream stream = of.started.get_future().get();
  server.reset();
  EXPECT_FALSE(stream.Write("dropped"));
}

}  // namespace
}  // namespace ringmaster::http
