// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/decode_pod.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "operator/wiring/pod_shape.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {
namespace {

constexpr int32_t kKilled = 137;
constexpr const char* kOutOfMemory = "OOMKilled";
constexpr size_t kMaxMessageBytes = 4096;

template <class N>
std::optional<N> ReadNumber(std::string_view text) {
  N value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

std::optional<Time> ReadTime(std::string_view text, const WallClock& clock) {
  if (text.empty()) return std::nullopt;
  const auto time = ParseWallTime(text);
  return time.ok() ? std::optional(clock.ToSteady(*time)) : std::nullopt;
}

std::string Truncate(std::string_view text) { return std::string(text.substr(0, kMaxMessageBytes)); }

// Returns the name of the container that trains: the one that the pod was created with (wiring/template.cc),
// since webhooks may have added others before it. Pods of older versions do not name it: `worker`, else the
// first one. The order of the statuses does not show it, since they are sorted by name.
std::string_view WorkerName(const Json& metadata, const Json& spec) {
  constexpr std::string_view kWorker = "worker";
  const Json& containers = json::Items(spec, "containers");
  const std::string_view recorded =
      json::Text(json::Child(metadata, "annotations"), wiring::kWorkerAnnotation);
  for (const Json& container : containers)
    if (!recorded.empty() && json::Text(container, "name") == recorded) return recorded;
  for (const Json& container : containers)
    if (json::Text(container, "name") == kWorker) return kWorker;
  return containers.empty() ? kWorker : json::Text(containers[0], "name");
}

const Json& WorkerStatus(const Json& metadata, const Json& spec, const Json& status) {
  static const Json kNone;
  const std::string_view name = WorkerName(metadata, spec);
  for (const Json& container : json::Items(status, "containerStatuses"))
    if (json::Text(container, "name") == name) return container;
  return kNone;
}

// Null: it has not ended.
const Json& EndOf(const Json& container) {
  return json::Child(json::Child(container, "state"), "terminated");
}

bool IsFailure(const Json& end) {
  return json::Integer(end, "exitCode") != 0 || json::Text(end, "reason") == kOutOfMemory;
}

// Returns the end that decides about the pod: the worker's, or that of the first container that failed and
// kept the worker from starting. Null: there is none.
const Json& DecidingEnd(const Json& status, const Json& worker) {
  static const Json kNone;
  if (EndOf(worker).is_object()) return EndOf(worker);
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& container : json::Items(status, list))
      if (EndOf(container).is_object() && IsFailure(EndOf(container))) return EndOf(container);
  return kNone;
}

// Whether the runtime lost the container: it was not there any more after the node or the runtime had started
// again. containerd reports exit code 255 and the reason Unknown, the kubelet the other reason.
bool LostByRuntime(const Json& end) {
  const std::string_view reason = json::Text(end, "reason");
  constexpr int64_t kUnknownExitCode = 255;
  return reason == "ContainerStatusUnknown" ||
         (reason == "Unknown" && json::Integer(end, "exitCode") == kUnknownExitCode);
}

// The worker decides about its pod, whatever happens to the containers next to it: with another container the
// pod itself runs on after its worker has ended, or fails although its worker succeeded. A reason of the pod
// itself, such as Evicted, outweighs an exit code 0.
void ReadPhase(const Json& status, const Json& worker, core::Pod& pod) {
  const std::string_view phase = json::Text(status, "phase");
  pod.phase = phase == "Running" || phase == "Unknown" ? core::PodPhase::kRunning
              : phase == "Succeeded"                   ? core::PodPhase::kSucceeded
              : phase == "Failed"                      ? core::PodPhase::kFailed
                                                       : core::PodPhase::kPending;
  const Json& end = EndOf(worker);
  if (!end.is_object()) return;
  pod.lingers = pod.alive();
  if (pod.phase == core::PodPhase::kFailed && !json::Text(status, "reason").empty()) return;
  pod.phase = IsFailure(end) ? core::PodPhase::kFailed : core::PodPhase::kSucceeded;
}

const Json& Condition(const Json& status, std::string_view type) {
  static const Json kNone;
  for (const Json& condition : json::Items(status, "conditions"))
    if (json::Text(condition, "type") == type) return condition;
  return kNone;
}

// A container that is still starting counts only if no container has a worse reason to wait.
void ReadWaiting(const Json& spec, const Json& status, core::Pod& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : json::Items(status, list)) {
      const Json& waiting = json::Child(json::Child(container, "state"), "waiting");
      const std::string_view reason = json::Text(waiting, "reason");
      if (reason.empty()) continue;
      const bool starting = reason == "ContainerCreating" || reason == "PodInitializing";
      if (starting && !pod.waiting_reason.empty()) continue;
      pod.waiting_reason = reason;
      pod.waiting_message = Truncate(json::Text(waiting, "message"));
      if (!starting) return;
    }
  }
  const Json& scheduled = Condition(status, "PodScheduled");
  if (pod.node.empty() && scheduled.is_null()) pod.awaits_scheduler = json::Text(spec, "schedulerName");
  if (pod.node.empty() && pod.waiting_reason.empty() && json::Text(scheduled, "status") == "False") {
    pod.waiting_reason = json::Text(scheduled, "reason");
    pod.waiting_message = Truncate(json::Text(scheduled, "message"));
  }
}

// Whether the last line of the termination message is the note of an agent whose job is finished.
bool HasFinishedNote(std::string_view message) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  if (!message.ends_with(rendezvous::kFinishedNote)) return false;
  message.remove_suffix(rendezvous::kFinishedNote.size());
  return message.empty() || message.ends_with('\n');
}

void ReadEnd(const Json& status, const Json& worker, const WallClock& clock, Time now, core::Pod& pod) {
  const Json& end = DecidingEnd(status, worker);
  pod.exit_code =
      static_cast<int32_t>(std::clamp<int64_t>(json::Integer(end, "exitCode"), INT32_MIN, INT32_MAX));
  pod.ended_reason = json::Text(end, "reason");
  pod.message = Truncate(json::Text(end, "message"));
  pod.lost = pod.phase == core::PodPhase::kFailed && LostByRuntime(end);
  pod.finished = pod.phase == core::PodPhase::kSucceeded && HasFinishedNote(json::Text(end, "message"));
  // The pod's reason is more precise than a container's "Error": Evicted, NodeLost, Terminated.
  if (const std::string_view reason = json::Text(status, "reason"); !reason.empty())
    pod.ended_reason = reason;
  if (pod.message.empty()) pod.message = Truncate(json::Text(status, "message"));
  if (pod.phase == core::PodPhase::kFailed && pod.exit_code == 0) pod.exit_code = kKilled;
  pod.ended = std::min(ReadTime(json::Text(end, "finishedAt"), clock).value_or(now), now);
}

// Whether a pod that ended had ended before its deletion was requested. The watch shows the order. Otherwise
// the times do, which have whole seconds: a program that ends within the second of its SIGTERM was
// interrupted.
bool EndedFirst(const PodRecord::Own* before, const Json& end, Time requested, const WallClock& clock) {
  if (before != nullptr && before->pod.deleting()) return before->pod.collected;
  if (before != nullptr && before->pod.ended) return true;
  const auto ended = ReadTime(json::Text(end, "finishedAt"), clock);
  return ended && *ended < requested;
}

struct Place {
  int64_t attempt = 0;
  int32_t rank = 0;
};
// Parses `<job>-<attempt>-<rank>` or `<job>-<attempt>-<role>-<index>`; nullopt for another name, also for one
// with leading zeros: the name of a pod is derived from the numbers.
std::optional<Place> PlaceOf(std::string_view pod, std::string_view job) {
  const std::string_view whole = pod;
  if (!pod.starts_with(job) || pod.size() <= job.size() || pod[job.size()] != '-') return std::nullopt;
  pod.remove_prefix(job.size() + 1);
  const size_t dash = pod.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto attempt = ReadNumber<int64_t>(pod.substr(0, dash));
  std::string_view number = pod.substr(dash + 1);
  std::string role;
  if (const size_t inner = number.rfind('-'); inner != std::string_view::npos) {
    role = number.substr(0, inner);
    number.remove_prefix(inner + 1);
  }
  auto rank = ReadNumber<int32_t>(number);
  if (rank && (*rank < 0 || *rank >= core::kRanksPerRole || !core::IsRole(role))) return std::nullopt;
  if (rank) rank = core::RankInRole(role, *rank);
  if (!attempt || !rank || core::PodName(std::string(job), *attempt, *rank) != whole) return std::nullopt;
  return Place{*attempt, *rank};
}

// Returns <job> of the name <job>-<attempt>-<rank> or <job>-<attempt>-<role>-<index>; empty for another name.
std::string_view JobOf(std::string_view pod) {
  const size_t rank = pod.rfind('-');
  if (rank == std::string_view::npos || rank == 0) return {};
  size_t attempt = pod.rfind('-', rank - 1);
  const bool of_role = attempt != std::string_view::npos && attempt > 0 &&
                       core::IsRole(std::string(pod.substr(attempt + 1, rank - attempt - 1)));
  if (of_role) attempt = pod.rfind('-', attempt - 1);
  return attempt == std::string_view::npos ? std::string_view() : pod.substr(0, attempt);
}

std::unique_ptr<const PodRecord::Own> DecodeOwn(const Json& object, const Meta& meta,
                                                const PodRecord::Own* before, Interners& interners,
                                                const WallClock& clock, Time now) {
  // Job, attempt and rank come from owner and name. Labels can be edited, so only live reads select by one.
  const Json& metadata = json::Child(object, "metadata");
  const Json& owner = ControllerOf(object);
  bool tracked = false;
  for (const Json& finalizer : json::Items(metadata, "finalizers"))
    tracked = tracked || finalizer == kTrackingFinalizer;
  std::string_view job;
  if (json::Text(owner, "kind") == "TrainingJob" &&
      json::Text(owner, "apiVersion").starts_with("ringmaster.dev/"))
    job = json::Text(owner, "name");
  else if (owner.is_null() && tracked)
    job = JobOf(meta.name);  // its owner reference was removed
  const auto place = PlaceOf(meta.name, job);
  if (job.empty() || !place) return nullptr;

  auto own = std::make_unique<PodRecord::Own>();
  own->labelled = json::Text(json::Child(metadata, "labels"), wiring::kJobLabel) == job;
  own->owner = interners.owners.Intern(
      {meta.namespace_ + "/" + std::string(job), std::string(json::Text(owner, "uid"))});

  const Json& spec = json::Child(object, "spec");
  const Json& status = json::Child(object, "status");
  core::Pod pod;
  pod.name = meta.name;
  pod.uid = meta.uid;
  pod.attempt = place->attempt;
  pod.rank = place->rank;
  pod.node = json::Text(spec, "nodeName");
  for (const Json& gate : json::Items(spec, "schedulingGates"))
    pod.gated = pod.gated || json::Text(gate, "name") == wiring::kGangGate;
  if (pod.node.empty()) own->shape = interners.shapes.Intern(wiring::ShapeOf(object));
  if (auto claims = wiring::ClaimsOf(spec); !claims.empty())
    own->claims = std::make_unique<const std::vector<std::string>>(std::move(claims));

  const auto past = [&](std::string_view text) {
    const auto time = ReadTime(text, clock);
    return time ? std::optional(std::min(*time, now)) : std::nullopt;
  };
  pod.created = past(json::Text(metadata, "creationTimestamp")).value_or(now);
  const Json& scheduled = Condition(status, "PodScheduled");
  if (!pod.node.empty()) {
    pod.placed = json::Text(scheduled, "status") == "True"
                     ? past(json::Text(scheduled, "lastTransitionTime")).value_or(pod.created)
                     : pod.created;
  }
  const Json& worker = WorkerStatus(metadata, spec, status);
  ReadPhase(status, worker, pod);
  const Json& state = json::Child(worker, "state");
  pod.started = past(json::Text(json::Child(state, "running"), "startedAt")).value_or(pod.created);
  if (!pod.alive()) {
    pod.started = past(json::Text(json::Child(state, "terminated"), "startedAt")).value_or(pod.started);
    ReadEnd(status, worker, clock, now, pod);
    if (before != nullptr && before->pod.ended &&
        json::Text(json::Child(state, "terminated"), "finishedAt").empty())
      pod.ended = before->pod.ended;
  } else {
    ReadWaiting(spec, status, pod);
  }
  std::vector<std::string> conditions;
  for (const Json& condition : json::Items(status, "conditions"))
    if (json::Text(condition, "status") == "True") conditions.emplace_back(json::Text(condition, "type"));
  own->conditions = interners.conditions.Intern(std::move(conditions));
  if (const core::PodDetails& details = pod; details != core::PodDetails{})
    own->details = std::make_unique<const core::PodDetails>(details);

  if (const std::string_view written = json::Text(metadata, "deletionTimestamp"); !written.empty()) {
    own->deletion_timestamp = std::make_unique<const std::string>(written);
    const Duration grace =
        seconds(std::clamp<int64_t>(json::Integer(metadata, "deletionGracePeriodSeconds"), 0,
                                    std::chrono::seconds(std::chrono::hours(24)).count()));
    const Time at = ReadTime(written, clock).value_or(now);
    const bool known =
        before != nullptr && before->deletion_timestamp && *before->deletion_timestamp == written;
    pod.delete_by = known ? before->pod.delete_by : std::min(at, now + grace);
    pod.collected = !pod.alive() && EndedFirst(before, EndOf(worker), at - grace, clock);
  }
  pod.tracked = tracked;
  own->pod = {std::move(pod.uid), pod.attempt, pod.rank,    pod.exit_code, pod.phase,    pod.gated,
              pod.lingers,        pod.lost,    pod.tracked, pod.collected, pod.finished, pod.created,
              pod.placed,         pod.started, pod.ended,   pod.delete_by};
  if (!pod.node.empty()) own->node = interners.nodes.Intern(std::move(pod.node));
  return own;
}

}  // namespace

core::Pod PodRecord::Own::ToCore() const {
  core::Pod whole;
  if (details) static_cast<core::PodDetails&>(whole) = *details;
  // The owner is NAMESPACE/JOB.
  whole.name = core::PodName(owner->job.substr(owner->job.find('/') + 1), pod.attempt, pod.rank);
  whole.uid = pod.uid;
  whole.attempt = pod.attempt;
  whole.rank = pod.rank;
  whole.phase = pod.phase;
  whole.gated = pod.gated;
  whole.lingers = pod.lingers;
  whole.lost = pod.lost;
  whole.tracked = pod.tracked;
  whole.collected = pod.collected;
  whole.finished = pod.finished;
  whole.exit_code = pod.exit_code;
  if (node) whole.node = *node;
  whole.created = pod.created;
  whole.placed = pod.placed;
  whole.started = pod.started;
  whole.ended = pod.ended;
  whole.delete_by = pod.delete_by;
  whole.conditions = *conditions;
  return whole;
}

const std::string& PodRecord::node() const {
  static const std::string kNone;
  if (!own) return foreign->node;
  return own->node ? *own->node : kNone;
}

std::shared_ptr<const PodRecord> DecodePod(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const PodRecord>& before,
                                           Interners& interners, const WallClock& clock, Time now) {
  auto record = std::make_shared<PodRecord>();
  const Json& spec = json::Child(object, "spec");
  const std::string_view node = json::Text(spec, "nodeName");
  const std::string_view phase = json::Text(json::Child(object, "status"), "phase");
  record->ended = phase == "Succeeded" || phase == "Failed";
  const bool same = before && before->uid() == meta.uid && before->own;
  record->own = DecodeOwn(object, meta, same ? before->own.get() : nullptr, interners, clock, now);
  if (!record->own) {
    if (node.empty() || record->ended) return nullptr;
    record->foreign =
        std::make_unique<const PodRecord::Foreign>(PodRecord::Foreign{meta.uid, std::string(node)});
  }
  if (!record->ended && !node.empty()) {
    core::Resources requests = wiring::RequestsOf(spec);
    // The devices of another owner's pod are those of its claims.
    if (record->foreign)
      std::erase_if(requests, [](const auto& request) { return core::IsDeviceResource(request.first); });
    record->requests = interners.requests.Intern(std::move(requests));
  }
  return record;
}

}  // namespace ringmaster::kube
