// SPDX-License-Identifier: Apache-2.0

// What a live page shows; folder_feed.h implements it for the folder of a run, cli/cluster/cluster_feed.h for
// the jobs of a cluster. A newcomer to cli/ui starts here, then reads page_server.h, which passes a feed to
// browsers.
//
// A browser receives named messages with JSON data, as server-sent events:
//
//   run      one object: name, phase, message, step, totalSteps, loss, samplesPerSecond, goodput, ...; of a
//            job on a cluster, "curves" is where they come from: "logs", or only "status"; empty: none yet
//   steps    the columns of StepBuckets::Json; they replace those from "from" on
//   events   {"reset":..,"items":[{"time","warning","reason","message","pod"}]}
//   gang     the timeline of gang_timeline.h; "now" is the time of sending while the run continues
//   busy     the busy times of BusyHistory::ToJson. "reset": true replaces all windows.
//   workers  of a job on a cluster: {"items":[{"rank","attempt","pod","node","state"}]}
//   jobs     {"reset":..,"items":[..],"removed":[keys],..}, with the rows of cli/cluster/job_page.h
//
// A subscription without a job gets the run of a folder, or the list of jobs of a cluster: only `jobs`.
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
  // `job`, here and below: NAMESPACE/NAME of a job of a cluster, or empty.
  virtual void Subscribe(const std::string& job, http::BodyStream stream) = 0;
  // Responds with the steps of a range, in more detail than the messages have.
  virtual void Steps(const std::string& job, int64_t from, int64_t to, http::Responder reply) = 0;
  // Responds with the end of the log of a worker, as plain text. `until`: the time of a failure as the
  // message `run` has it, for the lines up to it; empty: the newest lines.
  virtual void Log(const std::string& job, const std::string& worker, const std::string& until,
                   http::Responder reply) = 0;
  // Sends the last changes and ends all streams. Later requests get no response.
  virtual void Finish() = 0;
};

// Returns a server-sent event. REQUIRES: `data` has no newline.
inline std::string ServerSentEvent(const std::string& name, const std::string& data) {
  return "event: " + name + "\ndata: " + data + "\n\n";
}

}  // namespace ringmaster::cli
