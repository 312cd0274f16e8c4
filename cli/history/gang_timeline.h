// SPDX-License-Identifier: Apache-2.0

// The gang over time, computed from the events of a run: one lane per worker, with the time that it was a
// member, and marks for kills, failures, leaves and recoveries. Pure functions.
//
// Times are seconds since the first event of the newest run in the file. A resumed run starts again at 0, and
// the events of the runs before it are not part of the timeline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/history/run_event.h"

namespace ringmaster::cli {

struct GangTimeline {
  // A worker was a member of this generation.
  struct Span {
    double begin = 0;
    double end = 0;
    uint32_t generation = 0;  // 1 for the first of the run
    bool operator==(const Span&) const = default;
  };
  enum class MarkKind : uint8_t {
    kStruck,   // --chaos killed it
    kStopped,  // --chaos sent SIGSTOP
    kFailed,   // the coordinator noticed its loss
    kHung,     // the same, because it made no progress or was stopped
    kSilent,
    kLeaving,    // by plan
    kJoined,     // became a member after the first generation
    kOperation,  // an operation with its peers failed
    kDevice,     // its GPU reports a fault
    kSlow,       // it is a straggler
  };
  struct Mark {
    double at = 0;
    MarkKind kind = MarkKind::kFailed;
    std::string text;
  };
  struct Lane {
    std::string pod;
    std::vector<Span> spans;
    std::vector<Mark> marks;
  };
  // From the noticed loss of a member to the generation without it.
  struct Recovery {
    double begin = 0;
    double end = 0;
    uint32_t generation = 0;  // that ended it
  };
  struct Checkpoint {
    double at = 0;
    int64_t step = 0;
  };
  struct Generation {
    double at = 0;
    uint32_t number = 0;
    int64_t step = -1;
    size_t workers = 0;
  };

  std::vector<Lane> lanes;  // in the order of their names, numbers by value
  std::vector<Generation> generations;
  std::vector<Recovery> recoveries;
  std::vector<Checkpoint> checkpoints;
  double zero = 0;  // where the times begin, by the clock of the events
  double end = 0;
  bool ended = false;  // the run has ended; otherwise `end` is the time of the last event
};

GangTimeline TimelineOf(const std::vector<RunEvent>& events);

// Returns the name of a kind of mark for people: "joined".
const char* NameOf(GangTimeline::MarkKind kind);

// Returns the median; nullopt without recoveries.
std::optional<double> MedianRecoverySeconds(const GangTimeline& timeline);

}  // namespace ringmaster::cli
