// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/job_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/load.h"
#include "cli/cluster/status_screen.h"
#include "cli/ui/plain_text.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Text;
using kube::WallTime;

// A failure in a log and an event about the same worker are one failure when they are this close: the event
// is written after the operator has decided, by another clock.
constexpr double kSameFailureSeconds = 20;
constexpr size_t kMaxNote = 2000;

double SecondsOf(WallTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Returns a value for the page to show; null when the text is no number.
Json NumberOf(std::string_view text) {
  const auto number = api::ParseDecimal(text);
  return number.ok() && std::isfinite(*number) ? Json(*number) : Json();
}

double NumberOrNan(std::string_view text) {
  const auto number = api::ParseDecimal(text);
  return number.ok() ? *number : NAN;
}

bool IsTrue(const Json& job, const char* type) { return Text(ConditionOf(job, type), "status") == "True"; }

bool EndedJob(const Json& job) { return IsTrue(job, "Succeeded") || IsTrue(job, "Failed"); }

std::string PhaseOf(const Json& job) {
  const std::string_view phase = Text(Child(job, "status"), "phase");
  return phase.empty() ? "New" : std::string(phase);
}

std::string WorkersText(const Json& job) {
  const std::string_view ready = Text(Child(job, "status"), "ready");
  if (!ready.empty()) return std::string(ready);
  return fmt::format("0/{}", Integer(Child(Child(job, "spec"), "workers"), "replicas", 1));
}

RunEvent EventAt(WallTime at, const char* reason, std::string message) {
  RunEvent event;
  event.time = kube::WallTimeText(at);
  event.monotonic_seconds = SecondsOf(at);
  event.reason = reason;
  event.message = std::move(message);
  return event;
}

// Returns the pod that a note begins with: JOB-ATTEMPT-RANK.
std::string PodOf(std::string_view note, std::string_view job) {
  const std::string_view word = note.substr(0, note.find_first_of(" :,"));
  if (!word.starts_with(job) || word.size() < job.size() + 4 || word[job.size()] != '-') return {};
  const std::string_view numbers = word.substr(job.size() + 1);
  const bool good = numbers.find_first_not_of("0123456789-") == std::string_view::npos &&
                    std::count(numbers.begin(), numbers.end(), '-') == 1;
  return good ? std::string(word) : std::string();
}

// Returns how the timeline shows an event of the operator; empty: not at all. The reasons of failures are the
// causes of docs/reference/conditions.md.
std::string GangReasonOf(const std::string& reason) {
  for (const char* cause : {"Exit", "NodeUnreachable", "StartupTimeout", "CannotStart", "LostByNode", "Hang"})
    if (reason == cause) return "WorkerFailed";
  if (reason == "Silent") return "WorkerSilent";
  if (reason == "Left") return "WorkerLeaving";
  for (const char* same : {"DeviceFault", "Restarting", "CheckpointPublished", "Straggler"})
    if (reason == same) return reason;
  return {};
}

// Turns the marks of all logs, oldest first, into events.
class GangFromLogs {
 public:
  void Add(const std::string& pod, const LogMark& mark) {
    switch (mark.kind) {
      case LogMark::Kind::kMember:
        return AddMember(pod, mark);
      case LogMark::Kind::kPeerLost:
        // The line may come from a slower clock than the next generation.
        if (formed_.upper_bound(mark.generation) == formed_.end()) NoteLoss(mark.at);
        return;
      case LogMark::Kind::kLost:
        NoteLoss(mark.at);
        return AddFailure(pod, mark, mark.text.empty() ? mark.evidence : mark.text);
      case LogMark::Kind::kEnded:
        if (mark.exit_code != 0) return AddExit(pod, mark);
        events_.push_back(EventAt(mark.at, "WorkerEnded", pod + " ended"));
        events_.back().pod = pod;
        return;
      case LogMark::Kind::kLeaving:
        events_.push_back(EventAt(mark.at, "WorkerLeaving", pod + " leaves: " + mark.text));
        events_.back().pod = pod;
        return;
    }
  }

  std::vector<RunEvent> Take() {
    for (RunEvent& event : events_) std::erase(event.workers, std::string());
    return std::move(events_);
  }

 private:
  void NoteLoss(WallTime at) {
    if (!lost_since_) lost_since_ = at;
  }

  void AddMember(const std::string& pod, const LogMark& mark) {
    failed_.erase(pod);
    auto known = formed_.find(mark.generation);
    if (known == formed_.end()) {
      known = formed_.emplace(mark.generation, events_.size()).first;
      events_.push_back(
          EventAt(mark.at, "GenerationFormed",
                  fmt::format("generation {}: {} workers", mark.generation & 0xffffffff, mark.world)));
      RunEvent& event = events_.back();
      event.generation = mark.generation;
      event.workers.resize(static_cast<size_t>(mark.world));
      if (lost_since_ && !(known == formed_.begin()))
        event.recovery_seconds = SecondsOf(mark.at) - SecondsOf(*lost_since_);
      lost_since_.reset();
    }
    auto& workers = events_[known->second].workers;
    if (static_cast<size_t>(mark.rank) < workers.size()) workers[static_cast<size_t>(mark.rank)] = pod;
  }

  void AddFailure(const std::string& pod, const LogMark& mark, const std::string& what) {
    failed_[pod] = events_.size();
    events_.push_back(EventAt(mark.at, "WorkerFailed", pod + " failed: " + what));
    events_.back().warning = true;
    events_.back().pod = pod;
    events_.back().evidence = mark.evidence;
  }

  // The agent notices a death, and then learns the exit code.
  void AddExit(const std::string& pod, const LogMark& mark) {
    if (const auto known = failed_.find(pod); known != failed_.end()) {
      events_[known->second].message += fmt::format(", exit code {}", mark.exit_code);
      failed_.erase(known);
      return;
    }
    NoteLoss(mark.at);
    AddFailure(pod, mark, fmt::format("exit code {}", mark.exit_code));
  }

  std::vector<RunEvent> events_;
  std::map<uint64_t, size_t> formed_;     // generation -> index of its event
  std::map<std::string, size_t> failed_;  // pod -> index of its failure, until it is a member again
  std::optional<WallTime> lost_since_;
};

bool Earlier(const RunEvent& one, const RunEvent& other) {
  return one.monotonic_seconds < other.monotonic_seconds;
}

}  // namespace

Json PlainTexts(Json message) {
  if (message.is_string()) return PlainText(message.get_ref<const std::string&>());
  if (message.is_structured())
    for (Json& item : message) item = PlainTexts(std::move(item));
  return message;
}

Json JobRow(const Json& job) {
  const Json& metadata = Child(job, "metadata");
  const Json& progress = Child(Child(job, "status"), "progress");
  const std::string phase = PhaseOf(job);
  const std::string name(Text(metadata, "name")), space(Text(metadata, "namespace"));
  const char* state = IsTrue(job, "Failed")                       ? "failed"
                      : IsTrue(job, "Succeeded")                  ? "done"
                      : phase == "Running" || phase == "Resizing" ? "runs"
                                                                  : "waits";
  return {{"key", space + "/" + name},
          {"namespace", space},
          {"name", name},
          {"phase", phase},
          {"state", state},
          {"step", Integer(progress, "step")},
          {"totalSteps", Integer(progress, "totalSteps")},
          {"loss", NumberOf(Text(progress, "loss"))},
          {"workers", WorkersText(job)},
          {"created", Text(metadata, "creationTimestamp")},
          {"why", ExplainPhase(job)}};
}

Json JobRun(const Json& job) {
  const Json& metadata = Child(job, "metadata");
  const Json& status = Child(job, "status");
  const Json& progress = Child(status, "progress");
  Json run{{"kind", "job"},
           {"name", fmt::format("{}/{}", Text(metadata, "namespace"), Text(metadata, "name"))},
           {"phase", PhaseOf(job)},
           {"message", ExplainPhase(job)},
           {"live", !EndedJob(job)},
           {"step", Integer(progress, "step")},
           {"totalSteps", Integer(progress, "totalSteps")},
           {"loss", NumberOf(Text(progress, "loss"))},
           {"samplesPerSecond", NumberOf(Text(progress, "samplesPerSecond"))},
           {"goodput", NumberOf(Text(Child(status, "goodput"), "ratio"))},
           {"eta", Text(progress, "eta")},
           {"workers", WorkersText(job)},
           {"attempt", Integer(status, "attempt")},
           {"restarts", Integer(Child(status, "restarts"), "total")},
           {"checkpoint", Integer(Child(status, "checkpoint"), "step", -1)},
           {"fabric", Text(status, "fabric")}};
  const Json& failure = Child(status, "lastFailure");
  if (failure.is_object())
    run["failure"] = {{"worker", Text(failure, "pod")},
                      {"message", LastFailureText(job, std::nullopt)},
                      {"time", Text(failure, "time")}};
  return run;
}

std::optional<ProgressCurve::Point> ProgressPoint(const Json& job) {
  const Json& status = Child(job, "status");
  const Json& progress = Child(status, "progress");
  const int64_t step = Integer(progress, "step");
  if (step <= 0) return std::nullopt;
  return ProgressCurve::Point{step, NumberOrNan(Text(progress, "loss")),
                              NumberOrNan(Text(progress, "samplesPerSecond")),
                              NumberOrNan(Text(Child(status, "goodput"), "ratio"))};
}

void AddToCurve(const LogStep& step, ProgressCurve* curve) {
  if (std::isfinite(step.validation)) curve->AddValidation(step.validation_step, step.validation);
  const ProgressCurve::Point point{step.step, step.loss, step.samples_per_second, NAN, step.learning_rate};
  // The line about the last validation has nothing else.
  if (!std::isnan(step.learning_rate) || !std::isnan(step.loss)) curve->Add(point);
}

BusyReports LoggedBusyTimes(const WorkerLogs& logs) {
  BusyReports reports;
  for (const auto& [pod, log] : logs) reports[pod] = &log->busy();
  return reports;
}

Json JobWorkers(const std::vector<Json>& pods) {
  struct Row {
    int64_t attempt, rank;
    Json item;
  };
  std::vector<Row> rows;
  for (const Json& pod : pods) {
    const Json& metadata = Child(pod, "metadata");
    const auto label = [&](const char* name) {
      const auto number = api::ParseDecimal(Text(Child(metadata, "labels"), name));
      return number.ok() && *number >= 0 && *number < 1e9 ? static_cast<int64_t>(*number) : int64_t{-1};
    };
    const int64_t attempt = label(wiring::kAttemptLabel), rank = label(wiring::kRankLabel);
    rows.push_back({attempt,
                    rank,
                    {{"rank", rank},
                     {"attempt", attempt},
                     {"pod", Text(metadata, "name")},
                     {"node", Text(Child(pod, "spec"), "nodeName")},
                     {"state", PodState(pod)}}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& one, const Row& other) {
    return std::pair(-one.attempt, one.rank) < std::pair(-other.attempt, other.rank);
  });
  Json items = Json::array();
  for (Row& row : rows) items.push_back(std::move(row.item));
  return items;
}

std::vector<RunEvent> ReportedEvents(const std::vector<Json>& events, const Json& job) {
  const std::string_view uid = Text(Child(job, "metadata"), "uid");
  const std::string_view name = Text(Child(job, "metadata"), "name");
  std::vector<RunEvent> reported;
  for (const Json& item : events) {
    if (Text(Child(item, "involvedObject"), "uid") != uid) continue;
    const Json& series = Child(item, "series");
    const auto begin = kube::ParseWallTime(Text(item, "eventTime"));
    const auto last = kube::ParseWallTime(Text(series, "lastObservedTime"));
    if (!begin.ok() && !last.ok()) continue;
    const std::string note(Text(item, "message").substr(0, kMaxNote));
    RunEvent event = EventAt(last.ok() ? *last : *begin, "", note);
    event.reason = Text(item, "reason");
    event.warning = Text(item, "type") == "Warning";
    event.pod = PodOf(note, name);
    if (const int64_t count = Integer(series, "count"); count > 1)
      event.message += fmt::format(" ({} times)", count);
    reported.push_back(std::move(event));
  }
  std::stable_sort(reported.begin(), reported.end(), Earlier);
  return reported;
}

std::vector<RunEvent> GangEvents(const WorkerLogs& logs, const std::vector<RunEvent>& reported,
                                 const Json& job) {
  std::vector<std::pair<const std::string*, const LogMark*>> marks;
  for (const auto& [pod, log] : logs)
    for (const LogMark& mark : log->marks()) marks.emplace_back(&pod, &mark);
  std::stable_sort(marks.begin(), marks.end(),
                   [](const auto& one, const auto& other) { return one.second->at < other.second->at; });
  GangFromLogs from_logs;
  for (const auto& [pod, mark] : marks) from_logs.Add(*pod, *mark);
  std::vector<RunEvent> gang = from_logs.Take();
  const size_t logged = gang.size();
  for (const RunEvent& event : reported) {
    const std::string reason = GangReasonOf(event.reason);
    const bool of_all = reason == "Restarting" || reason == "CheckpointPublished";
    if (reason.empty() || (event.pod.empty() && !of_all)) continue;
    const bool known =
        std::any_of(gang.begin(), gang.begin() + static_cast<ptrdiff_t>(logged), [&](const RunEvent& other) {
          return other.reason == reason && other.pod == event.pod && !event.pod.empty() &&
                 std::abs(other.monotonic_seconds - event.monotonic_seconds) < kSameFailureSeconds;
        });
    if (known) continue;
    gang.push_back(event);
    gang.back().reason = reason;
    if (event.reason == "Hang") gang.back().evidence = "hang";
  }
  const Json& status = Child(job, "status");
  if (const auto end = kube::ParseWallTime(Text(status, "completionTime")); end.ok() && EndedJob(job))
    gang.push_back(EventAt(*end, IsTrue(job, "Succeeded") ? "Succeeded" : "Failed", ""));
  std::stable_sort(gang.begin(), gang.end(), Earlier);
  return gang;
}

std::vector<RunEvent> PageEvents(const std::vector<RunEvent>& reported, const std::vector<RunEvent>& gang) {
  std::vector<RunEvent> events = reported;
  for (const RunEvent& event : gang)
    if (event.reason == "GenerationFormed") events.push_back(event);
  std::stable_sort(events.begin(), events.end(), Earlier);
  return events;
}

}  // namespace ringmaster::cli
