// SPDX-License-Identifier: Apache-2.0

// What the live page shows of jobs on a cluster, computed from API objects and logs: the messages of
// cli/ui/page_feed.h. Everything comes from what the cluster records anyway:
//
//   progress, speed         status.progress, which the operator writes every few seconds
//   curves, busy times      the logs of the workers (worker_log.h), and status.progress
//   why a job waits         its conditions
//   generations             the logs of the workers
//   failures, restarts      Events of the job, and the logs, which have them to the millisecond
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster/progress_curve.h"
#include "cli/cluster/worker_log.h"
#include "cli/history/run_event.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

// Removes escape sequences and control characters from all texts of a message: users of a namespace, and any
// program in a pod, choose names, messages and notes.
Json PlainTexts(Json message);

// A row of the list of jobs: key, namespace, name, phase, state (waits | runs | done | failed), step,
// totalSteps, loss, workers, created, why.
Json JobRow(const Json& job);

// The message `run`, and the point that it adds to the curve.
Json JobRun(const Json& job);
std::optional<ProgressCurve::Point> ProgressPoint(const Json& job);

// Adds what a log reports about a step.
void AddToCurve(const LogStep& step, ProgressCurve* curve);

// The busy times in the logs, for BusyWindows.
BusyReports LoggedBusyTimes(const WorkerLogs& logs);

// The items of the message `workers`, by attempt and rank, newest attempt first.
Json JobWorkers(const std::vector<Json>& pods);

// Events of the API about the job with this uid, oldest first. `pod` is the worker that a note begins with.
std::vector<RunEvent> ReportedEvents(const std::vector<Json>& events, const Json& job);

// The history of the gang, for TimelineOf. A failure that is both in a log and in `reported` occurs once.
// `reported` may also have CheckpointPublished.
std::vector<RunEvent> GangEvents(const WorkerLogs& logs, const std::vector<RunEvent>& reported,
                                 const Json& job);

// `reported` with the generations of the gang, oldest first: the events of the page.
std::vector<RunEvent> PageEvents(const std::vector<RunEvent>& reported, const std::vector<RunEvent>& gang);

}  // namespace ringmaster::cli
