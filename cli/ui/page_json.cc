// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/page_json.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace ringmaster::cli {
namespace {

// A microsecond is enough for people, and makes the text shorter.
double Rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

// Returns the word for the page, which chooses the shape by it.
const char* WordOf(GangTimeline::MarkKind kind) {
  switch (kind) {
    case GangTimeline::MarkKind::kStruck:
      return "killed";
    case GangTimeline::MarkKind::kStopped:
      return "stopped";
    case GangTimeline::MarkKind::kFailed:
      return "failed";
    case GangTimeline::MarkKind::kHung:
      return "hung";
    case GangTimeline::MarkKind::kOperation:
      return "operation";
    case GangTimeline::MarkKind::kSilent:
      return "silent";
    case GangTimeline::MarkKind::kLeaving:
      return "leaving";
    case GangTimeline::MarkKind::kJoined:
      return "joined";
    case GangTimeline::MarkKind::kDevice:
      return "device";
    case GangTimeline::MarkKind::kSlow:
      return "slow";
  }
  return "";
}

}  // namespace

Json EventsJson(const std::vector<RunEvent>& events, size_t first, size_t limit) {
  Json items = Json::array();
  for (size_t i = std::max(first, events.size() - std::min(events.size(), limit)); i < events.size(); ++i) {
    const RunEvent& event = events[i];
    items.push_back({{"time", event.time},
                     {"warning", event.warning},
                     {"reason", event.reason},
                     {"message", event.message},
                     {"pod", event.pod}});
  }
  return items;
}

Json TimelineJson(const GangTimeline& timeline, size_t limit) {
  const size_t skipped = timeline.generations.size() - std::min(timeline.generations.size(), limit);
  const double begin = skipped == 0 ? 0 : timeline.generations[skipped].at;
  Json lanes = Json::array();
  for (const GangTimeline::Lane& lane : timeline.lanes) {
    Json spans = Json::array();
    for (const auto& span : lane.spans)
      if (span.generation > skipped)
        spans.push_back({Rounded(span.begin), Rounded(span.end), span.generation});
    Json marks = Json::array();
    for (const auto& mark : lane.marks)
      if (mark.at >= begin) marks.push_back({Rounded(mark.at), WordOf(mark.kind), mark.text});
    lanes.push_back({{"worker", lane.pod}, {"spans", std::move(spans)}, {"marks", std::move(marks)}});
  }
  Json generations = Json::array();
  for (size_t i = skipped; i < timeline.generations.size(); ++i) {
    const auto& generation = timeline.generations[i];
    generations.push_back({Rounded(generation.at), generation.number, generation.step, generation.workers});
  }
  Json recoveries = Json::array();
  for (const auto& recovery : timeline.recoveries)
    if (recovery.generation > skipped)
      recoveries.push_back({Rounded(recovery.begin), Rounded(recovery.end), recovery.generation});
  Json checkpoints = Json::array();
  for (const auto& checkpoint : timeline.checkpoints)
    if (checkpoint.at >= begin) checkpoints.push_back({Rounded(checkpoint.at), checkpoint.step});
  Json result{{"begin", Rounded(begin)},
              {"end", Rounded(timeline.end)},
              {"ended", timeline.ended},
              {"lanes", std::move(lanes)},
              {"generations", std::move(generations)},
              {"recoveries", std::move(recoveries)},
              {"checkpoints", std::move(checkpoints)}};
  if (const auto median = MedianRecoverySeconds(timeline)) result["medianRecovery"] = Rounded(*median);
  return result;
}

Json LastFailureJson(const std::vector<RunEvent>& events) {
  for (size_t i = events.size(); i-- > 0;)
    if (events[i].reason == "WorkerFailed" && !events[i].pod.empty())
      return {{"worker", events[i].pod}, {"message", events[i].message}, {"time", events[i].time}};
  return nullptr;
}

Json ValidationJson(const std::vector<RunEvent>& events) {
  std::map<int64_t, double> losses;  // a step that was repeated has the same bits
  for (const RunEvent& event : events)
    if (event.reason == "Validated" && event.loss) losses[event.step] = *event.loss;
  Json steps = Json::array();
  Json values = Json::array();
  for (const auto& [step, loss] : losses) {
    steps.push_back(step);
    values.push_back(loss);
  }
  return {{"step", std::move(steps)}, {"loss", std::move(values)}};
}

}  // namespace ringmaster::cli
