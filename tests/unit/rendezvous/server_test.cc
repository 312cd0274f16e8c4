// Real sockets on loopback. Every wait is for an event, with a deadline.
#include "rendezvous/server.h"

#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "rendezvous/codec.h"

namespace ringmaster::rendezvous {
namespace {

namespace asio = boost::asio;

class Client {
 public:
  explicit Client(uint16_t port) : socket_(io_) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), port});
    const timeval limit{20, 0};  // only a broken server makes us wait for it
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  void Send(const Message& message) { SendRaw(Encode(message)); }
  void SendRaw(const std::string& bytes) {
    boost::system::error_code ignored;
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  // nullopt: the server has closed the connection.
  std::optional<Message> Next() {
    for (;;) {
      auto next = decoder_.Next();
      EXPECT_TRUE(next.ok());
      if (next.value()) return *next.value();
      char buffer[4096];
      const ssize_t n = recv(socket_.native_handle(), buffer, sizeof(buffer), 0);
      if (n < 0) ADD_FAILURE() << "nothing came";
      if (n <= 0) return std::nullopt;
      decoder_.Feed({buffer, static_cast<size_t>(n)});
    }
  }
  template <class T>
  T Await() {
    for (;;) {
      auto message = Next();
      if (!message) {
        ADD_FAILURE() << "closed";
        return {};
      }
      if (const T* found = std::get_if<T>(&*message)) return *found;
    }
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
  Decoder decoder_;
};

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerCallbacks callbacks;
    callbacks.on_report = [this](const std::string&, const Report& report) {
      const std::lock_guard lock(mutex_);
      report_ = report;
      changed_.notify_all();
    };
    auto server = Server::Start({"127.0.0.1", 0, "secret"}, callbacks);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    CoordinatorOptions options;
    options.job = "default/job";
    server_->AddJob(options);
  }
  void AwaitPhase(GangPhase phase) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return report_.phase == phase; }));
  }
  static Hello Me() { return {"default/job", "pod-0", "agent", "secret"}; }

  std::mutex mutex_;
  std::condition_variable changed_;
  Report report_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, OneWorkerFromHelloToTheEnd) {
  Client client(server_->port());
  client.Send(Me());
  EXPECT_EQ(client.Await<Welcome>().job, "default/job");
  client.Send(Join{"agent.1", "x"});
  MemberStatus status;
  status.generation = client.Await<Prepare>().generation;
  status.member = "agent.1";
  client.Send(status);
  EXPECT_EQ(client.Await<NewGeneration>().members.size(), 1u);
  AwaitPhase(GangPhase::kActive);
  Done done;
  done.finished = true;
  client.Send(done);
  EXPECT_EQ(client.Await<Exit>().reason, "finished");
  AwaitPhase(GangPhase::kFinished);
}

TEST_F(ServerTest, StrangersAreClosed) {
  Hello wrong = Me();
  wrong.secret = "secreT";
  Hello other = Me();
  other.job = "default/other";
  for (const std::string& first : {Encode(wrong), Encode(other), Encode(Ping{}),
                                   std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff")}) {
    Client client(server_->port());
    client.SendRaw(first);
    EXPECT_FALSE(client.Next().has_value());
  }
}

TEST_F(ServerTest, AStopWithoutStateEndsAtOnce) {
  Client client(server_->port());
  client.Send(Me());
  client.Await<Welcome>();
  server_->RequestStop("default/job");
  EXPECT_EQ(client.Await<Exit>().code, 0);
  AwaitPhase(GangPhase::kStopped);
}

TEST_F(ServerTest, ShutdownClosesEverybody) {
  Client client(server_->port());
  client.Send(Me());
  client.Await<Welcome>();
  server_->Shutdown();
  server_.reset();
  while (client.Next()) {
  }
}

TEST(Server, AnAddressThatCannotBeHadIsAnError) {
  EXPECT_FALSE(Server::Start({"not an address", 0, ""}, {}).ok());
}

}  // namespace
}  // namespace ringmaster::rendezvous
