// SPDX-License-Identifier: Apache-2.0

#include "cli/history/run_event.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/history/worker_names.h"

namespace ringmaster::cli {
namespace {

std::optional<double> NumberIn(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
}

}  // namespace

RunEvent EventOf(const rendezvous::EventLine& line) {
  RunEvent event;
  event.warning = rendezvous::IsWarning(line.kind);
  event.reason = rendezvous::ReasonOf(line.kind);
  event.message = line.text;
  event.pod = line.pod;
  event.evidence = line.evidence;
  event.generation = line.generation;
  event.step = line.start_step;
  event.workers = line.workers;
  if (line.recovery) event.recovery_seconds = ToSeconds(*line.recovery);
  return event;
}

std::string EventLineText(const RunEvent& event) {
  std::string line =
      fmt::format(R"({{"time":"{}","monotonicSeconds":{:.3f},{}"reason":"{}","message":{})", event.time,
                  event.monotonic_seconds, event.warning ? R"("type":"Warning",)" : "", event.reason,
                  DumpJson(Json(event.message)));
  if (!event.pod.empty()) line += fmt::format(R"(,"pod":{})", DumpJson(Json(event.pod)));
  if (!event.signal.empty()) line += fmt::format(R"(,"signal":{})", DumpJson(Json(event.signal)));
  if (!event.evidence.empty()) line += fmt::format(R"(,"evidence":{})", DumpJson(Json(event.evidence)));
  if (event.generation != 0) line += fmt::format(R"(,"generation":{})", event.generation);
  if (event.step >= 0) line += fmt::format(R"(,"step":{})", event.step);
  if (event.total_steps > 0) line += fmt::format(R"(,"totalSteps":{})", event.total_steps);
  if (!event.workers.empty())
    line += fmt::format(R"(,"workers":{})", DumpJson(Json(ShortNames(event.workers))));
  if (event.recovery_seconds) line += fmt::format(R"(,"recoverySeconds":{:.6f})", *event.recovery_seconds);
  if (event.loss) line += fmt::format(R"(,"loss":{})", Json(*event.loss).dump());
  if (event.accuracy) line += fmt::format(R"(,"accuracy":{})", Json(*event.accuracy).dump());
  return line + "}";
}

Result<RunEvent> ParseEventLine(std::string_view line) {
  RM_ASSIGN(const Json object, ParseJson(line));
  RunEvent event;
  RM_ASSIGN(event.time, JsonString(object, "time"));
  RM_ASSIGN(event.monotonic_seconds, JsonDouble(object, "monotonicSeconds"));
  event.warning = json::Text(object, "type") == "Warning";
  RM_ASSIGN(event.reason, JsonString(object, "reason"));
  RM_ASSIGN(event.message, JsonString(object, "message"));
  event.pod = json::Text(object, "pod");
  event.signal = json::Text(object, "signal");
  event.evidence = json::Text(object, "evidence");
  if (const auto generation = JsonUint(object, "generation"); generation.ok()) event.generation = *generation;
  event.step = json::Integer(object, "step", -1);
  event.total_steps = json::Integer(object, "totalSteps");
  for (const Json& worker : json::Items(object, "workers"))
    if (worker.is_string()) event.workers.push_back(worker.get<std::string>());
  event.workers = LongNames(event.workers);
  event.recovery_seconds = NumberIn(object, "recoverySeconds");
  event.loss = NumberIn(object, "loss");
  event.accuracy = NumberIn(object, "accuracy");
  return event;
}

Result<std::vector<RunEvent>> ReadEvents(const std::string& path) {
  RM_ASSIGN(const std::string text, ReadFile(path));
  std::vector<RunEvent> events;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto event = ParseEventLine(std::string_view(text).substr(begin, end - begin));
    if (event.ok()) events.push_back(std::move(*event));
  }
  return events;
}

}  // namespace ringmaster::cli
