#include "operator/kube/backend/status_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "api/codec.h"
#include "api/display.h"
#include "api/fields_status.h"

namespace ringmaster::kube {
namespace {

constexpr size_t kMaxMessage = 4096;
constexpr size_t kMaxWord = 300;
constexpr size_t kMaxFabric = 64;  // of status.fabric
constexpr size_t kMaxReason = 64;
constexpr Duration kLongestBackoff = std::chrono::hours(1);  // unless the job allows more

// At most `limit` bytes, whole characters.
std::string Cut(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  text.resize(limit);
  return text;
}

// ---- times

std::string TimeText(Time time, const WallClock& clock) {
  return time == Time{} ? std::string() : WallTimeText(clock.ToWall(time));
}
std::string TimeText(const std::optional<Time>& time, const WallClock& clock) {
  return time ? WallTimeText(clock.ToWall(*time)) : std::string();
}
std::optional<Time> ReadTime(const std::string& text, const WallClock& clock) {
  if (text.empty()) return std::nullopt;
  const auto time = ParseWallTime(text);
  return time.ok() ? std::optional(clock.ToSteady(*time)) : std::nullopt;
}
Time ReadTimeOrZero(const std::string& text, const WallClock& clock) {
  return ReadTime(text, clock).value_or(Time{});
}
int64_t Micros(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

// ---- words. Names are looked up in the very lists that give them.

template <class E>
E FromName(const std::string& name, const char* (*name_of)(E), E last, E otherwise) {
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name == name_of(static_cast<E>(i))) return static_cast<E>(i);
  return otherwise;
}

core::Reason ReasonFromName(const std::string& name) {
  for (const core::ReasonText& row : core::AllReasons())
    if (name == core::ReasonName(row.reason)) return row.reason;
  return core::Reason::kUnknown;
}

const char* OutcomeName(core::Outcome outcome) {
  switch (outcome) {
    case core::Outcome::kNone:
      return "";
    case core::Outcome::kSucceeded:
      return "Succeeded";
    case core::Outcome::kFailed:
      return "Failed";
  }
  return "";
}

// The shortest text that reads as the same number; none for zero.
std::string NumberText(double value) { return value == 0 ? std::string() : fmt::format("{}", value); }
double ReadNumber(const std::string& text) {
  if (text.empty()) return 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? value : 0;
}

// ---- parts

api::Ledger EncodeLedger(const core::Status& status, const WallClock& clock) {
  const core::Ledger& from = status.ledger;
  api::Ledger to;
  to.gangSize = from.gang_size;
  to.attemptSince = TimeText(from.attempt_since, clock);
  to.placed = from.placed;
  to.withdrawals = from.withdrawals;
  to.withdrawnFor = Cut(from.withdrawn_for, kMaxMessage);
  to.counted = from.counted;
  if (from.last_failure) to.endedReason = Cut(from.last_failure->ended_reason, kMaxReason);
  to.failuresInRow = from.failures_in_row;
  to.stepAtFailure = from.step_at_failure;
  to.notBefore = TimeText(from.not_before, clock);
  to.workerFailures = from.worker_failures;
  to.readySince = TimeText(from.ready_since, clock);
  for (const core::Absence& absence : from.absent)
    to.absent.push_back({absence.uid, TimeText(absence.since, clock)});
  to.baseStep = from.base_step;
  to.stepped = from.stepped;
  to.stopSince = TimeText(from.stop_since, clock);
  to.suspended = from.suspended;
  if (from.report_floor) to.reportFloor = static_cast<int64_t>(*from.report_floor);
  to.activeSince = TimeText(from.active_since, clock);
  to.activeBeforeMicros = Micros(from.active_before);
  to.outcome = OutcomeName(from.outcome);
  if (from.outcome_reason != core::Reason::kUnknown) to.outcomeReason = core::ReasonName(from.outcome_reason);
  to.outcomeMessage = Cut(from.outcome_message, kMaxMessage);
  to.lostSteps = from.lost_steps;
  to.time.productiveMicros = Micros(from.goodput.productive);
  to.time.queueMicros = Micros(from.goodput.queue);
  to.time.startupMicros = Micros(from.goodput.startup);
  to.time.restartMicros = Micros(from.goodput.restart);
  to.time.redoneMicros = Micros(from.goodput.redone);
  if (from.spending != core::Spending::kNothing) to.time.spending = core::SpendingName(from.spending);
  to.time.accounted = TimeText(from.accounted, clock);
  to.progressAt = TimeText(status.display.progress_at, clock);
  return to;
}

void DecodeLedger(const api::Ledger& from, const WallClock& clock, core::Status& status) {
  core::Ledger& to = status.ledger;
  to.gang_size = from.gangSize;
  to.attempt_since = ReadTimeOrZero(from.attemptSince, clock);
  to.placed = from.placed;
  to.withdrawals = from.withdrawals;
  to.withdrawn_for = from.withdrawnFor;
  to.counted = from.counted;
  std::sort(to.counted.begin(), to.counted.end());
  to.failures_in_row = from.failuresInRow;
  to.step_at_failure = from.stepAtFailure;
  to.not_before = ReadTime(from.notBefore, clock);
  to.worker_failures = from.workerFailures;
  to.ready_since = ReadTime(from.readySince, clock);
  for (const api::LedgerAbsence& absence : from.absent)
    to.absent.push_back({absence.uid, ReadTimeOrZero(absence.since, clock)});
  to.base_step = from.baseStep;
  to.stepped = from.stepped;
  to.stop_since = ReadTime(from.stopSince, clock);
  to.suspended = from.suspended;
  if (from.reportFloor) to.report_floor = static_cast<rendezvous::Generation>(*from.reportFloor);
  to.active_since = ReadTime(from.activeSince, clock);
  to.active_before = std::chrono::microseconds(from.activeBeforeMicros);
  to.outcome = FromName(from.outcome, OutcomeName, core::Outcome::kFailed, core::Outcome::kNone);
  to.outcome_reason = ReasonFromName(from.outcomeReason);
  to.outcome_message = from.outcomeMessage;
  to.lost_steps = from.lostSteps;
  to.goodput.productive = std::chrono::microseconds(from.time.productiveMicros);
  to.goodput.queue = std::chrono::microseconds(from.time.queueMicros);
  to.goodput.startup = std::chrono::microseconds(from.time.startupMicros);
  to.goodput.restart = std::chrono::microseconds(from.time.restartMicros);
  to.goodput.redone = std::chrono::microseconds(from.time.redoneMicros);
  to.spending =
      FromName(from.time.spending, core::SpendingName, core::Spending::kProductive, core::Spending::kNothing);
  to.accounted = ReadTimeOrZero(from.time.accounted, clock);
  status.display.progress_at = ReadTime(from.progressAt, clock);
}

std::optional<api::Goodput> GoodputOf(const core::Goodput& goodput) {
  const Duration lost = goodput.queue + goodput.startup + goodput.restart + goodput.redone;
  const Duration all = goodput.productive + lost;
  if (all == Duration{0}) return std::nullopt;
  const auto whole = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  api::Goodput result;
  result.ratio = fmt::format("{:.4f}", ToSeconds(goodput.productive) / ToSeconds(all));
  result.productiveSeconds = whole(goodput.productive);
  result.lostSeconds = {{"queue", whole(goodput.queue)},
                        {"startup", whole(goodput.startup)},
                        {"restart", whole(goodput.restart)},
                        {"redone", whole(goodput.redone)}};
  return result;
}

int64_t SecondsLeft(const core::ProgressView& progress, const api::TrainingJob& job) {
  const int64_t steps = progress.total_steps - progress.step;
  if (steps <= 0 || !job.spec.training || !(progress.samples_per_second > 0)) return 0;
  const double left =
      static_cast<double>(steps) * job.spec.training->batch.samplesPerStep / progress.samples_per_second;
  constexpr double kTooFar = 1e12;
  return left < kTooFar ? static_cast<int64_t>(std::ceil(left)) : 0;
}

}  // namespace

api::Status EncodeStatus(const core::Status& status, const api::TrainingJob& job, const WallClock& clock) {
  const core::Ledger& ledger = status.ledger;
  const core::Display& display = status.display;
  api::Status to;
  to.observedGeneration = display.observed_spec_generation;
  to.phase = core::PhaseName(display.phase);
  for (size_t i = 0; i < core::kConditionTypes; ++i) {
    const core::Condition& condition = display.conditions[i];
    if (condition == core::Condition{}) continue;
    to.conditions.push_back({core::ConditionName(static_cast<core::ConditionType>(i)),
                             core::TruthName(condition.truth), core::ReasonName(condition.reason),
                             Cut(condition.message, kMaxMessage), TimeText(condition.since, clock),
                             display.observed_spec_generation});
  }
  to.attempt = ledger.attempt;
  to.generation = static_cast<int64_t>(display.gang_generation);
  to.replicas = display.replicas;
  to.readyReplicas = display.ready_replicas;
  to.selector = "ringmaster.dev/job=" + job.metadata.name;
  to.restarts = {ledger.restarts.total, ledger.restarts.charged, ledger.restarts.without_progress};
  if (ledger.last_failure) {
    const core::Failure& failure = *ledger.last_failure;
    to.lastFailure = api::LastFailure{failure.attempt,
                                      Cut(failure.pod, kMaxWord),
                                      Cut(failure.node, kMaxWord),
                                      failure.exit_code,
                                      core::CauseName(failure.cause),
                                      Cut(failure.message, kMaxMessage),
                                      TimeText(failure.at, clock),
                                      Cut(failure.rule, kMaxWord)};
  }
  for (const core::ExcludedNode& node : ledger.excluded)
    to.excludedNodes.push_back({node.name, Cut(node.reason, kMaxWord), TimeText(node.until, clock)});
  to.progress.step = display.progress.step;
  to.progress.totalSteps = display.progress.total_steps;
  to.progress.etaSeconds = SecondsLeft(display.progress, job);
  to.progress.samplesPerSecond = NumberText(display.progress.samples_per_second);
  to.progress.loss = NumberText(display.progress.loss);
  if (display.progress.checkpoint_step >= 0)
    to.checkpoint = api::CheckpointStatus{display.progress.checkpoint_step, job.spec.checkpoint.path};
  to.goodput = GoodputOf(ledger.goodput);
  to.fabric = Cut(display.transport, kMaxFabric);
  to.weightsHash = display.weights_hash;
  to.startTime = TimeText(ledger.start_time, clock);
  to.completionTime = TimeText(ledger.completion_time, clock);
  to.ledger = EncodeLedger(status, clock);
  api::FillDisplay(to);
  return to;
}

core::Status DecodeStatus(const api::Status& from, const WallClock& clock) {
  core::Status status;
  core::Ledger& ledger = status.ledger;
  core::Display& display = status.display;
  if (from.ledger) DecodeLedger(*from.ledger, clock, status);
  display.observed_spec_generation = from.observedGeneration;
  display.phase = FromName(from.phase, core::PhaseName, core::Phase::kFailed, core::Phase::kPending);
  for (const api::Condition& condition : from.conditions) {
    const auto type = FromName(condition.type, core::ConditionName, core::ConditionType::kFailed,
                               static_cast<core::ConditionType>(core::kConditionTypes));
    if (static_cast<size_t>(type) >= core::kConditionTypes) continue;  // of a newer version
    display.conditions[static_cast<size_t>(type)] = {
        FromName(condition.status, core::TruthName, core::Truth::kTrue, core::Truth::kUnknown),
        ReasonFromName(condition.reason), condition.message,
        ReadTimeOrZero(condition.lastTransitionTime, clock)};
  }
  ledger.attempt = from.attempt;
  display.gang_generation = static_cast<rendezvous::Generation>(from.generation);
  display.replicas = from.replicas;
  display.ready_replicas = from.readyReplicas;
  ledger.restarts = {from.restarts.total, from.restarts.charged, from.restarts.withoutProgress};
  if (from.lastFailure) {
    const api::LastFailure& failure = *from.lastFailure;
    core::Failure& last = ledger.last_failure.emplace();
    last.attempt = failure.attempt;
    last.pod = failure.pod;
    last.node = failure.node;
    last.exit_code = failure.exitCode;
    last.cause = FromName(failure.reason, core::CauseName, core::Cause::kCannotStart, core::Cause::kExit);
    last.message = failure.message;
    if (from.ledger) last.ended_reason = from.ledger->endedReason;
    last.rule = failure.rule;
    last.at = ReadTimeOrZero(failure.time, clock);
  }
  for (const api::ExcludedNode& node : from.excludedNodes)
    ledger.excluded.push_back({node.name, node.reason, ReadTimeOrZero(node.until, clock)});
  std::sort(ledger.excluded.begin(), ledger.excluded.end(),
            [](const core::ExcludedNode& a, const core::ExcludedNode& b) { return a.name < b.name; });
  display.progress.step = from.progress.step;
  display.progress.total_steps = from.progress.totalSteps;
  display.progress.samples_per_second = ReadNumber(from.progress.samplesPerSecond);
  display.progress.loss = ReadNumber(from.progress.loss);
  if (from.checkpoint) display.progress.checkpoint_step = from.checkpoint->step;
  display.transport = from.fabric;
  display.weights_hash = from.weightsHash;
  ledger.start_time = ReadTime(from.startTime, clock);
  ledger.completion_time = ReadTime(from.completionTime, clock);
  return status;
}

void ClampTimes(core::Status& status, const core::Job& job, Time now) {
  const auto past = [now](Time& time) { time = std::min(time, now); };
  const auto past_if = [&](std::optional<Time>& time) {
    if (time) past(*time);
  };
  core::Ledger& ledger = status.ledger;
  past(ledger.attempt_since);
  if (ledger.last_failure) past(ledger.last_failure->at);
  past_if(ledger.ready_since);
  for (core::Absence& absence : ledger.absent) past(absence.since);
  past_if(ledger.stop_since);
  past_if(ledger.active_since);
  past_if(ledger.start_time);
  past_if(ledger.completion_time);
  past(ledger.accounted);
  past_if(status.display.progress_at);
  for (core::Condition& condition : status.display.conditions) past(condition.since);
  if (ledger.not_before) {
    const Duration limit = std::max<Duration>({job.backoff_max, job.gang_timeout, kLongestBackoff});
    ledger.not_before = std::min(*ledger.not_before, now + limit);
  }
  for (core::ExcludedNode& node : ledger.excluded)
    node.until = std::min(node.until, now + job.node_exclusion);
}

namespace {

// Declared before they use each other: these types are not of this namespace.
template <api::HasTable S>
Json PatchValue(const S& value);
template <api::HasTable S>
Json PatchValue(const std::optional<S>& value);

template <class T>
Json PatchValue(const T& value) {
  return api::WriteValue(value);
}
template <api::HasTable S>
Json PatchValue(const S& value) {
  Json patch = Json::object();
  const S defaults{};
  api::ForEachField<S>([&](const auto& field) {
    const auto& member = value.*field.member;
    if constexpr (api::HasTable<std::decay_t<decltype(member)>>)
      patch[field.name] = PatchValue(member);
    else
      patch[field.name] = member == defaults.*field.member ? Json() : PatchValue(member);
  });
  return patch;
}
template <api::HasTable S>
Json PatchValue(const std::optional<S>& value) {
  return value ? PatchValue(*value) : Json();
}

}  // namespace

Json StatusPatch(const api::Status& status) { return PatchValue(status); }

}  // namespace ringmaster::kube
