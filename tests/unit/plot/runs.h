// SPDX-License-Identifier: Apache-2.0

// Recorded runs for the tests of charts. Pure functions.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cli/history/recorded_run.h"

namespace ringmaster::cli {

inline RecordedRun RunOf(const std::string& name, int64_t steps) {
  RecordedRun run;
  run.name = name;
  for (int64_t step = 1; step <= steps; ++step) {
    rendezvous::StepRecord record;
    record.step = step;
    record.loss = 5.0 / std::sqrt(static_cast<double>(step));
    run.steps.push_back(record);
  }
  return run;
}

// Four workers, of which one is killed and comes back.
inline RecordedRun DisturbedRun(const std::string& name, int64_t steps) {
  RecordedRun run = RunOf(name, steps);
  const auto add = [&](double seconds, const std::string& reason, const std::string& pod = {}) -> RunEvent& {
    RunEvent& event = run.events.emplace_back();
    event.monotonic_seconds = seconds;
    event.reason = reason;
    event.pod = pod;
    return event;
  };
  add(0, "Started");
  add(1, "GenerationFormed").workers = {"w-0", "w-1", "w-2", "w-3"};
  add(10, "Chaos", "w-2");
  add(10.01, "WorkerFailed", "w-2");
  RunEvent& without = add(10.02, "GenerationFormed");
  without.workers = {"w-0", "w-1", "w-3"};
  without.recovery_seconds = 0.01;
  add(12, "GenerationFormed").workers = {"w-0", "w-1", "w-2", "w-3"};
  add(15, "CheckpointPublished").step = 50;
  RunEvent& validated = add(16, "Validated");
  validated.step = steps;
  validated.loss = run.steps.empty() ? 1 : run.steps.back().loss;
  add(20, "Succeeded");
  run.timeline = TimelineOf(run.events);
  return run;
}

}  // namespace ringmaster::cli
