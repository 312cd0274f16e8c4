// SPDX-License-Identifier: Apache-2.0

// Networks that are not the loopback device of an idle machine: messages that stay unfinished because socket
// buffers are small, nodes that fall silent, addresses that refuse connections for a moment. Real processes
// over TCP.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/fabric/processes.h"
#include "tests/unit/fabric/sockets.h"

namespace ringmaster::fabric::testing {
namespace {

// Much more than the window and two socket buffers hold.
constexpr size_t kElements = 2 << 20;

// Signs that this process waits for a peer (FabricOptions::on_wait).
class Signs {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }

  // Runs one call, and `at_sign` in another thread once the call has shown `count` signs that it waits.
  Status Watch(const std::function<Status()>& call, uint64_t count, const std::function<void()>& at_sign) {
    std::unique_lock lock(mutex_);
    count_ = 0;
    bool over = false;
    std::thread watcher([&] {
      std::unique_lock own(mutex_);
      changed_.wait(own, [&] { return count_ >= count || over; });
      const bool waits = !over;
      own.unlock();
      if (waits) at_sign();
    });
    lock.unlock();
    const Status status = call();
    lock.lock();
    over = true;
    changed_.notify_all();
    lock.unlock();
    watcher.join();
    return status;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t count_ = 0;
};
Signs signs;

std::string CodeOf(const Status& status) {
  return status.ok() ? "ok" : std::string(CodeName(status.error().code));
}

Duration CpuTime() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// A member that makes the calls that the test orders, one line each, and answers with their results.
class Caller {
 public:
  explicit Caller(Member& member) : member_(member), data_(kElements, 1.0f) {}

  Status Run() {
    while (true) {
      const std::string line = member_.Receive();
      if (line.empty() || line == "end") return Ok();
      std::istringstream words(line);
      std::string verb;
      words >> verb;
      member_.Send(Do(verb, words));
    }
  }

 private:
  std::string Do(const std::string& verb, std::istringstream& words) {
    uint64_t number = 0;
    words >> number;
    if (verb == "connect") {  // "connect 2 0 1": generation 2 of the processes 0 and 1
      std::vector<int> ids;
      for (int id = 0; words >> id;) ids.push_back(id);
      return CodeOf(Connect(number, ids));
    }
    if (verb == "connect-and-abort") {  // another thread aborts as soon as the parent says so
      std::thread aborter([&] {
        (void)member_.Receive();
        member_.fabric().Abort(number);
      });
      const Status status = Connect(number, {0, 1});
      aborter.join();
      return CodeOf(status);
    }
    const auto sum = [this] { return communicator_->AllReduce(std::span(data_), ReduceOp::kSum); };
    const auto barrier = [this] { return communicator_->Barrier(); };
    if (verb == "sum") return CodeOf(sum());
    if (verb ==
        "sum-and-abort") {  // while it waits; the caller uses its memory for something else afterwards
      const Status status = signs.Watch(sum, 2, [&] { member_.fabric().Abort(number); });
      std::fill(data_.begin(), data_.end(), 7.0f);
      return CodeOf(status);
    }
    if (verb == "barrier" && number == 0) return CodeOf(barrier());
    if (verb == "barrier") {  // "barrier 3": reports three signs of its wait, which must be a sleep
      const Duration cpu = CpuTime();
      const Time begin = Now();
      const Status status = signs.Watch(barrier, number, [&] { member_.Send("waits"); });
      const bool asleep = 4 * (CpuTime() - cpu) < Now() - begin;
      return CodeOf(status) + (asleep ? "" : " and used a processor all the time");
    }
    if (verb == "sockets") return fmt::format("{}", TcpSockets().size());
    if (verb == "silent-connection") OpenSilentConnection();
    if (verb == "drop") DropAllPackets(TcpSockets());
    if (verb == "refuse" && !RefuseConnections(8, static_cast<int>(number))) return "not permitted";
    return "done";
  }

  Status Connect(uint64_t generation, const std::vector<int>& ids) {
    communicator_.reset();
    RM_ASSIGN(communicator_, member_.Connect(generation, ids));
    return Ok();
  }

  Member& member_;
  std::vector<float> data_;
  std::unique_ptr<Communicator> communicator_;
};

class Networks : public ::testing::Test {
 protected:
  Networks() {
    // The socket buffers of a network; UCX's other transports of one host have none.
    for (const char* const name : {"UCX_TCP_SNDBUF", "UCX_TCP_RCVBUF"}) ::setenv(name, "64k", 1);
    ::setenv("UCX_TLS", "tcp,self", 1);
  }
  ~Networks() override {
    for (const char* const name : {"UCX_TCP_SNDBUF", "UCX_TCP_RCVBUF", "UCX_TLS"}) ::unsetenv(name);
  }

  void Start(int count, Duration timeout = seconds(3)) {
    processes_ = std::make_unique<Processes>(count, [timeout](Member& member) -> Status {
      FabricOptions options;
      options.transport = "ucx";
      options.timeout = timeout;
      options.on_wait = [] { signs.Add(); };
      RM_TRY(member.Create(options));
      RM_TRY(member.Exchange());
      return Caller(member).Run();
    });
    processes_->Exchange();
  }
  void Send(const std::vector<int>& ids, const std::string& line) {
    for (const int id : ids) processes_->Send(id, line);
  }
  void Expect(const std::vector<int>& ids, const std::string& line) {
    for (const int id : ids) EXPECT_EQ(processes_->Receive(id), line) << "process " << id;
  }
  void Call(const std::vector<int>& ids, const std::string& line, const std::string& answer) {
    Send(ids, line);
    Expect(ids, answer);
  }
  // Process 0 gives up this generation of 0 and 1, while its messages fill the window.
  void GiveUp(uint64_t generation) {
    Call({0, 1}, fmt::format("connect {} 0 1", generation), "ok");
    Call({0}, fmt::format("sum-and-abort {}", generation), kCancelled);
  }
  void End(const std::vector<int>& ids) {
    Send(ids, "end");
    for (const int id : ids) EXPECT_EQ(processes_->Wait(id), "ok") << "process " << id;
  }

  const std::string kCancelled{CodeName(Code::kCancelled)};
  const std::string kUnavailable{CodeName(Code::kUnavailable)};
  std::unique_ptr<Processes> processes_;
};

TEST_F(Networks, ASurvivorOutlivesTheOrderlyEndOfItsPeer) {
  for (int repetition = 0; repetition < 4; ++repetition) {
    Start(2);
    GiveUp(1);
    Call({0, 1}, "connect 2 0 1", "ok");
    Send({0}, "barrier 3");
    Expect({0}, "waits");
    Call({1}, "barrier", "ok");
    Expect({0}, "ok");  // and it slept
    End({1});
    Call({0}, "barrier", kUnavailable);
    End({0});
  }
}

// The process that gave up makes no further call: it may compute or read for a long time.
TEST_F(Networks, ALateMemberLearnsThatAPeerGaveUp) {
  Start(2);
  GiveUp(1);
  Call({1}, "sum", kCancelled);
  Call({0, 1}, "connect 2 0 1", "ok");
  Call({0, 1}, "sum", "ok");
  End({0, 1});
}

TEST_F(Networks, AHelloOfANewerGenerationEndsTheOlderOne) {
  Start(2);
  Call({0, 1}, "connect 1 0 1", "ok");
  Send({1}, "barrier 1");
  Expect({1}, "waits");  // for process 0, which never enters it
  Send({0}, "connect 2 0 1");
  Expect({1}, kCancelled);
  Call({1}, "connect 2 0 1", "ok");
  Expect({0}, "ok");
  End({0, 1});
}

// A peer that is quick enters the next generation while the last operation ends here.
TEST_F(Networks, AHelloOfANewerGenerationSparesACompleteOperation) {
  Start(3);
  for (int generation = 1; generation <= 30; ++generation) {
    Send({0, 1, 2}, fmt::format("connect {} 0 1 2", generation));
    Send({0, 1, 2}, "barrier");
  }
  for (int i = 0; i < 60; ++i) Expect({0, 1, 2}, "ok");
  End({0, 1, 2});
}

TEST_F(Networks, RecoveriesLeaveNoSockets) {
  Start(2);
  GiveUp(1);
  GiveUp(2);
  std::vector<std::string> before;
  std::vector<std::string> after;
  const auto count = [&](std::vector<std::string>* sockets) {
    Send({0, 1}, "sockets");
    for (const int id : {0, 1}) sockets->push_back(processes_->Receive(id));
  };
  Call({0, 1}, "connect 3 0 1", "ok");
  Call({0, 1}, "barrier", "ok");
  count(&before);
  for (uint64_t generation = 4; generation < 10; ++generation) GiveUp(generation);
  Call({0, 1}, "connect 10 0 1", "ok");
  Call({0, 1}, "barrier", "ok");
  count(&after);
  EXPECT_EQ(before, after);
  End({0, 1});
}

// A node that falls silent leaves unacknowledged data behind, and so may the program's own connections. They
// say nothing about the members.
TEST_F(Networks, ALostNodeDoesNotDisturbTheOthers) {
  Start(3, seconds(1));
  Call({0, 1, 2}, "connect 1 0 1 2", "ok");
  Call({0, 1, 2}, "barrier", "ok");
  Call({2}, "drop", "done");
  Call({0}, "silent-connection", "done");
  Call({0, 1}, "connect 2 0 1", "ok");
  Call({0, 1}, "barrier", "ok");
  Send({0}, "barrier 40");  // signs come twelve times per timeout
  Expect({0}, "waits");
  Call({1}, "barrier", "ok");
  Expect({0}, "ok");
  End({0, 1});
}

TEST_F(Networks, AbortEndsAConnectToANodeThatDropsPackets) {
  Start(2, seconds(30));
  Call({1}, "drop", "done");
  Send({0}, "connect-and-abort 1");
  Send({0}, "now");
  Expect({0}, kCancelled);
  End({0});
}

// A network plug-in may be a second late, and a peer's listener too.
TEST_F(Networks, AnAddressMayBeRefusedForAMoment) {
  for (const int error : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT}) {
    Start(2, seconds(60));
    Send({0, 1}, fmt::format("refuse {}", error));
    const std::string answer = processes_->Receive(0);
    Expect({1}, answer);
    if (answer != "done") GTEST_SKIP() << "the kernel does not pass system calls to this process: " << answer;
    Send({0, 1}, "connect 1 0 1");
    Expect({0, 1}, "ok");
    Call({0, 1}, "barrier", "ok");
    End({0, 1});
  }
}

}  // namespace
}  // namespace ringmaster::fabric::testing
