// SPDX-License-Identifier: Apache-2.0

#include "operator/local/process_supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process_children.h"

namespace ringmaster::local {
namespace {

// How long the destructor waits for processes to end after SIGKILL.
constexpr Duration kKillLimit = seconds(5);
constexpr useconds_t kPoll = 1000;
constexpr int kKilledExitCode = 128 + SIGKILL;

std::string NameOfProcess(pid_t pid) {
  Result<std::string> name = ReadFile("/proc/" + std::to_string(pid) + "/comm");
  if (!name.ok()) return "";
  return name->substr(0, name->find('\n'));
}

// Kills all children of this process that are no wardens, and what they leave. Returns when no one is left,
// or at the limit.
void KillOrphans() {
  const Time limit = Now() + kKillLimit;
  while (Now() < limit) {
    bool none = true;
    for (const pid_t pid : ChildrenOfThisProcess()) {
      if (NameOfProcess(pid) == kWardenName) continue;
      none = false;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, WNOHANG);
    }
    if (none) return;
    ::usleep(kPoll);
  }
}

}  // namespace

ProcessSupervisor::ProcessSupervisor(OnStart on_start, OnExit on_exit)
    : on_start_(std::move(on_start)), on_exit_(std::move(on_exit)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<Warden> warden = StartWarden();
  CHECK(warden.ok(), "{}", warden.error().message);
  warden_ = std::move(warden).value();
  thread_ = std::thread([this] { Run(); });
}

ProcessSupervisor::~ProcessSupervisor() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    ::shutdown(warden_.socket.get(), SHUT_RDWR);
  }
  thread_.join();
}

void ProcessSupervisor::Start(std::string id, SpawnSpec spec) {
  std::vector<std::string> fields = EncodeSpec(spec);
  fields.insert(fields.begin(), id);
  {
    MutexLock lock(mutex_);
    const bool inserted = pods_.emplace(std::move(id), false).second;
    CHECK(inserted, "an id is used twice");
  }
  Post({WardenFrame::Type::kStart, std::move(fields)});
}

void ProcessSupervisor::Stop(const std::string& id, Duration grace) {
  Post({WardenFrame::Type::kStop, {id, std::to_string(ToMs(grace))}});
}

void ProcessSupervisor::Signal(const std::string& id, int signal) {
  Post({WardenFrame::Type::kSignal, {id, std::to_string(signal)}});
}

// Bytes for a warden that is gone are lost with it: Run reports the end of its pods.
void ProcessSupervisor::Post(WardenFrame frame) {
  const std::string bytes = frame.Encode();
  MutexLock lock(mutex_);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t put = ::send(warden_.socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    sent += static_cast<size_t>(put);
  }
}

bool ProcessSupervisor::closing() {
  MutexLock lock(mutex_);
  return closing_;
}

void ProcessSupervisor::Run() {
  while (true) {
    int socket = -1;
    {
      MutexLock lock(mutex_);
      socket = warden_.socket.get();
    }
    WardenFrames frames;
    while (Receive(socket, &frames)) {
      for (std::optional<WardenFrame> frame = frames.Next(); frame && !closing(); frame = frames.Next())
        Handle(*frame);
    }
    if (closing()) return AwaitWarden();
    ReplaceWarden();
  }
}

bool ProcessSupervisor::Receive(int socket, WardenFrames* frames) {
  char chunk[4096];
  ssize_t got = 0;
  do {
    got = ::recv(socket, chunk, sizeof chunk, 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  frames->Append(chunk, static_cast<size_t>(got));
  return true;
}

void ProcessSupervisor::Handle(const WardenFrame& frame) {
  const std::string& id = frame.fields.at(0);
  const auto number = static_cast<int>(std::strtol(frame.fields.at(1).c_str(), nullptr, 10));
  {
    MutexLock lock(mutex_);
    if (frame.type == WardenFrame::Type::kStarted)
      pods_[id] = true;
    else if (frame.type != WardenFrame::Type::kStuck)
      pods_.erase(id);
  }
  if (frame.type == WardenFrame::Type::kStarted) return on_start_(id, pid_t{number});
  if (frame.type == WardenFrame::Type::kEnded) return on_exit_(id, number);
  if (frame.type == WardenFrame::Type::kNotStarted)
    return on_start_(id, Error{static_cast<Code>(number), frame.fields.at(2)});
  log::Warn("a pod has ended, but its process pid={} ({}) does not end after SIGKILL", number,
            NameOfProcess(number));
}

void ProcessSupervisor::ReplaceWarden() {
  std::map<std::string, bool> lost;
  {
    MutexLock lock(mutex_);
    log::Warn("the warden pid={} of the workers has died: all of them end", warden_.pid);
    while (::waitpid(warden_.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    KillOrphans();
    while (!closing_) {
      Result<Warden> warden = StartWarden();
      if (warden.ok()) {
        warden_ = std::move(warden).value();
        break;
      }
      log::Error("{}", warden.error().message);
      ::usleep(100 * kPoll);
    }
    lost.swap(pods_);
  }
  for (const auto& [id, started] : lost) {
    if (closing()) return;
    if (!started) on_start_(id, pid_t{0});
    on_exit_(id, kKilledExitCode);
  }
}

void ProcessSupervisor::AwaitWarden() {
  MutexLock lock(mutex_);
  const Time limit = Now() + kKillLimit;
  while (::waitpid(warden_.pid, nullptr, WNOHANG) == 0 && Now() < limit) ::usleep(kPoll);
}

}  // namespace ringmaster::local
