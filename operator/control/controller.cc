#include "operator/control/controller.h"

#include <algorithm>
#include <utility>

namespace ringmaster::control {
namespace {

// A decision that asks to be asked again at once would spin.
constexpr Duration kMinRequeue = milliseconds(10);

// The table of what an error calls for: a live read first, or only patience.
bool ViewIsBehind(Code code) {
  switch (code) {
    case Code::kAmbiguous:
    case Code::kConflict:
    case Code::kAlreadyExists:
    case Code::kNotFound:
    case Code::kGone:
    case Code::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<Kind> KindOf(const core::Action& action) {
  if (std::holds_alternative<core::SetStatus>(action)) return Kind::kJob;
  if (std::holds_alternative<core::CreatePod>(action) || std::holds_alternative<core::DeletePod>(action) ||
      std::holds_alternative<core::ReleaseGang>(action))
    return Kind::kPod;
  return std::nullopt;
}

Controller::Controller(const View& view, Options options)
    : view_(view), options_(std::move(options)), backoff_(options_.seed) {}

void Controller::On(const ControlEvent& event, Time now) {
  if (const auto* changed = std::get_if<Changed>(&event)) {
    queue_.Add(changed->key);
  } else if (const auto* write = std::get_if<WriteDone>(&event)) {
    OnWrite(write->id, write->result, now);
  } else if (const auto* read = std::get_if<ReadDone>(&event)) {
    OnRead(read->id, read->result, now);
  }
}

std::vector<Command> Controller::TakeCommands(Time now) {
  while (auto key = queue_.Take(now)) Reconcile(*key, now);
  return std::exchange(commands_, {});
}

void Controller::Reconcile(const Key& key, Time now) {
  State& state = states_[key];
  if (state.must_read) return Read(key, state);
  if (!freshness_.Fresh(key, view_)) {
    if (!state.stale_since) state.stale_since = now;
    if (now - *state.stale_since >= options_.stale_limit) return Read(key, state);
    queue_.AddAt(key, *state.stale_since + options_.stale_limit);
    return queue_.Done(key);
  }
  state.stale_since.reset();

  auto snapshot = view_.Observe(key);
  if (!snapshot) {
    states_.erase(key);
    freshness_.Forget(key);
    backoff_.Reset(key);
    queue_.DropDue(key);
    return queue_.Done(key);
  }
  core::Decision decision = options_.decide(snapshot->observed, now);
  if (options_.on_decision) options_.on_decision(key, snapshot->observed, decision, now);
  Send(key, state, *std::move(snapshot), std::move(decision), now);
}

void Controller::Send(const Key& key, State& state, Snapshot snapshot, core::Decision decision, Time now) {
  state.requeue_at = decision.requeue_at;
  state.events = std::move(decision.events);
  state.failed = false;
  state.cut = decision.actions.size() > options_.max_writes;
  if (state.cut) decision.actions.resize(options_.max_writes);
  for (core::Action& action : decision.actions) {
    const uint64_t id = next_id_++;
    pending_.emplace(id, Pending{key, KindOf(action)});
    std::optional<Revision> if_revision;
    if (std::holds_alternative<core::SetStatus>(action)) if_revision = snapshot.job_revision;
    commands_.push_back(DoWrite{id, {key, snapshot.observed.job.uid, std::move(action), if_revision}});
    state.in_flight += 1;
  }
  if (state.in_flight == 0) Finish(key, state, now);
}

void Controller::Read(const Key& key, State& state) {
  const uint64_t id = next_id_++;
  pending_.emplace(id, Pending{key, std::nullopt});
  commands_.push_back(DoRead{id, key});
  state.in_flight = 1;
}

void Controller::OnWrite(uint64_t id, const Result<Revision>& result, Time now) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  const auto& [key, kind] = node.mapped();
  State& state = states_.at(key);
  if (result.ok()) {
    if (kind && result.value() > 0) freshness_.Expect(key, *kind, result.value());
  } else {
    state.failed = true;
    state.must_read |= ViewIsBehind(result.error().code);
  }
  if (--state.in_flight == 0) Finish(key, state, now);
}

void Controller::OnRead(uint64_t id, const Status& result, Time now) {
  auto node = pending_.extract(id);
  if (node.empty()) return;
  const Key& key = node.mapped().key;
  State& state = states_.at(key);
  state.in_flight = 0;
  state.events.clear();
  state.requeue_at.reset();
  state.failed = !result.ok();
  if (result.ok()) {
    state.must_read = false;
    state.stale_since.reset();
    freshness_.Forget(key);
    queue_.Add(key);
  } else {
    state.must_read = true;
  }
  // The delays of the write that led here go on growing until a write succeeds.
  if (state.failed) queue_.AddAt(key, now + backoff_.Next(key));
  queue_.Done(key);
}

void Controller::Finish(const Key& key, State& state, Time now) {
  if (state.failed) {
    queue_.AddAt(key, now + backoff_.Next(key));
  } else {
    backoff_.Reset(key);
    for (core::Event& event : state.events) commands_.push_back(DoRecord{key, std::move(event)});
    if (state.requeue_at) queue_.AddAt(key, std::max(*state.requeue_at, now + kMinRequeue));
    if (state.cut) queue_.Add(key);
  }
  state.events.clear();
  queue_.Done(key);
}

}  // namespace ringmaster::control
