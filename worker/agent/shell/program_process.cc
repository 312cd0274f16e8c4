// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/program_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/exit_codes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pipe.h"
#include "base/process_children.h"
#include "worker/agent/shell/exec_child.h"
#include "worker/agent/shell/find_program.h"
#include "worker/agent/shell/process_tree.h"

namespace ringmaster::agent {
namespace {

// Of the agent alone. The program must not act in the agent's name.
constexpr std::array<std::string_view, 4> kHidden = {"RINGMASTER_SECRET_FILE", "RINGMASTER_COORDINATOR",
                                                     "RINGMASTER_CA_FILE", "RINGMASTER_TERMINATION_LOG"};
// Output must not be lost with a program that is killed, and SIGABRT shows the stacks of one that hangs.
constexpr std::array<std::string_view, 2> kForPython = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"};

std::string_view NameOf(std::string_view variable) { return variable.substr(0, variable.find('=')); }

struct ExecPlan {
  pid_t agent;
  const char* path;
  char* const* argv;
  char* const* envp;
  int in, out, err, failure;
};

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void ExecProgram(const ExecPlan& plan) {
  BecomeChildOf(plan.agent);
  const int in = plan.in >= 0 ? plan.in : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in >= 0) ::dup2(in, STDIN_FILENO);
  if (::dup2(plan.out, STDOUT_FILENO) >= 0 && ::dup2(plan.err, STDERR_FILENO) >= 0)
    ::execve(plan.path, plan.argv, plan.envp);
  ExitWithExecFailure(plan.failure);
}

// Returns the children of this process, without `spare`.
std::vector<pid_t> ChildrenOfThis(pid_t spare) {
  std::vector<pid_t> children = ChildrenOfThisProcess();
  std::erase(children, spare);
  return children;
}

// Whether the standard input of the process is a pipe, as that of `tee` in `python train.py | tee log`.
bool ReadsPipe(pid_t pid) {
  std::error_code error;
  const auto input = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/0", pid), error);
  return !error && input.native().starts_with("pipe:");
}

}  // namespace

Result<ProgramProcess> ProgramProcess::Start(const std::vector<std::string>& command,
                                             const std::vector<std::string>& variables, int input) {
  RM_ASSIGN(const std::string path, FindProgram(command.at(0)));
  RM_ASSIGN(Pipe out, MakePipe());
  RM_ASSIGN(Pipe err, MakePipe());
  RM_ASSIGN(Pipe failure, MakePipe());
  for (const Fd* end : {&out.read, &err.read}) {
    if (::fcntl(end->get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoError("make a pipe non-blocking", errno);
  }
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = EnvironmentWith(variables);
  const std::vector<char*> argv = PointersForExec(arguments);
  const std::vector<char*> envp = PointersForExec(environment);
  const ExecPlan plan = {::getpid(), path.c_str(),    argv.data(),     envp.data(),
                         input,      out.write.get(), err.write.get(), failure.write.get()};
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoError("fork", errno);
  if (pid == 0) ExecProgram(plan);
  failure.write.Reset();
  if (const int why = ReadExecFailure(failure.read.get()); why != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return ErrnoError("run " + command[0], why);
  }
  ::setpgid(pid, pid);  // the child does the same: one of them comes before the first Kill
  ProgramProcess process;
  process.pid_ = pid;
  process.stdout_ = std::move(out.read);
  process.stderr_ = std::move(err.read);
  return process;
}

std::vector<std::string> ProgramProcess::EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = NameOf(*entry);
    const bool replaced = std::find(kHidden.begin(), kHidden.end(), name) != kHidden.end() ||
                          std::any_of(variables.begin(), variables.end(),
                                      [&](const std::string& variable) { return NameOf(variable) == name; });
    if (!replaced) environment.emplace_back(*entry);
  }
  for (const std::string_view name : kForPython)
    if (std::getenv(name.data()) == nullptr) environment.push_back(std::string(name) + "=1");
  return environment;
}

void ProgramProcess::Terminate() {
  if (exit_code_) return;
  stopping_ = true;
  ::kill(pid_, SIGTERM);
}

void ProgramProcess::Signal(int signal) const {
  if (exit_code_) return;
  std::vector<pid_t> receivers = ReceiversOf(pid_, signal);
  if (receivers.empty()) receivers.push_back(pid_);
  for (const pid_t pid : receivers) ::kill(pid, signal);
}

// Orphans that left the group become children of this process when their parents die: Reap kills them then.
void ProgramProcess::Kill(pid_t spare) {
  stopping_ = false;
  killed_ = true;
  if (!exit_code_) ::kill(-pid_, SIGKILL);
  for (const pid_t child : ChildrenOfThis(spare)) ::kill(child, SIGKILL);
}

std::optional<int> ProgramProcess::Reap(pid_t spare) {
  while (true) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return exit_code_;  // no child is left
    if (info.si_pid == 0 || info.si_pid == spare) break;  // SpareProgram collects the spare
    const bool first = info.si_pid == pid_;
    // Kill its process group as long as the id cannot have been reused.
    if (first && !stopping_) ::kill(-pid_, SIGKILL);
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (first) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (!exit_code_) return std::nullopt;
  const std::vector<pid_t> rest = ChildrenOfThis(spare);
  if (rest.empty()) return exit_code_;
  if (stopping_)
    TerminateRest(rest);
  else
    Kill(spare);
  return std::nullopt;
}

std::vector<pid_t> ProgramProcess::Survivors(pid_t spare) const {
  return killed_ ? ChildrenOfThis(spare) : std::vector<pid_t>();
}

// Only the orphans themselves, and each once: they may need their children while they save, and take a second
// SIGTERM as an order to end at once. The orphans that they leave are here next time.
void ProgramProcess::TerminateRest(const std::vector<pid_t>& rest) {
  const auto contains = [](const std::vector<pid_t>& pids, pid_t pid) {
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  };
  std::erase_if(terminated_, [&](pid_t pid) { return !contains(rest, pid); });
  for (const pid_t pid : rest) {
    if (contains(terminated_, pid)) continue;
    terminated_.push_back(pid);
    // A program that saves may print into it: it ends with its input.
    if (ReadsPipe(pid) && !TakesSignal(pid, SIGTERM)) continue;
    log::Info("SIGTERM to pid={}, which the first process of the program has left", pid);
    ::kill(pid, SIGTERM);
  }
}

ProgramProcess::Activity ProgramProcess::Observe(pid_t spare) const {
  // The agent's own time is not the program's.
  ProcessWork work;
  for (const pid_t child : ChildrenOfThis(spare)) work += WorkOf(child);
  return {work.cpu, work.stopped};
}

Result<ReservedPort> ReservedPort::Reserve(int32_t port) {
  ReservedPort reserved;
  reserved.socket_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!reserved.socket_.valid()) return ErrnoError("socket", errno);
  // A port in TIME_WAIT is as good as a free one.
  const int on = 1;
  ::setsockopt(reserved.socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  if (::bind(reserved.socket_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(reserved.socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return Error{Code::kUnavailable, ErrnoError(fmt::format("bind port {}", port), errno).message};
  reserved.port_ = ntohs(address.sin_port);
  return reserved;
}

}  // namespace ringmaster::agent
