// SPDX-License-Identifier: Apache-2.0

#include "operator/control/loop.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace ringmaster::control {

// Changes of one key coalesce, so it holds at most one entry per job plus the answers in flight.
class Loop::Mailbox {
 public:
  void Push(ControlEvent event) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      if (auto* changed = std::get_if<Changed>(&event))
        changed_.try_emplace(std::move(changed->key), Now());
      else
        answers_.push_back(std::move(event));
    }
    ready_.notify_one();
  }

  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_one();
  }

  // false: closed. Answers come before changes, so that a decision knows them.
  bool Wait(Time until, std::vector<ControlEvent>& events) {
    std::unique_lock lock(mutex_);
    const auto something = [&] { return closed_ || !changed_.empty() || !answers_.empty(); };
    if (until == kNever)
      ready_.wait(lock, something);
    else if (until > Now())
      ready_.wait_until(lock, until, something);
    if (closed_) return false;
    events = std::exchange(answers_, {});
    for (const auto& [key, since] : changed_) events.push_back(Changed{key, since});
    changed_.clear();
    return true;
  }

  size_t waiting() const {
    std::lock_guard lock(mutex_);
    return changed_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  bool closed_ = false;
  std::map<Key, Time> changed_;  // since when
  std::vector<ControlEvent> answers_;
};

namespace {

// The reason of a decision is worth a line when it is another one.
Controller::Options WithLog(Controller::Options options) {
  auto inner = std::move(options.on_decision);
  auto last = std::make_shared<std::map<Key, std::string>>();
  options.on_decision = [inner = std::move(inner), last](const Key& key, const core::Observed& observed,
                                                         const core::Decision& decision, Time now) {
    std::string& reason = (*last)[key];
    if (std::exchange(reason, decision.reason) != decision.reason)
      log::Debug("job={} decision={}", key.ToString(), core::ToString(decision));
    if (inner) inner(key, observed, decision, now);
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
  for (const Key& key : backend_.Keys()) mailbox_->Push(Changed{key});
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
      const std::lock_guard lock(mutex_);
      load_ = controller_.load();
    }
    for (Command& command : commands) CarryOut(std::move(command));
  }
}

Load Loop::load() const {
  Load load;
  {
    const std::lock_guard lock(mutex_);
    load = load_;
  }
  load.waiting += mailbox_->waiting();
  return load;
}

void Loop::CarryOut(Command command) {
  if (auto* write = std::get_if<DoWrite>(&command)) {
    backend_.Execute(std::move(write->write), [mailbox = mailbox_, id = write->id](Result<Revision> result) {
      if (!result.ok()) log::Debug("write={} error={}", id, result.error().message);
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
