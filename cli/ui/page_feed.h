// SPDX-License-Identifier: Apache-2.0

// What a live page shows: the folder of a run (folder_feed.h) or jobs of a cluster (cluster_feed.h). A
// newcomer to cli/ui starts here, then reads page_server.h, which passes a feed to browsers.
//
// A browser receives named messages with JSON data, as server-sent events:
//
//   run      one object: name, phase, message, step, totalSteps, loss, samplesPerSecond, goodput, ...
//   steps    columns of StepBuckets::Json and "reset": true to replace all, or to replace those from "from"
//   on events   {"reset":..,"items":[{"time","warning","reason","message","pod"}]} gang     the gang
//   timeline, as it is in gang_timeline.h jobs     a list of jobs:
//   {"namespace","name","phase","ready","why",...}
//
// All functions are thread-safe and return at once; responses come from the feed's thread.
#pragma once

#include <string>

#include "base/http/server.h"

namespace ringmaster::cli {

class PageFeed {
 public:
  virtual ~PageFeed() = default;
  // Sends the current state, then every change, until the stream or the feed ends.
  virtual void Subscribe(http::BodyStream stream) = 0;
  // Responds with the steps of a range, in more detail than the messages have.
  virtual void Steps(int64_t from, int64_t to, http::Responder reply) = 0;
  // Responds with the end of the log of a worker, as plain text.
  virtual void Log(const std::string& worker, http::Responder reply) = 0;
  // Sends the last changes and ends all streams. Later requests get no response.
  virtual void Finish() = 0;
};

// Returns a server-sent event. REQUIRES: `data` has no newline.
inline std::string ServerSentEvent(const std::string& name, const std::string& data) {
  return "event: " + name + "\ndata: " + data + "\n\n";
}

}  // namespace ringmaster::cli
