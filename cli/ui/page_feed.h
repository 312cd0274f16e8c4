// SPDX-License-Identifier: Apache-2.0

// What a live page shows; folder_feed.h implements it for the folder of a run. A newcomer to cli/ui starts
// here, then reads page_server.h, which passes a feed to browsers.
//
// A browser receives named messages with JSON data, as server-sent events:
//
//   run      one object: name, phase, message, step, totalSteps, loss, samplesPerSecond, goodput, ...
//   steps    the columns of StepBuckets::Json. "reset": true replaces all steps, otherwise those from "from".
//   events   {"reset":..,"items":[{"time","warning","reason","message","pod"}]}
//   gang     the timeline of gang_timeline.h
//   busy     the busy times of BusyHistory::ToJson. "reset": true replaces all windows.
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
