// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/status_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "api/display.h"
#include "api/load.h"
#include "base/json.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Flag;
using json::Integer;
using json::Items;
using json::Text;

std::string Label(const Json& pod, const char* name) {
  return std::string(Text(Child(Child(pod, "metadata"), "labels"), name));
}

// Appends "label      text", unless the text is empty.
void Line(std::string& screen, const char* label, const std::string& text) {
  if (!text.empty()) screen += fmt::format("  {:<13} {}\n", label, text);
}

// Shortens a decimal to four digits; returns other text unchanged.
std::string Short(std::string_view number) {
  const auto value = api::ParseDecimal(number);
  return value.ok() ? fmt::format("{:.4g}", *value) : std::string(number);
}

std::string ProgressText(const Json& progress) {
  const int64_t total = Integer(progress, "totalSteps");
  std::string text;
  if (total > 0) {
    text = fmt::format("step {} of {}", Integer(progress, "step"), total);
    if (const auto percent = Text(progress, "percent"); !percent.empty())
      text += fmt::format(" ({})", percent);
  }
  const auto add = [&](const char* form, std::string_view value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(form), value);
  };
  add("ETA {}", Text(progress, "eta"));
  add("{} samples/s", Short(Text(progress, "samplesPerSecond")));
  add("loss {}", Short(Text(progress, "loss")));
  return text;
}

std::string GoodputText(const Json& goodput) {
  const std::string_view ratio = Text(goodput, "ratio");
  if (ratio.empty()) return {};
  std::string text = fmt::format("{} of the time in steps that count", ratio);
  std::vector<std::pair<int64_t, std::string>> lost;
  if (const Json& causes = Child(goodput, "lostSeconds"); causes.is_object())
    for (const auto& [cause, value] : causes.items())
      if (value.is_number_integer() && value.get<int64_t>() > 0)
        lost.emplace_back(-value.get<int64_t>(), cause);
  std::sort(lost.begin(), lost.end());
  for (const auto& [seconds, cause] : lost)
    text += fmt::format("; {} {}", cause, api::ShortDuration(-seconds));
  return text;
}

std::string RestartsText(const Json& status, const Json& spec) {
  const Json& restarts = Child(status, "restarts");
  const int64_t total = Integer(restarts, "total");
  if (total == 0) return {};
  return fmt::format("{}, of which {} count against the {} of restart.maxRestarts", total,
                     Integer(restarts, "charged"), Integer(Child(spec, "restart"), "maxRestarts", 10));
}

std::string ExcludedText(const Json& status, kube::WallTime now) {
  std::string text;
  for (const Json& node : Items(status, "excludedNodes")) {
    text += (text.empty() ? "" : "; ") + std::string(Text(node, "name"));
    if (const auto until = kube::ParseWallTime(Text(node, "until")); until.ok() && *until > now)
      text += fmt::format(
          " for {}",
          api::ShortDuration(std::chrono::duration_cast<std::chrono::seconds>(*until - now).count()));
    const std::string_view reason = Text(node, "reason");
    if (Text(node, "effect") == "PreferNoSchedule")
      text += fmt::format(" ({}: used only if no other node has room)", reason);
    else if (!reason.empty())
      text += fmt::format(" ({})", reason);
  }
  return text;
}

std::string RankTable(const std::vector<Json>& pods, const Json& status, const LoggedMemberships& memberships,
                      kube::WallTime now) {
  if (pods.empty()) return {};
  const std::string attempt = std::to_string(Integer(status, "attempt"));
  const std::string step = std::to_string(Integer(Child(status, "progress"), "step"));
  const int64_t generation = Integer(status, "generation");
  std::vector<std::vector<std::string>> rows = {
      {"  RANK", "POD", "NODE", "AGE", "STEP", "TRANSPORT", "STATE"}};
  for (const Json& pod : pods) {
    const Json& metadata = Child(pod, "metadata");
    const std::string pod_attempt = Label(pod, wiring::kAttemptLabel);
    const std::string suffix = pod_attempt == attempt ? "" : fmt::format(" (attempt {})", pod_attempt);
    const std::string_view node = Text(Child(pod, "spec"), "nodeName");
    const auto membership = memberships.find(std::string(Text(metadata, "name")));
    // The log may be a few seconds ahead of the status.
    const bool current = membership != memberships.end() && membership->second.generation >= generation;
    rows.push_back({"  " + Label(pod, wiring::kRankLabel), std::string(Text(metadata, "name")),
                    node.empty() ? "-" : std::string(node), AgeOf(Text(metadata, "creationTimestamp"), now),
                    current ? step : "-", current ? membership->second.transport : "-",
                    PodState(pod) + suffix});
  }
  return "\n" + Columns(rows);
}

}  // namespace

const Json& ConditionOf(const Json& job, std::string_view type) {
  static const Json kNone;
  for (const Json& condition : Items(Child(job, "status"), "conditions"))
    if (Text(condition, "type") == type) return condition;
  return kNone;
}

std::string ExplainPhase(const Json& job) {
  // The first match explains the phase: final conditions first, then problems in the order in which a
  // starting job meets them.
  struct Explanation {
    const char* type;
    const char* status;
  };
  static constexpr std::array<Explanation, 9> kExplanations = {{{"Failed", "True"},
                                                                {"Succeeded", "True"},
                                                                {"Suspended", "True"},
                                                                {"Admitted", "False"},
                                                                {"Scheduled", "False"},
                                                                {"Ready", "False"},
                                                                {"FabricReady", "False"},
                                                                {"Progressing", "False"},
                                                                {"Degraded", "True"}}};
  for (const auto& [type, status] : kExplanations) {
    const Json& condition = ConditionOf(job, type);
    if (Text(condition, "status") != status) continue;
    const std::string_view message = Text(condition, "message");
    return fmt::format("{}{}{}", Text(condition, "reason"), message.empty() ? "" : ": ", message);
  }
  const Json& progressing = ConditionOf(job, "Progressing");
  if (progressing.is_null())
    return "the operator has not seen the job yet; `kubectl ringmaster diagnose` shows why";
  if (Text(progressing, "reason") == "NotReported")
    return "every worker runs; this framework does not report its steps";
  return std::string(Text(progressing, "message").empty() ? Text(progressing, "reason")
                                                          : Text(progressing, "message"));
}

std::string AgeOf(std::string_view time, kube::WallTime now) {
  const auto then = kube::ParseWallTime(time);
  if (time.empty() || !then.ok()) return {};
  const int64_t age = std::chrono::duration_cast<std::chrono::seconds>(now - *then).count();
  return api::ShortDuration(std::max<int64_t>(age, 0));
}

std::string PodState(const Json& pod) {
  const Json& status = Child(pod, "status");
  const std::string phase(Text(status, "phase"));
  const bool deleting = !Text(Child(pod, "metadata"), "deletionTimestamp").empty();
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : Items(status, list)) {
      const Json& state = Child(container, "state");
      if (const Json& ended = Child(state, "terminated");
          ended.is_object() && (Integer(ended, "exitCode") != 0 || phase == "Failed")) {
        std::string text = fmt::format("ended with exit code {}", Integer(ended, "exitCode"));
        if (const auto reason = Text(ended, "reason"); !reason.empty() && reason != "Error")
          text += fmt::format(" ({})", reason);
        return text;
      }
      if (const Json& waiting = Child(state, "waiting"); waiting.is_object()) {
        const std::string_view message = Text(waiting, "message");
        return fmt::format("{}{}{}", Text(waiting, "reason"), message.empty() ? "" : ": ", message);
      }
    }
  }
  if (deleting) return "being deleted";
  if (!Items(Child(pod, "spec"), "schedulingGates").empty()) return "held back until all workers fit";
  if (phase == "Pending") {
    for (const Json& condition : Items(status, "conditions"))
      if (Text(condition, "type") == "PodScheduled" && Text(condition, "status") == "False")
        return fmt::format("Pending: {}", Text(condition, "message"));
  }
  const std::string_view reason = Text(status, "reason");
  return reason.empty() ? phase : fmt::format("{}: {}", phase, reason);
}

std::string LastFailureText(const Json& job, std::optional<kube::WallTime> now) {
  const Json& failure = Child(Child(job, "status"), "lastFailure");
  if (!failure.is_object()) return {};
  std::string text(Text(failure, "pod"));
  if (const auto node = Text(failure, "node"); !node.empty()) text += fmt::format(" on {}", node);
  if (const std::string age = now ? AgeOf(Text(failure, "time"), *now) : ""; !age.empty())
    text += fmt::format(", {} ago", age);
  const int64_t code = Integer(failure, "exitCode");
  const std::string_view reason = Text(failure, "reason");
  if (code != 0 && !reason.empty())
    text += fmt::format(": exit code {} ({})", code, reason);
  else if (code != 0)
    text += fmt::format(": exit code {}", code);
  else if (!reason.empty())
    text += fmt::format(": {}", reason);
  if (const auto message = Text(failure, "message"); !message.empty()) text += fmt::format(": {}", message);
  return text;
}

std::string Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

LiveScreen WatchScreen(const Json& job, const std::vector<Json>& pods, std::vector<double> losses,
                       const std::map<std::string, WorkerBusy>& busy) {
  using State = LiveScreen::Worker::State;
  const Json& status = Child(job, "status");
  const Json& progress = Child(status, "progress");
  const std::string_view phase = Text(status, "phase");
  LiveScreen screen;
  screen.title = fmt::format("{}/{}  {}", Text(Child(job, "metadata"), "namespace"),
                             Text(Child(job, "metadata"), "name"), phase.empty() ? "New" : phase);
  screen.step = Integer(progress, "step");
  screen.total_steps = Integer(progress, "totalSteps");
  if (const auto speed = Text(progress, "samplesPerSecond"); !speed.empty())
    screen.numbers = Short(speed) + " samples/s";
  if (const auto eta = Text(progress, "eta"); !eta.empty())
    screen.numbers += fmt::format("{}ETA {}", screen.numbers.empty() ? "" : "  ", eta);
  screen.loss = Short(Text(progress, "loss"));
  screen.losses = std::move(losses);
  screen.workers_wanted = static_cast<int>(Integer(Child(Child(job, "spec"), "workers"), "replicas"));
  if (phase != "Running") screen.note = ExplainPhase(job);
  const std::string attempt = std::to_string(Integer(status, "attempt"));
  for (const Json& pod : pods) {
    if (Label(pod, wiring::kAttemptLabel) != attempt) continue;
    LiveScreen::Worker worker;
    worker.name = Text(Child(pod, "metadata"), "name");
    worker.text = PodState(pod);
    if (const auto node = Text(Child(pod, "spec"), "nodeName"); !node.empty())
      worker.text += fmt::format(" on {}", node);
    const bool good = worker.text.starts_with("Running") || worker.text.starts_with("Succeeded");
    const bool failed = worker.text.starts_with("ended") || worker.text.starts_with("Failed");
    worker.state = good ? State::kMember : failed ? State::kFailed : State::kStarting;
    if (const auto known = busy.find(worker.name); known != busy.end() && worker.text.starts_with("Running"))
      LiveScreen::ShowBusy(known->second.seconds, known->second.straggler, &worker);
    screen.workers_alive += good;
    screen.workers.push_back(std::move(worker));
  }
  return screen;
}

std::string StatusScreen(const Json& job, const std::vector<Json>& pods, const LoggedMemberships& memberships,
                         kube::WallTime now) {
  const Json& metadata = Child(job, "metadata");
  const Json& spec = Child(job, "spec");
  const Json& status = Child(job, "status");
  const std::string_view phase = Text(status, "phase");
  std::string screen = fmt::format("{}/{}  {}", Text(metadata, "namespace"), Text(metadata, "name"),
                                   phase.empty() ? "New" : phase);
  if (const auto ready = Text(status, "ready"); !ready.empty())
    screen += fmt::format("  {} workers ready", ready);
  if (const int64_t attempt = Integer(status, "attempt"); attempt > 0)
    screen += fmt::format("  attempt {}", attempt);
  screen += fmt::format("  age {}\n", AgeOf(Text(metadata, "creationTimestamp"), now));
  Line(screen, "why", ExplainPhase(job));
  Line(screen, "progress", ProgressText(Child(status, "progress")));
  Line(screen, "fabric", std::string(Text(status, "fabric")));
  Line(screen, "devices", std::string(Text(status, "devices")));
  const Json& topology = Child(status, "topology");
  if (const auto key = Text(topology, "key"); !key.empty()) {
    const int64_t domains = Integer(topology, "domains");
    Line(screen, "topology",
         fmt::format("{} {} of {} ({})", domains, domains == 1 ? "domain" : "domains", key,
                     Text(topology, "pods")));
  }
  const Json& checkpoint = Child(status, "checkpoint");
  if (const auto path = Text(checkpoint, "path"); !path.empty())
    Line(screen, "checkpoint", fmt::format("of step {}, in {}", Integer(checkpoint, "step"), path));
  Line(screen, "goodput", GoodputText(Child(status, "goodput")));
  Line(screen, "restarts", RestartsText(status, spec));
  Line(screen, "last failure", LastFailureText(job, now));
  Line(screen, "excluded", ExcludedText(status, now));
  Line(screen, "weights", std::string(Text(status, "weightsHash")));
  return screen + RankTable(pods, status, memberships, now);
}

}  // namespace ringmaster::cli
