// SPDX-License-Identifier: Apache-2.0

#include "operator/control/loop.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/log.h"
#include "operator/control/job_tag.h"
#include "operator/control/last_reasons.h"

namespace ringmaster::control {

// The events for the loop's thread. Changes of one key coalesce, so it holds at most one per job, plus the
// answers. Thread-safe.
class Loop::Mailbox {
 public:
  void Push(ControlEvent event) {
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
      if (auto* changed = std::get_if<Changed>(&event))
        changed_.try_emplace(std::move(changed->key), Now());
      else
        answers_.push_back(std::move(event));
    }
    ready_.NotifyOne();
  }

  void Close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.NotifyOne();
  }

  // Waits for events until `until` and moves them to `events`, answers before changes, so that a decision
  // includes them. Returns false when the mailbox is closed.
  bool Wait(Time until, std::vector<ControlEvent>& events) {
    MutexLock lock(mutex_);
    while (!closed_ && changed_.empty() && answers_.empty() && until > Now()) ready_.WaitUntil(lock, until);
    if (closed_) return false;
    events = std::exchange(answers_, {});
    for (const auto& [key, since] : changed_) events.push_back(Changed{key, since});
    changed_.clear();
    return true;
  }

  size_t waiting() const {
    const MutexLock lock(mutex_);
    return changed_.size();
  }

 private:
  mutable Mutex mutex_;
  CondVar ready_;
  bool closed_ RM_GUARDED_BY(mutex_) = false;
  std::map<Key, Time> changed_ RM_GUARDED_BY(mutex_);  // since when
  std::vector<ControlEvent> answers_ RM_GUARDED_BY(mutex_);
};

namespace {

// Which failed writes get a line in the log: the first, and then fewer and fewer, since an API server that is
// away fails the writes of all jobs. Not thread-safe.
class FailureLog {
 public:
  // Returns for how many failures a line is due now; 0: for none.
  int64_t Add(Time now) {
    ++since_line_;
    if (next_ && now < *next_) return 0;
    pause_ = !next_ || now > *next_ + kCalm ? kFirstPause : std::min<Duration>(2 * pause_, kLastPause);
    next_ = now + pause_;
    return std::exchange(since_line_, 0);
  }

 private:
  static constexpr Duration kFirstPause = seconds(1);
  static constexpr Duration kLastPause = seconds(60);
  static constexpr Duration kCalm = seconds(120);  // after it, the pauses are short again

  Duration pause_ = kFirstPause;
  std::optional<Time> next_;
  int64_t since_line_ = 0;
};

// Adds a log line for each decision whose reason differs from the last one of its job, and for failed writes.
Controller::Options WithLog(Controller::Options options) {
  auto inner = std::move(options.on_decision);
  auto last = std::make_shared<LastReasons>();
  options.on_decision = [inner = std::move(inner), last](const Key& key, const core::Observed& observed,
                                                         const core::Decision& decision, Time now) {
    if (last->Change(key, decision.reason))
      log::Debug("{} decision={}", JobTag(key, observed.status), core::ToString(decision));
    if (inner) inner(key, observed, decision, now);
  };
  options.on_gone = [gone = std::move(options.on_gone), last](const Key& key) {
    last->Forget(key);
    if (gone) gone(key);
  };
  options.on_failed_write = [failed = std::move(options.on_failed_write),
                             failures = std::make_shared<FailureLog>()](const FailedWrite& write) {
    if (failed) failed(write);
    const std::string tag = JobTag(write.key, write.attempt, write.generation);
    const char* const name = core::ActionName(write.action);
    if (write.routine) return log::Debug("{} write={} error={}", tag, name, write.error.message);
    if (const int64_t count = failures->Add(Now()); count > 0)
      log::Warn("{} write={} failures={} error={}", tag, name, count, write.error.message);
  };
  return options;
}

}  // namespace

Loop::Loop(Backend& backend, Controller::Options options)
    : backend_(backend),
      mailbox_(std::make_shared<Mailbox>()),
      controller_(backend, WithLog(std::move(options))) {
  backend_.Subscribe([mailbox = mailbox_](const Key& key) { mailbox->Push(Changed{key}); });
}

Loop::~Loop() { Stop(); }

void Loop::Start() {
  // In their order: a job that is decided first may use room that a job before it in the line waits for.
  for (const Key& key : backend_.Keys()) controller_.On(Changed{key, Now()}, Now());
  thread_ = std::thread([this] { Run(); });
}

void Loop::Stop() {
  mailbox_->Close();
  if (thread_.joinable()) thread_.join();
}

void Loop::Run() {
  std::vector<ControlEvent> events;
  while (mailbox_->Wait(controller_.NextWakeup(), events)) {
    for (const ControlEvent& event : events) controller_.On(event, Now());
    std::vector<Command> commands = controller_.TakeCommands(Now());
    {
      const MutexLock lock(mutex_);
      load_ = controller_.load();
    }
    for (Command& command : commands) CarryOut(std::move(command));
  }
}

Load Loop::load() const {
  Load load;
  {
    const MutexLock lock(mutex_);
    load = load_;
  }
  load.waiting += mailbox_->waiting();
  return load;
}

void Loop::CarryOut(Command command) {
  if (auto* write = std::get_if<DoWrite>(&command)) {
    backend_.Execute(std::move(write->write), [mailbox = mailbox_, id = write->id](Result<Revision> result) {
      mailbox->Push(WriteDone{id, std::move(result)});
    });
  } else if (auto* read = std::get_if<DoRead>(&command)) {
    backend_.ReadThrough(read->key, [mailbox = mailbox_, id = read->id](Status result) {
      mailbox->Push(ReadDone{id, std::move(result)});
    });
  } else if (auto* record = std::get_if<DoRecord>(&command)) {
    backend_.Record(record->key, record->event);
  }
}

}  // namespace ringmaster::control
