// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/fabric/processes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/json.h"

namespace ringmaster::fabric::testing {
namespace {

void SendLine(int socket, const std::string& line) {
  const std::string text = line + "\n";
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t sent = ::send(socket, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += static_cast<size_t>(sent);
  }
}

// Returns "" at the end of the stream or at the deadline.
std::string ReceiveLine(int socket, std::string& buffer, Time deadline) {
  while (true) {
    if (const size_t end = buffer.find('\n'); end != std::string::npos) {
      std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return line;
    }
    const int64_t left = std::max<int64_t>(0, ToMs(deadline - Now()));
    pollfd poll = {socket, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(left)) <= 0) return {};
    char bytes[65536];
    const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
    if (got <= 0) return {};
    buffer.append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

Status Member::Create(const FabricOptions& options, size_t bytes) {
  RM_ASSIGN(fabric_, Fabric::Create(options));
  if (bytes > 0) {
    RM_ASSIGN(memory_, fabric_->Allocate(bytes, "test"));
  }
  return Ok();
}

Status Member::Exchange() {
  Send(fabric_->Address());
  RM_ASSIGN(const Json all, ParseJson(Receive()));
  addresses_ = all.get<std::vector<std::string>>();
  return Ok();
}

Result<std::unique_ptr<Communicator>> Member::Connect(uint64_t generation, const std::vector<int>& ids) {
  Membership group;
  group.generation = generation;
  for (size_t q = 0; q < ids.size(); ++q) {
    if (ids[q] == id_) group.rank = static_cast<int>(q);
    group.addresses.push_back(addresses_[ids[q]]);
  }
  return fabric_->Connect(group);
}

Result<std::unique_ptr<Communicator>> Member::ConnectAll(uint64_t generation) {
  std::vector<int> ids;
  for (size_t i = 0; i < addresses_.size(); ++i) ids.push_back(static_cast<int>(i));
  return Connect(generation, ids);
}

void Member::Send(const std::string& line) { SendLine(socket_, line); }

std::string Member::Receive() { return ReceiveLine(socket_, buffer_, Now() + seconds(120)); }

Processes::Processes(int count, const std::function<Status(Member&)>& body) {
  for (int id = 0; id < count; ++id) {
    int sockets[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      children_.clear();
      ::close(sockets[0]);
      Member member(id, sockets[1]);
      const Status status = body(member);
      member.Send(status.ok()
                      ? "end ok"
                      : "end " + std::string(CodeName(status.error().code)) + ": " + status.error().message);
      ::_exit(0);
    }
    ::close(sockets[1]);
    children_.push_back({pid, Fd(sockets[0]), {}});
  }
}

Processes::~Processes() {
  for (Child& child : children_) {
    if (child.pid == 0) continue;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
  }
}

void Processes::Exchange() {
  Json all = Json::array();
  for (int id = 0; id < count(); ++id) all.push_back(Receive(id));
  for (int id = 0; id < count(); ++id) Send(id, DumpJson(all));
}

void Processes::Send(int id, const std::string& line) { SendLine(children_[id].socket.get(), line); }

std::string Processes::Receive(int id, Duration limit) {
  return ReceiveLine(children_[id].socket.get(), children_[id].buffer, Now() + limit);
}

void Processes::Signal(int id, int signal) { ::kill(children_[id].pid, signal); }

std::string Processes::Wait(int id, Duration limit) {
  const Time deadline = Now() + limit;
  Child& child = children_[id];
  std::string result = "killed";
  while (true) {
    const std::string line = ReceiveLine(child.socket.get(), child.buffer, deadline);
    if (line.rfind("end ", 0) == 0) {
      result = line.substr(4);
      break;
    }
    if (line.empty()) {
      if (Now() >= deadline) result = "timeout";
      break;
    }
  }
  ::kill(child.pid, SIGKILL);
  ::waitpid(child.pid, nullptr, 0);
  child.pid = 0;
  return result;
}

void RunAll(int count, const FabricOptions& options, size_t bytes,
            const std::function<Status(Member&)>& body) {
  Processes processes(count, [&](Member& member) -> Status {
    RM_TRY(member.Create(options, bytes));
    RM_TRY(member.Exchange());
    return body(member);
  });
  processes.Exchange();
  for (int id = 0; id < count; ++id)
    EXPECT_EQ(processes.Wait(id), "ok") << "process " << id << " of " << count;
}

}  // namespace ringmaster::fabric::testing
