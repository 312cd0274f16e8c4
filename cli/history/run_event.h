// SPDX-License-Identifier: Apache-2.0

// The format of DIR/events.jsonl: the events of a run, one JSON object per line:
//
//   {"time":"2026-11-23T19:44:33.730Z","monotonicSeconds":29149.518,"reason":"GenerationFormed",
//    "message":"generation 2: 3 workers, from step 10","generation":4294967298,"step":10,
//    "workers":["gpt-text-1-[0,2,1]"],"recoverySeconds":0.009}
//
// Every event has the time, monotonicSeconds, the reason and the message, which is for people. The others are
// present where they apply; "type":"Warning" marks a warning. monotonicSeconds is CLOCK_MONOTONIC, so values
// of different processes on one machine are comparable. Names of workers are in the short form of
// worker_names.h. Versions before this format wrote "type":"Normal" and each name; the reader accepts both.
//
// | reason              | members                                                                          |
// |---------------------|----------------------------------------------------------------------------------|
// | Started             | step (from which it continues), totalSteps: a run begins; the file may have many  |
// | GenerationFormed    | generation, workers (pods by rank), step (unless the loader decides),             |
// |                     | recoverySeconds (since the loss of a member was noticed)                          |
// | WorkerFailed        | pod, evidence (mutex, exit, hang, stopped, ...: why it counts as lost)            |
// | WorkerSilent, WorkerLeaving, OperationFailed, DeviceFault | pod                                       |
// | Straggler, StragglerRecovered | pod                                                                     |
// | Chaos               | pod, signal (SIGKILL or SIGSTOP)                                                  |
// | CheckpointPublished | step                                                                              |
// | Validated           | step, loss, accuracy (classifiers)                                                |
// | Succeeded, Failed, Interrupted | the run has ended                                                      |
//
// Values; the functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/event_line.h"

namespace ringmaster::cli {

struct RunEvent {
  std::string time;  // RFC 3339, UTC, milliseconds
  double monotonic_seconds = 0;
  bool warning = false;
  std::string reason;
  std::string message;

  std::string pod = {};
  std::string signal = {};
  std::string evidence = {};
  uint64_t generation = 0;
  int64_t step = -1;
  int64_t total_steps = 0;
  std::vector<std::string> workers = {};
  std::optional<double> recovery_seconds = {};
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
};

// Returns the event of a coordinator, without its times.
RunEvent EventOf(const rendezvous::EventLine& line);

// Returns one line without a newline.
std::string EventLineText(const RunEvent& event);
Result<RunEvent> ParseEventLine(std::string_view line);

// Reads events.jsonl. A line that is not an event is skipped: the last one may be torn. Errors: kNotFound
// when the file does not exist.
Result<std::vector<RunEvent>> ReadEvents(const std::string& path);

}  // namespace ringmaster::cli
