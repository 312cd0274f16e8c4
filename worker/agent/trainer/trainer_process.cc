// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/trainer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/exit_codes.h"
#include "base/file.h"
#include "base/pipe.h"
#include "worker/agent/shell/exec_child.h"
#include "worker/agent/shell/find_program.h"
#include "worker/agent/shell/process_tree.h"
#include "worker/agent/shell/program_process.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kSecretVariable = "RINGMASTER_SECRET_FILE=";

bool Sets(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Returns the environment that a native trainer inherits.
std::vector<std::string> InheritedEnvironment(const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  const auto replaced = [&](const char* entry) {
    return std::any_of(variables.begin(), variables.end(), [&](const std::string& variable) {
      return Sets(entry, variable.substr(0, variable.find('=')).c_str());
    });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool secret = std::strncmp(*entry, kSecretVariable, std::strlen(kSecretVariable)) == 0;
    if (!secret && !replaced(*entry)) environment.emplace_back(*entry);
  }
  return environment;
}

std::vector<std::string> ChildEnvironment(const TrainerCommand& command, int channel_fd, int page_fd,
                                          const std::string& member) {
  std::vector<std::string> environment = command.is_program
                                             ? ProgramProcess::EnvironmentWith(command.variables)
                                             : InheritedEnvironment(command.variables);
  std::erase_if(environment, [](const std::string& entry) {
    return Sets(entry.c_str(), kChannelFdVariable) || Sets(entry.c_str(), kPageFdVariable) ||
           Sets(entry.c_str(), kMemberVariable);
  });
  environment.push_back(fmt::format("{}={}", kChannelFdVariable, channel_fd));
  environment.push_back(fmt::format("{}={}", kPageFdVariable, page_fd));
  environment.push_back(fmt::format("{}={}", kMemberVariable, member));
  return environment;
}

struct ChildPlan {
  pid_t agent;
  const char* path;
  char* const* argv;
  char* const* envp;
  int channel, page, out, err, failure;
};

bool KeepOpen(int fd) { return ::fcntl(fd, F_SETFD, 0) == 0; }

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  BecomeChildOf(plan.agent);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0 && ::dup2(nothing, STDIN_FILENO) == STDIN_FILENO && nothing != STDIN_FILENO) {
    ::close(nothing);
  }
  if (::dup2(plan.out, STDOUT_FILENO) >= 0 && ::dup2(plan.err, STDERR_FILENO) >= 0 &&
      KeepOpen(plan.channel) && KeepOpen(plan.page)) {
    ::execve(plan.path, plan.argv, plan.envp);
  }
  ExitWithExecFailure(plan.failure);
}

Status SetNonBlocking(int fd) {
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return ErrnoError("make a pipe non-blocking", errno);
  return Ok();
}

}  // namespace

Result<std::unique_ptr<TrainerProcess>> TrainerProcess::Start(const TrainerCommand& command,
                                                              const std::string& member) {
  RM_ASSIGN(const std::string path, FindProgram(command.words.at(0)));
  RM_ASSIGN(SharedPageMemory page, SharedPageMemory::Create());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoError("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  RM_ASSIGN(Pipe out, MakePipe());
  RM_ASSIGN(Pipe err, MakePipe());
  RM_ASSIGN(Pipe failure, MakePipe());
  RM_TRY(SetNonBlocking(out.read.get()));
  RM_TRY(SetNonBlocking(err.read.get()));

  std::vector<std::string> arguments = command.words;
  std::vector<std::string> environment = ChildEnvironment(command, theirs.get(), page.fd(), member);
  const std::vector<char*> argv = PointersForExec(arguments);
  const std::vector<char*> envp = PointersForExec(environment);
  const ChildPlan plan = {::getpid(), path.c_str(),    argv.data(),     envp.data(),        theirs.get(),
                          page.fd(),  out.write.get(), err.write.get(), failure.write.get()};

  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoError("fork", errno);
  if (pid == 0) RunChild(plan);
  failure.write.Reset();
  if (const int why = ReadExecFailure(failure.read.get()); why != 0) {
    return ErrnoError("run " + command.words[0], why);  // Agent::Reap reaps the zombie like an orphan
  }

  auto process = std::make_unique<TrainerProcess>(Private{}, std::move(page), std::move(ours));
  process->pid_ = pid;
  process->member_ = member;
  process->stdout_ = std::move(out.read);
  process->stderr_ = std::move(err.read);
  return process;
}

Status TrainerProcess::StartDeathWatchWhenReady() {
  if (death_watch_ || page_.page().ready.load(std::memory_order_acquire) == 0) return Ok();
  RM_ASSIGN(death_watch_, DeathWatch::Start(page_.page()));
  return Ok();
}

TrainerProcess::Stopped TrainerProcess::ReadStopped() const {
  // "pid (name) S ...": the name may contain anything, so search for its end from the right.
  char text[512];
  const Fd fd(::open(fmt::format("/proc/{}/stat", pid_).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return {};
  const ssize_t got = ::read(fd.get(), text, sizeof text);
  if (got <= 0) return {};
  const std::string_view stat(text, static_cast<size_t>(got));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return {};
  const char state = stat[name_end + 2];
  return {state == 'T', state == 't'};
}

bool TrainerProcess::ShowStacks() const {
  const std::vector<pid_t> receivers = ReceiversOf(pid_, SIGABRT);
  for (const pid_t pid : receivers) ::kill(pid, SIGABRT);
  return !receivers.empty();
}

void TrainerProcess::Kill() const {
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

}  // namespace ringmaster::agent
