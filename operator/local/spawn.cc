// SPDX-License-Identifier: Apache-2.0

#include "operator/local/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/exit_codes.h"
#include "base/file.h"
#include "base/open_file.h"

namespace ringmaster::local {
namespace {

constexpr int kReportFd = 3;  // in the child: reports why the start failed

std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!added.contains(std::string(text.substr(0, text.find('='))))) merged.emplace_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything the child needs, prepared before fork: after fork only async-signal-safe calls are allowed.
struct ChildPlan {
  char* const* argv;
  char* const* environment;
  const char* folder;
  int log;
  int null;
  int report;
  pid_t parent;
};

[[noreturn]] void ReportAndExit(int fd, int error) {
  [[maybe_unused]] const ssize_t written = ::write(fd, &error, sizeof error);
  ::_exit(kExitCannotStart);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  // The child must not inherit our handlers and ignored signals (SIGPIPE, SIGINT).
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(kExitCannotStart);  // the parent died before the prctl
  ::setsid();
  if (::dup2(plan.report, kReportFd) < 0) ::_exit(kExitCannotStart);
  ::fcntl(kReportFd, F_SETFD, FD_CLOEXEC);
  if (::dup2(plan.null, 0) < 0 || ::dup2(plan.log, 1) < 0 || ::dup2(plan.log, 2) < 0)
    ReportAndExit(kReportFd, errno);
  ::syscall(SYS_close_range, kReportFd + 1, ~0U, 0);
  if (::chdir(plan.folder) != 0) ReportAndExit(kReportFd, errno);
  ::execve(plan.argv[0], plan.argv, plan.environment);
  ReportAndExit(kReportFd, errno);
}

// Returns the error of a start: kUnavailable for what may pass, such as an I/O error or a full disk.
Error CannotStart(const Error& error) {
  const bool passes = error.code == Code::kUnavailable || error.code == Code::kExhausted;
  return {passes ? Code::kUnavailable : Code::kInvalid, error.message};
}

// Returns the error that the child reported before the program began. A program of another format, or with
// arguments that are too long, never starts.
Error ChildCannotStart(const std::string& program, int error_number) {
  const Error error = ErrnoError("start " + program, error_number);
  const bool never = error_number == ENOEXEC || error_number == E2BIG || error_number == ELOOP ||
                     error_number == ENAMETOOLONG || error_number == ELIBBAD;
  return never ? Error{Code::kInvalid, error.message} : CannotStart(error);
}

// Opens a descriptor above those that the child replaces.
Result<Fd> OpenHigh(const std::string& path, int flags) {
  const Fd low = OpenFile(path, flags, 0644);
  if (!low.valid()) return CannotStart(ErrnoError("open " + path, errno));
  Fd high(::fcntl(low.get(), F_DUPFD_CLOEXEC, kReportFd + 1));
  if (!high.valid()) return Error{Code::kUnavailable, ErrnoError("dup", errno).message};
  return high;
}

}  // namespace

Result<Process> Spawn(const SpawnSpec& spec) {
  CHECK(!spec.argv.empty());
  if (Status made = MakeFolder(spec.folder); !made.ok()) return CannotStart(made.error());
  RM_ASSIGN(Fd log, OpenHigh(spec.log, O_WRONLY | O_CREAT | O_APPEND));
  RM_ASSIGN(Fd null, OpenHigh("/dev/null", O_RDONLY));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error{Code::kUnavailable, ErrnoError("pipe", errno).message};
  Fd reader(ends[0]);
  Fd writer(::fcntl(ends[1], F_DUPFD_CLOEXEC, kReportFd + 1));
  ::close(ends[1]);

  std::vector<std::string> arguments = spec.argv;
  std::vector<std::string> environment = MergedEnvironment(spec.environment);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const ChildPlan plan{argv.data(), envp.data(),  spec.folder.c_str(), log.get(),
                       null.get(),  writer.get(), ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) return Error{Code::kUnavailable, ErrnoError("fork", errno).message};
  if (pid == 0) RunChild(plan);

  writer.Reset();
  // Only this process reaps the child, so the pid is still its own.
  Process process{pid, Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  CHECK(process.pidfd.valid(), "pidfd_open: {}", std::strerror(errno));
  int failure = 0;
  ssize_t got = 0;
  do {
    got = ::read(reader.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof failure) {
    Reap(process);
    return ChildCannotStart(spec.argv[0], failure);
  }
  return process;
}

int PeekExitCode(const Process& process) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void Reap(const Process& process) {
  while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void SignalGroup(pid_t group, int signal) { ::kill(-group, signal); }

bool GroupAlive(pid_t group) {
  if (::kill(-group, 0) != 0 && errno == ESRCH) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (!folder) return false;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    auto stat = ReadFile(fmt::format("/proc/{}/stat", entry->d_name));
    if (!stat.ok()) continue;
    // "pid (name) state ppid pgrp ...": the name may hold anything, so look behind the last parenthesis.
    const size_t end = stat->rfind(')');
    char state = 0;
    int parent = 0;
    int process_group = 0;
    if (end == std::string::npos ||
        std::sscanf(stat->c_str() + end + 1, " %c %d %d", &state, &parent, &process_group) != 3)
      continue;
    if (process_group == group && state != 'Z' && state != 'X') return true;
  }
  return false;
}

}  // namespace ringmaster::local
