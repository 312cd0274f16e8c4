// SPDX-License-Identifier: Apache-2.0

// The JSON of the messages to a page (page_feed.h). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/history/gang_timeline.h"
#include "cli/history/run_event.h"

namespace ringmaster::cli {

// At most the newest `limit` events from index `first` on.
Json EventsJson(const std::vector<RunEvent>& events, size_t first, size_t limit);

// Of a gang that changes all the time only the newest `limit` generations are shown.
Json TimelineJson(const GangTimeline& timeline, size_t limit);

// The newest event that reports a lost worker; null when no worker was lost.
Json LastFailureJson(const std::vector<RunEvent>& events);

// {"step":[..],"loss":[..]} of the Validated events, each step once, in order.
Json ValidationJson(const std::vector<RunEvent>& events);

}  // namespace ringmaster::cli
