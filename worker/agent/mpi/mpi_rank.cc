// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_rank.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/exit_codes.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/pipe.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/mpi/mpi_links.h"
#include "worker/agent/mpi/pod_environment.h"
#include "worker/agent/net/unix_address.h"
#include "worker/agent/shell/find_program.h"

namespace ringmaster::agent {
namespace {

constexpr int kAnswerLimitMs = 5000;
constexpr size_t kMaxLine = 400;

std::optional<int32_t> Number(const char* name) {
  const char* const text = std::getenv(name);
  int32_t value = 0;
  if (text == nullptr) return std::nullopt;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end || value < 0) return std::nullopt;
  return value;
}

// Returns the first of these variables that is a number.
std::optional<int32_t> First(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::optional<int32_t> value = Number(name)) return value;
  }
  return std::nullopt;
}

// Returns a socket that is connected to the pod's program; invalid when there is none.
Fd ConnectToPod() {
  const char* const folder = std::getenv(kMpiFolderVariable);
  const Result<sockaddr_un> pod = UnixAddress(folder == nullptr ? "" : std::string(folder) + kMpiRanks);
  if (!pod.ok()) return Fd();
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*pod), sizeof *pod) != 0)
    return Fd();
  return socket;
}

void TellPod(const Fd& socket, const std::string& text) {
  if (!socket.valid()) return;
  while (::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// The last line of what passes through.
class LastLine {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n') {
        if (current_.find_first_not_of(" \t\r") != std::string::npos) last_ = current_;
        current_.clear();
      } else if (current_.size() < kMaxLine) {
        current_ += c;
      }
    }
  }
  std::string Take() const {
    return current_.find_first_not_of(" \t\r") != std::string::npos ? current_ : last_;
  }

 private:
  std::string current_;
  std::string last_;
};

void WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t put = ::write(fd, data, size);
    if (put < 0 && errno == EAGAIN) {
      pollfd wait = {fd, POLLOUT, 0};
      ::poll(&wait, 1, 1000);
      continue;
    }
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;  // the daemon is gone, or its reader
    data += put;
    size -= static_cast<size_t>(put);
  }
}

// Copies what is available to standard error. Returns false at the end of the stream.
bool CopyErrors(int from, LastLine& last) {
  char chunk[8 << 10];
  while (true) {
    const ssize_t got = ::read(from, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    last.Add({chunk, static_cast<size_t>(got)});
    WriteAll(STDERR_FILENO, chunk, static_cast<size_t>(got));
  }
}

[[noreturn]] void DieLike(int signal) {
  // No second core file.
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(signal, SIG_DFL);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::_exit(128 + signal);
}

// Hydra and horovodrun give ranks the environment of the launcher's pod; that of the daemon is of this one.
void MergePodEnvironment() {
  const Result<std::string> all = ReadFile(fmt::format("/proc/{}/environ", ::getppid()));
  if (!all.ok()) return;
  std::vector<std::string> pod;
  for (size_t begin = 0; begin < all->size();) {
    const size_t end = std::min(all->find('\0', begin), all->size());
    pod.push_back(all->substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<std::string> own;
  for (char** entry = environ; *entry != nullptr; ++entry) own.emplace_back(*entry);
  const auto get = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string marks = get(kMpiMarksVariable);
  for (const std::string& name : VariablesOfLauncherPod(own, pod, marks, get(kMpiPodVariables)))
    ::unsetenv(name.c_str());
  for (const auto& [name, value] : VariablesOfPod(own, pod, marks)) ::setenv(name.c_str(), value.c_str(), 1);
  ::unsetenv(kMpiMarksVariable);
}

}  // namespace

int RunRank(std::vector<std::string> command) {
  MergePodEnvironment();
  // horovodrun that calls mpirun: both put this program before the user's.
  while (command.size() > 2 && command[1] == "rank" && LeadsHere(command[0]))
    command.erase(command.begin(), command.begin() + 2);
  const std::optional<int32_t> rank = First({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK"});
  const std::optional<int32_t> size = First({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE"});
  Fd socket = rank && size ? ConnectToPod() : Fd();
  TellPod(socket, fmt::format("{} {} {}", rank.value_or(0), size.value_or(0), ::getpid()));

  if (rank && size) {
    ::setenv("RINGMASTER_RANK", std::to_string(*rank).c_str(), 1);
    ::setenv("RINGMASTER_WORLD_SIZE", std::to_string(*size).c_str(), 1);
  }
  // Open MPI names shared memory after the host, so that pods of one machine would use each other's.
  const char* const folder = std::getenv(kMpiFolderVariable);
  if (folder != nullptr && std::getenv(kMpiLocalVariable) != nullptr) {
    for (const char* name : {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"})
      ::setenv(name, folder, 0);
  }
  const Result<std::string> path = FindProgram(command.at(0));
  Result<Pipe> errors = MakePipe();
  if (!errors.ok()) return kExitCannotStart;
  ::fcntl(errors->read.get(), F_SETFL, O_NONBLOCK);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);

  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, fault);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const Fd signals(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  const pid_t self = ::getpid();
  const pid_t daemon = ::getppid();
  const int daemon_ended = SIGRTMAX;  // which no launcher sends
  ::prctl(PR_SET_PDEATHSIG, daemon_ended);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(0);
    ::setpgid(0, 0);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::dup2(errors->write.get(), STDERR_FILENO);
    std::string why = path.ok() ? "" : path.error().message;
    if (path.ok()) {
      ::execv(path->c_str(), argv.data());
      why = fmt::format("cannot run {}: {}", *path, std::strerror(errno));
    }
    why += "\n";
    WriteAll(STDERR_FILENO, why.data(), why.size());
    ::_exit(kExitCannotStart);
  }
  errors->write.Reset();
  if (pid < 0) return kExitCannotStart;

  LastLine last;
  int status = 0;
  bool open = true;
  bool lost = false;  // its daemon has ended
  while (true) {
    std::array<pollfd, 2> polled = {pollfd{signals.get(), POLLIN, 0},
                                    pollfd{open ? errors->read.get() : -1, POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
    if (polled[1].revents != 0) open = CopyErrors(errors->read.get(), last);
    signalfd_siginfo info = {};
    bool ended = false;
    while (::read(signals.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) {
        ended = ended || ::waitpid(pid, &status, WNOHANG) == pid;
      } else if (static_cast<int>(info.ssi_signo) == daemon_ended) {
        // The signal is also sent when a thread of the daemon ends.
        lost = lost || ::getppid() != daemon;
        if (lost) ::kill(-pid, SIGKILL);
      } else if (info.ssi_signo != SIGPIPE && info.ssi_signo != SIGTTIN && info.ssi_signo != SIGTTOU) {
        ::kill(-pid, static_cast<int>(info.ssi_signo));
      }
    }
    if (ended) break;
  }
  if (open) CopyErrors(errors->read.get(), last);
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  TellPod(socket, fmt::format("{} {}", lost ? -1 : code, code == 0 ? "" : last.Take()));
  if (socket.valid()) {
    // The rank counts before its launcher learns that it has ended.
    pollfd wait = {socket.get(), POLLIN, 0};
    ::poll(&wait, 1, kAnswerLimitMs);
  }
  if (WIFSIGNALED(status)) DieLike(WTERMSIG(status));
  return code;
}

}  // namespace ringmaster::agent
