// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/kubeflow/kubeflow_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "tests/temp_folder.h"

namespace ringmaster::agent {
namespace {

const std::string kToken = "0123456789abcdef";

class KubeflowServerTest : public testing::Test {
 protected:
  KubeflowServerTest() : server_(KubeflowServer::Open("team/gpt", folder_.path(), "/ca.crt").value()) {
    server_.Begin(kToken, &variables_);
  }

  Fd Connect() {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(server_.port()));
    CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }
  static void Send(const Fd& socket, const std::string& text) {
    ASSERT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Runs the server, as the loop of the agent does, until a client has something to read or has lost its
  // connection. Returns what it gets; empty at the end of the connection.
  std::string Receive(const Fd& client) {
    while (true) {
      std::array<pollfd, 2> polled = {pollfd{server_.fd(), POLLIN, 0}, pollfd{client.get(), POLLIN, 0}};
      if (::poll(polled.data(), polled.size(), 20'000) <= 0) break;
      if (polled[0].revents != 0) Advance();
      if (polled[1].revents == 0) continue;
      std::array<char, size_t{128} << 10> bytes;
      const ssize_t got = ::recv(client.get(), bytes.data(), bytes.size(), 0);
      EXPECT_GE(got, 0) << "the connection was reset";
      return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
    }
    ADD_FAILURE() << "no answer";
    return "";
  }
  // Receives until the server has closed its side.
  std::string ReceiveAll(const Fd& client) {
    std::string all;
    for (std::string part = Receive(client); !part.empty(); part = Receive(client)) all += part;
    return all;
  }
  void Advance(Time now = Now()) {
    server_.Advance(now, [this](const KubeflowStatus& status) { taken_.push_back(status); });
  }
  // Advances when the server has an event.
  void AwaitEvent() {
    pollfd wait = {server_.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 20'000), 1);
    Advance();
  }
  static std::string Post(const std::string& body, const std::string& token = kToken) {
    return "POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/gpt/status HTTP/1.1\r\n"
           "Content-Length: " +
           std::to_string(body.size()) + "\r\nAuthorization: Bearer " + token + "\r\n\r\n" + body;
  }
  static std::string Body(int percent) {
    return R"({"trainerStatus": {"progressPercentage": )" + std::to_string(percent) + "}}";
  }

  TempFolder folder_;
  KubeflowServer server_;
  std::vector<std::string> variables_;
  std::vector<KubeflowStatus> taken_;
};

TEST_F(KubeflowServerTest, TheVariablesLeadToIt) {
  const std::string file = folder_.File("kubeflow-token");
  EXPECT_EQ(variables_,
            (std::vector<std::string>{
                "KUBEFLOW_TRAINER_SERVER_URL=http://127.0.0.1:" + std::to_string(server_.port()) +
                    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/gpt/status",
                "KUBEFLOW_TRAINER_SERVER_TOKEN=" + file, "KUBEFLOW_TRAINER_SERVER_CA_CERT=/ca.crt"}));
  EXPECT_EQ(ReadFile(file).value(), kToken);
  struct stat info = {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(KubeflowServerTest, AReportIsTakenAndAnswered) {
  const Fd client = Connect();
  Send(client, Post(Body(45)));
  const std::string answer = ReceiveAll(client);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n" + Body(45))) << answer;
  ASSERT_EQ(taken_.size(), 1u);
  EXPECT_EQ(taken_[0].percent, 45);
}

TEST_F(KubeflowServerTest, ARequestInPartsAndASecondOneAfterIt) {
  const Fd client = Connect();
  const std::string text = Post(Body(45));
  for (const char c : text.substr(0, text.size() - 1)) {
    Send(client, std::string(1, c));
    AwaitEvent();
  }
  EXPECT_TRUE(taken_.empty());
  Send(client, text.back() + Post(Body(46)));
  const std::string answer = ReceiveAll(client);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + Body(45))) << answer;
  EXPECT_EQ(taken_.size(), 1u);
}

TEST_F(KubeflowServerTest, AClientThatWaitsForPermissionGetsIt) {
  const Fd client = Connect();
  std::string text = Post(Body(45));
  text.insert(text.find("Content-Length"), "Expect: 100-continue\r\n");
  Send(client, text.substr(0, text.size() - Body(45).size()));
  EXPECT_EQ(Receive(client), "HTTP/1.1 100 Continue\r\n\r\n");
  Send(client, Body(45));
  EXPECT_TRUE(ReceiveAll(client).starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_F(KubeflowServerTest, TheTokenOfAnEarlierProgramIsRefused) {
  const std::string next = "fedcba9876543210";
  std::vector<std::string> again;
  server_.Begin(next, &again);
  EXPECT_EQ(again, variables_);
  EXPECT_EQ(ReadFile(folder_.File("kubeflow-token")).value(), next);
  const Fd old = Connect();
  Send(old, Post(Body(45)));
  EXPECT_TRUE(ReceiveAll(old).starts_with("HTTP/1.1 403 "));
  EXPECT_TRUE(taken_.empty());
  const Fd client = Connect();
  Send(client, Post(Body(45), next));
  EXPECT_TRUE(ReceiveAll(client).starts_with("HTTP/1.1 200 "));
}

TEST_F(KubeflowServerTest, WithoutAFileForTheTokenNoProgramReports) {
  const std::string file = folder_.File("kubeflow-token");
  std::filesystem::remove(file);
  std::filesystem::create_directories(file + "/in the way");
  std::vector<std::string> variables;
  server_.Begin("", &variables);
  EXPECT_TRUE(variables.empty());
  const Fd client = Connect();
  Send(client, Post(Body(45), ""));
  EXPECT_TRUE(ReceiveAll(client).starts_with("HTTP/1.1 403 "));
}

// The client reads the answer, and not a reset, although it sends more than the server has read.
TEST_F(KubeflowServerTest, ALargeRequestIsRefused) {
  const Fd client = Connect();
  Send(client, "POST /x HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  const std::string answer = Receive(client);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer;
  Send(client, std::string(10'000, 'x'));
  AwaitEvent();
  Send(client, "x");
  EXPECT_EQ(ReceiveAll(client), "");
}

TEST_F(KubeflowServerTest, TheLargestReportIsAnswered) {
  const Fd client = Connect();
  const std::string body = Body(45) + std::string(HttpRequestReader::kMaxBody - Body(45).size(), ' ');
  Send(client, Post(body));
  EXPECT_TRUE(ReceiveAll(client).ends_with("\r\n\r\n" + body));
  EXPECT_EQ(taken_.size(), 1u);
}

TEST_F(KubeflowServerTest, AConnectionHasALimit) {
  const Fd silent = Connect();
  AwaitEvent();
  EXPECT_EQ(server_.connections(), 1u);
  const Time due = server_.deadline();
  EXPECT_LE(due, Now() + KubeflowServer::kLimit);
  Advance(due - milliseconds(1));
  EXPECT_EQ(server_.connections(), 1u);
  Advance(due);
  EXPECT_EQ(server_.connections(), 0u);
  EXPECT_EQ(server_.deadline(), kNever);
  EXPECT_EQ(Receive(silent), "");
}

TEST_F(KubeflowServerTest, TheOldestConnectionGivesWay) {
  std::vector<Fd> silent;
  for (size_t i = 0; i < KubeflowServer::kMaxConnections; ++i) {
    silent.push_back(Connect());
    AwaitEvent();
  }
  EXPECT_EQ(server_.connections(), KubeflowServer::kMaxConnections);
  const Fd client = Connect();
  Send(client, Post(Body(45)));
  EXPECT_TRUE(ReceiveAll(client).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(Receive(silent.front()), "");
  EXPECT_EQ(server_.connections(), KubeflowServer::kMaxConnections);
}

TEST_F(KubeflowServerTest, AClientThatGoesAwayLeavesNothing) {
  {
    const Fd client = Connect();
    Send(client, Post(Body(45)).substr(0, 20));
    AwaitEvent();
    EXPECT_EQ(server_.connections(), 1u);
  }
  while (server_.connections() > 0) AwaitEvent();
  EXPECT_TRUE(taken_.empty());
}

}  // namespace
}  // namespace ringmaster::agent
