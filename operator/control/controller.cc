// SPDX-License-Identifier: Apache-2.0

#include "operator/control/controller.h"

#include <algorithm>
#include <utility>

#include "operator/core/decide/rules.h"

namespace ringmaster::control {
namespace {

// A decision about a gang of thousands takes milliseconds, and each of its pods changes several times while
// the gang starts or ends. After a decision without actions, a large gang is not reconciled again for this
// long.
constexpr size_t kLarge = 64;
constexpr Duration kHoldPerPod = std::chrono::microseconds(100);
constexpr Duration kMaxHold = milliseconds(200);

// A turn to write progress that is not used in this time is given up.
constexpr Duration kTurnLife = seconds(5);

// After so many failed status writes in a row an event reports what the status cannot.
constexpr int32_t kReportedFailure = 5;

// Keeps a decision with a requeue time in the past from spinning.
constexpr Duration kMinRequeue = milliseconds(10);

// Whether the error shows that another write came first.
bool IsOutdated(Code code) {
  return code == Code::kConflict || code == Code::kAlreadyExists || code == Code::kNotFound ||
         code == Code::kGone;
}

// Whether the error shows that the view may be behind, so that a live read must follow. Other errors are only
// retried.
bool ViewIsBehind(Code code) {
  return IsOutdated(code) || code == Code::kAmbiguous || code == Code::kDeadlineExceeded;
}

// Whether the success or refusal of the write shows if pods are accepted now.
bool AboutPods(const core::Action& action) {
  const auto* make = std::get_if<core::MakeWorkload>(&action);
  return std::holds_alternative<core::CreatePod>(action) || std::holds_alternative<core::TryPods>(action) ||
         std::holds_alternative<core::PrepareGang>(action) ||
         std::holds_alternative<core::ReleaseGang>(action) ||
         (make != nullptr && make->replaces.empty());  // a job that cannot grow still repairs its pods
}

// Whether the other writes of the decision are still valid after this error.
bool MayContinue(const core::Action& action, Code code) {
  if (std::holds_alternative<core::DeletePod>(action) || std::holds_alternative<core::UntrackPod>(action))
    return code == Code::kNotFound || code == Code::kConflict;  // the pod is gone already
  return std::holds_alternative<core::CreatePod>(action) && code == Code::kAlreadyExists;
}

}  // namespace

std::optional<Kind> KindOf(const core::Action& action) {
  if (std::holds_alternative<core::SetStatus>(action)) return Kind::kJob;
  if (std::holds_alternative<core::CreatePod>(action) || std::holds_alternative<core::DeletePod>(action) ||
      std::holds_alternative<core::UntrackPod>(action) || std::holds_alternative<core::ReleaseGang>(action))
    return Kind::kPod;
  if (core::IsAboutWorkload(action)) return Kind::kWorkload;
  return std::nullopt;
}

Controller::Controller(View& view, Options options)
    : view_(view), options_(std::move(options)), backoff_(options_.seed) {}

void Controller::On(const ControlEvent& event, Time now) {
  if (const auto* changed = std::get_if<Changed>(&event)) {
    queue_.Add(changed->key, std::min(changed->since, now));
  } else if (const auto* write = std::get_if<WriteDone>(&event)) {
    OnWrite(write->id, write->result, now);
  } else if (const auto* read = std::get_if<ReadDone>(&event)) {
    OnRead(read->id, read->result, now);
  }
}

std::vector<Command> Controller::TakeCommands(Time now) {
  while (auto key = queue_.Take(now)) Reconcile(*key, now);
  SendQueued();
  return std::exchange(commands_, {});
}

void Controller::Reconcile(const Key& key, Time now) {
  State& state = states_[key];
  if (state.must_read) return Read(key, state);
  if (now < state.hold_until) {
    queue_.AddAt(key, state.hold_until);
    return Done(key, now);
  }
  if (!freshness_.Fresh(key, view_)) {
    // A watch that makes progress will deliver the write. Listing from a slow server would slow it down
    // further.
    const auto reached = freshness_.Reached(key, view_);
    if (!state.stale_since || state.reached != reached) {
      state.stale_since = now;
      state.reached = reached;
    }
    if (now - *state.stale_since >= options_.stale_limit) return Read(key, state);
    queue_.AddAt(key, *state.stale_since + options_.stale_limit);
    return Done(key, now);
  }
  state.stale_since.reset();

  auto snapshot = view_.TakeTurn(key);
  if (!snapshot) {
    states_.erase(key);
    freshness_.Forget(key);
    backoff_.Reset(key);
    queue_.DropDue(key);
    if (options_.on_gone) options_.on_gone(key);
    return Done(key, now);
  }
  const core::Job& job = snapshot->observed.job;
  if (job.uid.empty() && options_.on_gone) options_.on_gone(key);
  if (state.refusal && (state.refused_generation != job.spec_generation || state.job_uid != job.uid)) {
    state.refusal.reset();
    state.refusals = 0;
  }
  snapshot->observed.refusal = state.refusal;
  core::Decision decision = options_.decide(snapshot->observed, now);
  if (options_.on_decision) options_.on_decision(key, snapshot->observed, decision, now);
  if (decision.actions.size() == 1) {
    const auto* set = std::get_if<core::SetStatus>(&decision.actions.front());
    if (set != nullptr && set->deferrable && !MayWriteProgress(state, now)) {
      decision.actions.clear();
      decision.requeue_at = std::min(decision.requeue_at.value_or(*state.turn_at), *state.turn_at);
    }
  }
  const size_t pods = snapshot->observed.pods.size();
  if (pods >= kLarge && decision.actions.empty())
    state.hold_until = now + std::min<Duration>(kHoldPerPod * static_cast<int64_t>(pods), kMaxHold);
  Send(key, state, *std::move(snapshot), std::move(decision), now);
}

bool Controller::MayWriteProgress(State& state, Time now) {
  if (!state.turn_at || now > *state.turn_at + kTurnLife) {
    state.turn_at = std::max(now, next_turn_);
    next_turn_ = *state.turn_at + Duration(seconds(1)) / options_.deferrable_per_second;
  }
  if (now < *state.turn_at) return false;
  state.turn_at.reset();
  return true;
}

void Controller::Send(const Key& key, State& state, Snapshot snapshot, core::Decision decision, Time now) {
  state.began = now;
  state.requeue_at = decision.requeue_at;
  state.events = std::move(decision.events);
  state.failed = false;
  state.pod_write_succeeded = false;
  state.refused.reset();
  state.job_uid = std::move(snapshot.observed.job.uid);
  state.refused_generation = snapshot.observed.job.spec_generation;
  state.attempt = snapshot.observed.status.ledger.attempt;
  state.generation = snapshot.observed.status.display.gang_generation;
  state.job_revision = snapshot.job_revision;
  state.truncated = decision.actions.size() > options_.max_writes;
  if (state.truncated) decision.actions.resize(options_.max_writes);
  state.unsent = std::move(decision.actions);
  std::reverse(state.unsent.begin(), state.unsent.end());
  if (state.unsent.empty()) return Finish(key, state, now);
  turns_.push_back(key);
}

void Controller::SendQueued() {
  while (CanSend()) {
    const Key key = std::move(turns_.front());
    turns_.pop_front();
    const auto known = states_.find(key);
    if (known == states_.end() || known->second.unsent.empty()) continue;  // its actions were dropped
    State& state = known->second;
    core::Action action = std::move(state.unsent.back());
    state.unsent.pop_back();
    if (state.unsent.empty())
      state.unsent.shrink_to_fit();  // of thousands of jobs few write at a time
    else
      turns_.push_back(key);
    const uint64_t id = next_id_++;
    std::optional<Revision> if_revision;
    if (std::holds_alternative<core::SetStatus>(action)) if_revision = state.job_revision;
    pending_.emplace(id, Pending{key, action});
    state.in_flight += 1;
    writes_in_flight_ += 1;
    commands_.push_back(DoWrite{id, Write{key, state.job_uid, std::move(action), if_revision}});
  }
}

void Controller::Read(const Key& key, State& state) {
  const uint64_t id = next_id_++;
  reads_.emplace(id, key);
  commands_.push_back(DoRead{id, key});
  state.in_flight = 1;
}

void Controller::OnWrite(uint64_t id, const Result<Revision>& result, Time now) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  const auto& [key, action] = node.mapped();
  State& state = states_.at(key);
  writes_in_flight_ -= 1;
  if (result.ok()) {
    const auto kind = KindOf(action);
    if (kind && result.value() > 0) freshness_.Expect(key, *kind, result.value());
    state.pod_write_succeeded |= AboutPods(action);
    if (kind == Kind::kJob) state.failed_status_writes = 0;
  } else {
    state.failed = true;
    state.must_read |= ViewIsBehind(result.error().code);
    RecordRefusal(action, result.error(), state, now);
    Report(key, state, action, result.error());
    if (!MayContinue(action, result.error().code)) state.unsent = {};
  }
  if (--state.in_flight == 0 && state.unsent.empty()) Finish(key, state, now);
}

void Controller::RecordRefusal(const core::Action& action, const Error& error, State& state, Time now) {
  if (!AboutPods(action) || state.refused) return;
  std::optional<core::RefusalKind> kind = core::ClassifyRefusal(error);
  std::string message = error.message;
  const auto* create = std::get_if<core::CreatePod>(&action);
  if (!kind && create != nullptr && error.code == Code::kAlreadyExists) {
    // The name existed twice with a live read in between, and is not among the job's pods.
    if (!state.taken_names.insert(create->name).second) kind = core::RefusalKind::kNameTaken;
    message = "pod " + create->name + " exists and does not belong to this job";
  }
  if (!kind) return;
  const Time since = state.refusal && state.refusal->kind == *kind ? state.refusal->since : now;
  state.refused =
      core::Refusal{*kind, std::move(message), since, now + core::RefusalPause(state.refusals + 1)};
}

void Controller::Report(const Key& key, State& state, const core::Action& action, const Error& error) {
  const bool outdated = IsOutdated(error.code);
  if (std::holds_alternative<core::SetStatus>(action) && !outdated &&
      ++state.failed_status_writes == kReportedFailure)
    commands_.push_back(DoRecord{key, {true, "StatusNotWritten", error.message}});
  if (!options_.on_failed_write) return;
  const bool routine = outdated || (AboutPods(action) && state.refused);
  options_.on_failed_write({key, state.attempt, state.generation, action, error, routine});
}

void Controller::OnRead(uint64_t id, const Status& result, Time now) {
  auto node = reads_.extract(id);
  if (node.empty()) return;
  const Key& key = node.mapped();
  State& state = states_.at(key);
  state.in_flight = 0;
  state.events.clear();
  state.requeue_at.reset();
  state.failed = !result.ok();
  if (result.ok()) {
    state.must_read = false;
    state.stale_since.reset();
    freshness_.Forget(key);
    queue_.Add(key, now);
  } else {
    state.must_read = true;
  }
  // The back-off of the write that led here continues to grow until a write succeeds.
  if (state.failed) Retry(key, now);
  Done(key, now);
}

void Controller::Finish(const Key& key, State& state, Time now) {
  if (options_.on_reconciled) {
    const char* const well = state.requeue_at ? "requeue_after" : "success";
    options_.on_reconciled(key, state.failed ? "error" : well, now - state.began);
  }
  if (state.refused) {
    state.refusals += 1;
    state.refusal = std::move(state.refused);
    state.refused.reset();
  } else if (state.pod_write_succeeded && !state.failed) {
    state.refusals = 0;
    state.refusal.reset();
    state.taken_names.clear();
  }
  if (state.failed) {
    Retry(key, now);
  } else {
    backoff_.Reset(key);
    for (core::Event& event : state.events) {
      Key subject = key;
      if (!event.of.empty()) {
        subject = Key::Parse(event.of);
        event.message = key.ToString() + " " + event.message;
      }
      commands_.push_back(DoRecord{std::move(subject), std::move(event)});
    }
    if (state.requeue_at) queue_.AddAt(key, std::max(*state.requeue_at, now + kMinRequeue));
    if (state.truncated) queue_.Add(key, now);
  }
  state.events.clear();
  Done(key, now);
}

void Controller::Retry(const Key& key, Time now) {
  ++retried_;
  queue_.AddAt(key, now + backoff_.Next(key));
}

void Controller::Done(const Key& key, Time now) {
  const auto spent = queue_.Done(key, now);
  if (options_.on_turn) options_.on_turn(spent.waited, spent.worked);
}

}  // namespace ringmaster::control
