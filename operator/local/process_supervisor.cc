// SPDX-License-Identifier: Apache-2.0

#include "operator/local/process_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::local {
namespace {

// How long the destructor waits for process groups to end after SIGKILL.
constexpr Duration kKillLimit = seconds(5);

void SignalProcess(const Process& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0);
}

bool Readable(int fd) {
  pollfd item{fd, POLLIN, 0};
  return ::poll(&item, 1, 0) == 1;
}

}  // namespace

ProcessSupervisor::ProcessSupervisor(OnStart on_start, OnExit on_exit)
    : on_start_(std::move(on_start)),
      on_exit_(std::move(on_exit)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {
  CHECK(wake_.valid());
}

ProcessSupervisor::~ProcessSupervisor() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void ProcessSupervisor::Start(std::string id, SpawnSpec spec) {
  Post([this, id = std::move(id), spec = std::move(spec)] { StartNow(id, spec); });
}

void ProcessSupervisor::Stop(const std::string& id, Duration grace) {
  Post([this, id, grace] { StopNow(id, grace); });
}

void ProcessSupervisor::Signal(const std::string& id, int signal) {
  Post([this, id, signal] {
    if (auto it = children_.find(id); it != children_.end()) SignalProcess(it->second.process, signal);
  });
}

void ProcessSupervisor::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  ::eventfd_write(wake_.get(), 1);
}

void ProcessSupervisor::Run() {
  for (;;) {
    std::vector<pollfd> items{{wake_.get(), POLLIN, 0}};
    Time due = kNever;
    for (const auto& [id, child] : children_) {
      items.push_back({child.process.pidfd.get(), POLLIN, 0});
      due = std::min(due, child.kill_at);
    }
    // Rounded up, so that the deadline has passed when poll returns.
    const int64_t wait_ms = due == kNever ? -1 : std::clamp<int64_t>(ToMs(due - Now()) + 1, 0, 60'000);
    ::poll(items.data(), items.size(), static_cast<int>(wait_ms));
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);

    std::vector<std::function<void()>> tasks;
    {
      MutexLock lock(mutex_);
      if (closing_) break;
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    CollectEnded();
    KillOverdue(Now());
  }
  KillAll();
}

void ProcessSupervisor::StartNow(const std::string& id, const SpawnSpec& spec) {
  auto process = Spawn(spec);
  if (!process.ok()) return on_start_(id, process.error());
  const pid_t pid = process->pid;
  const bool inserted = children_.emplace(id, Child{std::move(process).value(), kNever}).second;
  CHECK(inserted, "id {} is used twice", id);
  on_start_(id, pid);
}

void ProcessSupervisor::StopNow(const std::string& id, Duration grace) {
  auto it = children_.find(id);
  if (it == children_.end()) return;
  Child& child = it->second;
  child.kill_at = std::min(child.kill_at, Now() + grace);
  if (grace > Duration{0})
    SignalProcess(child.process, SIGTERM);
  else
    SignalGroup(child.process.pid, SIGKILL);
}

void ProcessSupervisor::CollectEnded() {
  std::vector<std::pair<std::string, int>> ended;
  for (auto it = children_.begin(); it != children_.end();) {
    const Process& process = it->second.process;
    if (!Readable(process.pidfd.get())) {
      ++it;
      continue;
    }
    ended.emplace_back(it->first, PeekExitCode(process));
    SignalGroup(process.pid, SIGKILL);  // before Reap: until then no other process can get this pid
    Reap(process);
    ending_.push_back(process.pid);
    it = children_.erase(it);
  }
  std::erase_if(ending_, [](pid_t group) { return !GroupAlive(group); });
  for (const auto& [id, code] : ended) on_exit_(id, code);
}

void ProcessSupervisor::KillOverdue(Time now) {
  for (auto& [id, child] : children_) {
    if (child.kill_at > now) continue;
    SignalGroup(child.process.pid, SIGKILL);
    child.kill_at = kNever;
  }
}

void ProcessSupervisor::KillAll() {
  for (const auto& [id, child] : children_) SignalGroup(child.process.pid, SIGKILL);
  for (const auto& [id, child] : children_) {
    Reap(child.process);
    ending_.push_back(child.process.pid);
  }
  children_.clear();
  const Time limit = Now() + kKillLimit;
  for (const pid_t group : ending_) {
    while (GroupAlive(group) && Now() < limit) ::usleep(1000);
  }
  ending_.clear();
}

}  // namespace ringmaster::local
