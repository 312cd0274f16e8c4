// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/queue_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/cluster/status_screen.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Flag;
using json::Integer;
using json::Items;
using json::Text;

std::string ClassOf(const Json& job) {
  const Json& spec = Child(job, "spec");
  const std::string_view own = Text(Child(spec, "scheduling"), "priorityClassName");
  if (!own.empty()) return std::string(own);
  return std::string(Text(Child(Child(Child(spec, "workers"), "template"), "spec"), "priorityClassName"));
}

int64_t PriorityOf(const std::string& name, const std::vector<Json>& classes) {
  std::optional<int64_t> lowest_default;
  for (const Json& known : classes) {
    const int64_t value = Integer(known, "value");
    if (!name.empty() && Text(Child(known, "metadata"), "name") == name) return value;
    if (name.empty() && Flag(known, "globalDefault"))
      lowest_default = std::min(lowest_default.value_or(value), value);
  }
  return lowest_default.value_or(0);
}

int64_t PodsOf(const Json& job) {
  const Json& spec = Child(job, "spec");
  int64_t pods = Integer(Child(spec, "workers"), "replicas", 1);
  for (const Json& role : Items(spec, "roles"))
    if (Text(role, "name") != "master") pods += Integer(role, "replicas", 1);
  return pods;
}

bool Waits(const Json& job) {
  if (Text(ConditionOf(job, "Succeeded"), "status") == "True" ||
      Text(ConditionOf(job, "Failed"), "status") == "True" || Flag(Child(job, "spec"), "suspend"))
    return false;
  return Text(ConditionOf(job, "Scheduled"), "status") != "True";
}

bool WaitsAtGate(const Json& job) {
  const std::string_view reason = Text(ConditionOf(job, "Scheduled"), "reason");
  return reason == "WaitingForCapacity" || reason == "Preempting";
}

struct Waiting {
  const Json* job = nullptr;
  int64_t priority = 0;
  bool grows = false;  // it runs already
  bool stuck = false;  // it holds pods and does not run
  std::string key;

  std::string_view Space() const { return Text(Child(*job, "metadata"), "namespace"); }
  auto Turn() const {
    return std::tuple(!WaitsAtGate(*job), grows, !stuck, -priority,
                      Text(Child(*job, "metadata"), "creationTimestamp"), key);
  }
};

// Jobs of one priority are ordered by their age and by what their namespaces use: between namespaces any
// order is possible, within one the older job comes first. Shares do not count for a gang that is stuck.
bool SharesMayDecide(const Waiting& one, const Waiting& other) {
  return WaitsAtGate(*one.job) && WaitsAtGate(*other.job) && !one.stuck && !other.stuck &&
         one.grows == other.grows && one.priority == other.priority;
}

// Sets the positions of the jobs at the gate, which are the first ones. REQUIRES: `line` is sorted.
void SetPositions(const std::vector<Waiting>& line, std::vector<QueueRow>& rows) {
  for (size_t from = 0, to = 0; from < line.size() && WaitsAtGate(*line[from].job); from = to) {
    std::map<std::string_view, int> sizes;  // of this part of the line, by namespace
    for (to = from; to < line.size() && (to == from || SharesMayDecide(line[from], line[to])); ++to)
      ++sizes[line[to].Space()];
    std::map<std::string_view, int> before;
    for (size_t i = from; i < to; ++i) {
      const std::string_view space = line[i].Space();
      const int of_its_own = before[space]++;
      rows[i].position = static_cast<int>(from) + of_its_own + 1;
      rows[i].last = static_cast<int>(to) - (sizes[space] - of_its_own - 1);
    }
  }
}

std::string PositionText(const QueueRow& row) {
  if (row.position == 0) return "-";
  return row.last > row.position ? fmt::format("{}-{}", row.position, row.last)
                                 : std::to_string(row.position);
}

}  // namespace

std::vector<QueueRow> QueueOf(const std::vector<Json>& jobs,
                              const std::optional<std::vector<Json>>& classes) {
  std::vector<Waiting> line;
  for (const Json& job : jobs) {
    if (!Waits(job)) continue;
    const Json& status = Child(job, "status");
    Waiting& waiting = line.emplace_back();
    waiting.job = &job;
    waiting.key =
        fmt::format("{}/{}", Text(Child(job, "metadata"), "namespace"), Text(Child(job, "metadata"), "name"));
    if (classes) waiting.priority = PriorityOf(ClassOf(job), *classes);
    waiting.grows = Text(ConditionOf(job, "Ready"), "status") == "True" || Text(status, "phase") == "Running";
    waiting.stuck = !waiting.grows && Integer(status, "replicas") > 0;
  }
  std::sort(line.begin(), line.end(),
            [](const Waiting& one, const Waiting& other) { return one.Turn() < other.Turn(); });
  std::vector<QueueRow> rows;
  for (const Waiting& waiting : line) {
    const Json& job = *waiting.job;
    const std::string name = ClassOf(job);
    QueueRow& row = rows.emplace_back();
    row.namespace_ = Text(Child(job, "metadata"), "namespace");
    row.name = Text(Child(job, "metadata"), "name");
    row.priority = !classes       ? (name.empty() ? "-" : name)
                   : name.empty() ? std::to_string(waiting.priority)
                                  : fmt::format("{} ({})", waiting.priority, name);
    row.pods = PodsOf(job);
    row.since = Text(ConditionOf(job, "Scheduled"), "lastTransitionTime");
    if (row.since.empty()) row.since = Text(Child(job, "metadata"), "creationTimestamp");
    row.why = ExplainPhase(job);
    const Json& preempted = ConditionOf(job, "Preempted");
    if (Text(preempted, "status") == "True")
      row.why += fmt::format(" (preempted: {})", Text(preempted, "message"));
  }
  SetPositions(line, rows);
  return rows;
}

bool SharesDecide(const std::vector<QueueRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const QueueRow& row) { return row.last > row.position; });
}

std::string QueueScreen(const std::vector<QueueRow>& rows, const std::string& space, kube::WallTime now) {
  std::vector<std::vector<std::string>> table = {{"POSITION", "JOB", "PRIORITY", "PODS", "WAITS", "WHY"}};
  for (const QueueRow& row : rows) {
    if (!space.empty() && row.namespace_ != space) continue;
    table.push_back({PositionText(row), fmt::format("{}/{}", row.namespace_, row.name), row.priority,
                     std::to_string(row.pods), AgeOf(row.since, now), row.why});
  }
  if (table.size() == 1)
    return space.empty() ? "no job waits\n" : fmt::format("no job waits in namespace {}\n", space);
  return Columns(table);
}

}  // namespace ringmaster::cli
