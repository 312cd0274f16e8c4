// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/agent/rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

int ToPollMs(Duration limit) { return static_cast<int>(std::max<int64_t>(0, ToMs(limit))); }

std::string StatusField(pid_t pid, const std::string& name) {
  const auto text = ReadFile(fmt::format("/proc/{}/status", pid));
  if (!text.ok()) return "0";
  const size_t at = text.value().find("\n" + name + ":");
  return at == std::string::npos ? "0" : text.value().substr(at + name.size() + 2);
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, Duration limit) {
  const Time deadline = Now() + limit;
  while (!condition()) {
    if (Now() > deadline) return false;
    ::poll(nullptr, 0, 3);  // poll: /proc and other processes send no notification
  }
  return true;
}

bool WaitReadable(int fd, Duration limit) {
  pollfd wait = {fd, POLLIN, 0};
  return ::poll(&wait, 1, ToPollMs(limit)) == 1;
}

TestCoordinator::TestCoordinator() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
  CHECK(::listen(listener_.get(), 8) == 0);
}

std::string TestCoordinator::address() const {
  sockaddr_in bound = {};
  socklen_t length = sizeof bound;
  CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0);
  return fmt::format("127.0.0.1:{}", ntohs(bound.sin_port));
}

std::optional<rendezvous::Hello> TestCoordinator::Accept() {
  if (!WaitReadable(listener_.get())) return std::nullopt;
  connection_ = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  decoder_ = rendezvous::Decoder();
  const auto first = Next();
  if (!first || !std::holds_alternative<rendezvous::Hello>(*first)) return std::nullopt;
  auto hello = std::get<rendezvous::Hello>(*first);
  Send(rendezvous::Welcome{hello.job});
  return hello;
}

void TestCoordinator::Send(const rendezvous::Message& message) {
  const std::string frame = rendezvous::Encode(message);
  EXPECT_EQ(::send(connection_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(frame.size()));
}

std::optional<rendezvous::Message> TestCoordinator::NextOfAnyKind() {
  char chunk[4096];
  while (true) {
    auto message = decoder_.Next();
    CHECK(message.ok(), "{}", message.error().message);
    if (message.value()) return std::move(*message.value());
    if (!connection_.valid() || !WaitReadable(connection_.get())) return std::nullopt;
    const ssize_t got = ::recv(connection_.get(), chunk, sizeof chunk, 0);
    if (got <= 0) {
      connection_.Reset();
      return std::nullopt;
    }
    decoder_.Feed({chunk, static_cast<size_t>(got)});
  }
}

std::optional<rendezvous::Message> TestCoordinator::Next() {
  const Time deadline = Now() + kPatience;
  while (Now() < deadline) {
    auto message = NextOfAnyKind();
    if (!message || !std::holds_alternative<rendezvous::Ping>(*message)) return message;
  }
  return std::nullopt;
}

bool TestCoordinator::ExpectPing() {
  while (const auto message = NextOfAnyKind()) {
    if (std::holds_alternative<rendezvous::Ping>(*message)) return true;
  }
  return false;
}

bool TestCoordinator::ExpectEnd() {
  const Time deadline = Now() + kPatience;
  while (Now() < deadline && NextOfAnyKind()) {
  }
  return !connection_.valid();
}

AgentProcess::AgentProcess(const TestCoordinator& coordinator, const std::string& trainer,
                           const std::map<std::string, std::string>& extra, int stdout_fd) {
  CHECK(WriteFileAtomic(folder_.File("secret"), std::string(kSecret) + "\n").ok());
  CHECK(WriteFileAtomic(folder_.File("job.yaml"), "kind: TrainingJob\n").ok());
  std::map<std::string, std::string> variables = {
      {"RINGMASTER_JOB", "default/test"},
      {"RINGMASTER_POD", "test-1-0"},
      {"RINGMASTER_COORDINATOR", coordinator.address()},
      {"RINGMASTER_SECRET_FILE", folder_.File("secret")},
      {"RINGMASTER_JOB_FILE", folder_.File("job.yaml")},
      {"RINGMASTER_TERMINATION_LOG", folder_.File("termination")},
      {"RINGMASTER_TRAINER", std::string(FAKE_TRAINER) + " " + trainer},
      // Keep the settings of the sanitizers.
      {"ASAN_OPTIONS", std::getenv("ASAN_OPTIONS") == nullptr ? "" : std::getenv("ASAN_OPTIONS")},
  };
  for (const auto& [name, value] : extra) variables[name] = value;
  std::string program = AGENT_UNDER_TEST;
  if (const auto other = variables.find("AGENT_PROGRAM"); other != variables.end()) program = other->second;
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) {
    if (!value.empty()) environment.push_back(name + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::vector<std::string> words = {program};
  std::istringstream lines(variables["AGENT_WORDS"]);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const Fd output(::open(folder_.File("output").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));

  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(stdout_fd >= 0 ? stdout_fd : output.get(), STDOUT_FILENO);
    ::dup2(output.get(), STDERR_FILENO);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
}

AgentProcess::~AgentProcess() {
  if (::testing::Test::HasFailure()) {
    const std::string all = Output();
    const size_t from = all.size() - std::min<size_t>(all.size(), 4000);
    std::fprintf(stderr, "---- the agent's output\n%s----\n", all.c_str() + from);
  }
  if (pid_ < 0) return;
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void AgentProcess::Signal(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

std::optional<int> AgentProcess::Wait() {
  const Fd ended = OpenPid(pid_);
  if (!WaitReadable(ended.get())) return std::nullopt;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string AgentProcess::Output() const {
  auto text = ReadFile(folder_.File("output"));
  return text.ok() ? std::move(text).value() : text.error().message;
}

std::string AgentProcess::TerminationLog() const {
  auto text = ReadFile(folder_.File("termination"));
  return text.ok() ? std::move(text).value() : "";
}

Fd OpenPid(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

int64_t RssKib(pid_t pid) { return std::atoll(StatusField(pid, "VmRSS").c_str()); }

int Threads(pid_t pid) { return std::atoi(StatusField(pid, "Threads").c_str()); }

int OpenFds(pid_t pid) {
  int count = 0;
  std::error_code error;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
    ++count;
  }
  return count;
}

std::string Children(pid_t pid) {
  auto text = ReadFile(fmt::format("/proc/{}/task/{}/children", pid, pid));
  if (!text.ok()) return text.error().message;
  std::string list = std::move(text).value();
  while (!list.empty() && list.back() == ' ') list.pop_back();
  return list;
}

}  // namespace ringmaster::agent
