// SPDX-License-Identifier: Apache-2.0

#include "cli/history/gang_timeline.h"

#include <strings.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace ringmaster::cli {
namespace {

using MarkKind = GangTimeline::MarkKind;

bool IsEnd(const RunEvent& event) {
  return event.reason == "Succeeded" || event.reason == "Failed" || event.reason == "Interrupted";
}

std::optional<MarkKind> MarkOf(const RunEvent& event) {
  const std::string& reason = event.reason;
  if (reason == "Chaos") return event.signal == "SIGSTOP" ? MarkKind::kStopped : MarkKind::kStruck;
  if (reason == "WorkerFailed")
    return event.evidence == "hang" || event.evidence == "stopped" ? MarkKind::kHung : MarkKind::kFailed;
  if (reason == "OperationFailed") return MarkKind::kOperation;
  if (reason == "WorkerSilent") return MarkKind::kSilent;
  if (reason == "WorkerLeaving") return MarkKind::kLeaving;
  if (reason == "DeviceFault") return MarkKind::kDevice;
  if (reason == "Straggler") return MarkKind::kSlow;
  return std::nullopt;
}

// gpt-1-2 comes before gpt-1-10.
struct ByVersion {
  bool operator()(const std::string& one, const std::string& other) const {
    return ::strverscmp(one.c_str(), other.c_str()) < 0;
  }
};

}  // namespace

GangTimeline TimelineOf(const std::vector<RunEvent>& events) {
  GangTimeline timeline;
  if (events.empty()) return timeline;
  size_t first = 0;
  for (size_t i = 0; i < events.size(); ++i)
    if (events[i].reason == "Started") first = i;
  const double zero = timeline.zero = events[first].monotonic_seconds;
  std::map<std::string, GangTimeline::Lane, ByVersion> lanes;
  std::set<std::string> members;
  const auto lane = [&](const std::string& pod) -> GangTimeline::Lane& {
    auto& found = lanes[pod];
    found.pod = pod;
    return found;
  };
  const auto leave = [&](const std::string& pod, double at) {
    if (members.erase(pod) > 0) lane(pod).spans.back().end = at;
  };
  for (size_t i = first; i < events.size(); ++i) {
    const RunEvent& event = events[i];
    const double at = std::max(timeline.end, event.monotonic_seconds - zero);
    timeline.end = at;
    if (IsEnd(event)) timeline.ended = true;
    if (const auto kind = MarkOf(event); kind && !event.pod.empty()) {
      lane(event.pod).marks.push_back({at, *kind, event.message});
      if (event.reason == "WorkerFailed") leave(event.pod, at);
    }
    if (event.reason == "WorkerEnded") leave(event.pod, at);
    if (event.reason == "Restarting")
      for (const std::string& pod : std::set(members)) leave(pod, at);
    if (event.reason == "CheckpointPublished") timeline.checkpoints.push_back({at, event.step});
    if (event.reason != "GenerationFormed") continue;
    const auto number = static_cast<uint32_t>(timeline.generations.size() + 1);
    timeline.generations.push_back({at, number, event.step, event.workers.size()});
    if (event.recovery_seconds)
      timeline.recoveries.push_back({std::max(0.0, at - *event.recovery_seconds), at, number});
    for (const std::string& pod : members) lane(pod).spans.back().end = at;
    const std::set<std::string> before = std::exchange(members, {event.workers.begin(), event.workers.end()});
    for (const std::string& pod : members) {
      if (number > 1 && !before.contains(pod))
        lane(pod).marks.push_back({at, MarkKind::kJoined, pod + " joined"});
      lane(pod).spans.push_back({at, at, number});
    }
  }
  for (const std::string& pod : members) lane(pod).spans.back().end = timeline.end;
  for (auto& [pod, found] : lanes) timeline.lanes.push_back(std::move(found));
  return timeline;
}

const char* NameOf(MarkKind kind) {
  switch (kind) {
    case MarkKind::kStruck:
      return "signal from --chaos";
    case MarkKind::kStopped:
      return "SIGSTOP from --chaos";
    case MarkKind::kFailed:
      return "failed";
    case MarkKind::kHung:
      return "hung";
    case MarkKind::kSilent:
      return "silent";
    case MarkKind::kLeaving:
      return "leaves by plan";
    case MarkKind::kJoined:
      return "joined";
    case MarkKind::kOperation:
      return "operation failed";
    case MarkKind::kDevice:
      return "device fault";
    case MarkKind::kSlow:
      return "straggler";
  }
  return "";
}

std::optional<double> MedianRecoverySeconds(const GangTimeline& timeline) {
  if (timeline.recoveries.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const auto& recovery : timeline.recoveries) seconds.push_back(recovery.end - recovery.begin);
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace ringmaster::cli
