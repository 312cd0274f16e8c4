// SPDX-License-Identifier: Apache-2.0

#include "operator/local/warden.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/process_children.h"
#include "base/time.h"

namespace ringmaster::local {
namespace {

constexpr int kSocketFd = 3;
// From SIGKILL to the report that a process does not end, as one that waits for a dead disk.
constexpr Duration kStuckLimit = seconds(5);

void PutNumber(std::string& out, size_t value) {
  const auto number = static_cast<uint32_t>(value);
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

size_t NumberAt(const std::string& text, size_t at) {
  uint32_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

bool SetNonBlocking(int fd) { return ::fcntl(fd, F_SETFL, O_NONBLOCK) == 0; }

class WardenProcess {
 public:
  [[noreturn]] void Run() {
    while (Step()) {
    }
    KillAll();
    ::_exit(0);
  }

  bool Prepare() {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
    sigset_t children;
    ::sigemptyset(&children);
    ::sigaddset(&children, SIGCHLD);
    signals_ = Fd(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
    ::sigprocmask(SIG_SETMASK, &children, nullptr);
    return signals_.valid() && SetNonBlocking(kSocketFd) && ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  }

 private:
  struct Pod {
    Process process;
    Time kill_at = kNever;
  };
  struct EndedPod {
    std::string id;
    int exit_code;
    Time since;
    bool reported = false;  // as stuck
  };

  // Returns false when the owner is gone.
  bool Step() {
    pollfd items[] = {{kSocketFd, static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                      {signals_.get(), POLLIN, 0}};
    Time due = kNever;
    for (const auto& [id, pod] : pods_) due = std::min(due, pod.kill_at);
    for (const EndedPod& pod : ended_)
      if (!pod.reported) due = std::min(due, pod.since + kStuckLimit);
    // Rounded up, so that the deadline has passed when poll returns.
    const int64_t wait_ms = due == kNever ? -1 : std::clamp<int64_t>(ToMs(due - Now()) + 1, 0, 60'000);
    ::poll(items, 2, static_cast<int>(wait_ms));
    signalfd_siginfo ignored[8];
    while (::read(signals_.get(), ignored, sizeof ignored) > 0) {
    }
    const bool owned = Receive();
    for (std::optional<WardenFrame> frame = frames_.Next(); frame; frame = frames_.Next()) Handle(*frame);
    Collect();
    KillOverdue(Now());
    return owned && Flush();
  }

  bool Receive() {
    char chunk[16 << 10];
    while (true) {
      const ssize_t got = ::recv(kSocketFd, chunk, sizeof chunk, 0);
      if (got > 0) {
        frames_.Append(chunk, static_cast<size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        return got < 0 && errno == EAGAIN;
      }
    }
  }

  bool Flush() {
    while (!unsent_.empty()) {
      const ssize_t put = ::send(kSocketFd, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return errno == EAGAIN;
      unsent_.erase(0, static_cast<size_t>(put));
    }
    return true;
  }

  void Send(WardenFrame::Type type, std::vector<std::string> fields) {
    unsent_ += WardenFrame{type, std::move(fields)}.Encode();
  }

  void Handle(const WardenFrame& frame) {
    const std::string& id = frame.fields.at(0);
    if (frame.type == WardenFrame::Type::kStart) return Start(id, DecodeSpec(frame.fields, 1));
    const auto found = pods_.find(id);
    if (found == pods_.end()) return;
    Pod& pod = found->second;
    const int64_t number = std::strtoll(frame.fields.at(1).c_str(), nullptr, 10);
    if (frame.type == WardenFrame::Type::kSignal) {
      ::kill(pod.process.pid, static_cast<int>(number));
      return;
    }
    pod.kill_at = std::min(pod.kill_at, Now() + milliseconds(number));
    if (number > 0)
      ::kill(pod.process.pid, SIGTERM);
    else
      SignalGroup(pod.process.pid, SIGKILL);
  }

  void Start(const std::string& id, const SpawnSpec& spec) {
    Result<Process> process = Spawn(spec);
    if (!process.ok())
      return Send(WardenFrame::Type::kNotStarted,
                  {id, std::to_string(static_cast<int>(process.error().code)), process.error().message});
    Send(WardenFrame::Type::kStarted, {id, std::to_string(process->pid)});
    const bool inserted = pods_.emplace(id, Pod{std::move(process).value(), kNever}).second;
    CHECK(inserted, "id {} is used twice", id);
  }

  // Collects what has ended, and kills orphans: children that are no pods. The end of a pod is reported once
  // no orphan is left. All orphans are of pods that have ended: those of others belong to their agents.
  void Collect() {
    siginfo_t info = {};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
      const pid_t pid = info.si_pid;
      const auto pod = std::find_if(pods_.begin(), pods_.end(),
                                    [&](const auto& entry) { return entry.second.process.pid == pid; });
      if (pod != pods_.end()) {
        SignalGroup(pid, SIGKILL);  // until the pid is collected, no other process can get it
        ended_.push_back({pod->first, PeekExitCode(pod->second.process), Now()});
        pods_.erase(pod);
      }
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      info = {};
    }
    const std::vector<pid_t> orphans = Orphans();
    for (const pid_t pid : orphans) ::kill(pid, SIGKILL);
    for (EndedPod& pod : ended_) {
      if (orphans.empty())
        Send(WardenFrame::Type::kEnded, {pod.id, std::to_string(pod.exit_code)});
      else if (Now() - pod.since >= kStuckLimit && !std::exchange(pod.reported, true))
        Send(WardenFrame::Type::kStuck, {pod.id, std::to_string(orphans.front())});
    }
    if (orphans.empty()) ended_.clear();
  }

  std::vector<pid_t> Orphans() const {
    std::vector<pid_t> children = ChildrenOfThisProcess();
    std::erase_if(children, [&](pid_t pid) {
      return std::any_of(pods_.begin(), pods_.end(),
                         [&](const auto& entry) { return entry.second.process.pid == pid; });
    });
    return children;
  }

  void KillOverdue(Time now) {
    for (auto& [id, pod] : pods_) {
      if (pod.kill_at > now) continue;
      SignalGroup(pod.process.pid, SIGKILL);
      pod.kill_at = kNever;
    }
  }

  // Returns when no process is left.
  void KillAll() {
    for (const auto& [id, pod] : pods_) SignalGroup(pod.process.pid, SIGKILL);
    pods_.clear();
    while (true) {
      for (const pid_t pid : ChildrenOfThisProcess()) ::kill(pid, SIGKILL);
      int status = 0;
      if (::waitpid(-1, &status, 0) < 0 && errno != EINTR) return;
    }
  }

  Fd signals_;
  WardenFrames frames_;
  std::string unsent_;
  std::map<std::string, Pod> pods_;
  std::vector<EndedPod> ended_;
};

// Leaves the owner's terminal, its output and its connections, which must close when the owner dies.
[[noreturn]] void RunWarden(int socket) {
  ::prctl(PR_SET_NAME, kWardenName);
  ::setsid();
  if (socket != kSocketFd && ::dup3(socket, kSocketFd, O_CLOEXEC) < 0) ::_exit(1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) ::_exit(1);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  ::syscall(SYS_close_range, kSocketFd + 1, ~0U, 0);
  WardenProcess warden;
  if (!warden.Prepare()) ::_exit(1);
  warden.Run();
}

}  // namespace

std::string WardenFrame::Encode() const {
  std::string body(1, static_cast<char>(type));
  for (const std::string& field : fields) {
    PutNumber(body, field.size());
    body += field;
  }
  std::string frame;
  PutNumber(frame, body.size());
  return frame + body;
}

std::optional<WardenFrame> WardenFrames::Next() {
  if (buffer_.size() < sizeof(uint32_t)) return std::nullopt;
  const size_t end = sizeof(uint32_t) + NumberAt(buffer_, 0);
  if (buffer_.size() < end) return std::nullopt;
  size_t at = sizeof(uint32_t);
  WardenFrame frame{static_cast<WardenFrame::Type>(buffer_[at++]), {}};
  while (at < end) {
    const size_t length = NumberAt(buffer_, at);
    at += sizeof(uint32_t);
    frame.fields.push_back(buffer_.substr(at, length));
    at += length;
  }
  buffer_.erase(0, end);
  return frame;
}

std::vector<std::string> EncodeSpec(const SpawnSpec& spec) {
  std::vector<std::string> fields = {spec.folder, spec.log, std::to_string(spec.argv.size())};
  fields.insert(fields.end(), spec.argv.begin(), spec.argv.end());
  for (const auto& [name, value] : spec.environment) {
    fields.push_back(name);
    fields.push_back(value);
  }
  return fields;
}

SpawnSpec DecodeSpec(const std::vector<std::string>& fields, size_t at) {
  SpawnSpec spec;
  spec.folder = fields.at(at);
  spec.log = fields.at(at + 1);
  const size_t words = std::strtoull(fields.at(at + 2).c_str(), nullptr, 10);
  at += 3;
  for (const size_t end = at + words; at < end; ++at) spec.argv.push_back(fields.at(at));
  for (; at + 1 < fields.size(); at += 2) spec.environment[fields[at]] = fields[at + 1];
  return spec;
}

Result<Warden> StartWarden() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoError("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoError("fork", errno);
  if (pid == 0) RunWarden(theirs.get());
  return Warden{pid, std::move(ours)};
}

}  // namespace ringmaster::local
