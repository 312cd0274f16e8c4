// SPDX-License-Identifier: Apache-2.0

// The outputs of a run: metrics.jsonl, events.jsonl, the progress display and finally the summary. Its input
// is the inbox with the messages of the coordinator and the controller. Main thread only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/run/busy_log.h"
#include "cli/run/event_log.h"
#include "cli/run/goodput.h"
#include "cli/run/inbox.h"
#include "cli/run/metrics_log.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/program_output.h"
#include "cli/run/progress_display.h"
#include "cli/run/run_options.h"
#include "cli/run/summary.h"
#include "cli/track/tensorboard_log.h"

namespace ringmaster::cli {

class RunView {
 public:
  static Result<std::unique_ptr<RunView>> Create(const RunPlan& plan, const OutputPaths& paths,
                                                 int64_t resume_step, const RunOptions& options);

  // Processes the messages. Fails when the metrics file cannot be written; the run must end then.
  Status Take(const Inbox::Content& content);
  // Updates the display. `workers_wanted` is the current spec.workers.replicas.
  // `next_attempt`: before it, no worker starts, after failures in a row.
  void Show(int workers_wanted, bool stopping, std::optional<Time> next_attempt, Time now);
  // Prints the message and writes it to events.jsonl.
  void Announce(RunEvent event);
  void Announce(bool warning, const std::string& reason, const std::string& message);
  EventLog& events() { return *events_; }

  bool training() const {
    return programs_ ? report_.phase == rendezvous::GangPhase::kActive : state_.step > 0 && !Complete();
  }
  const rendezvous::Report& report() const { return report_; }

  // Writes the remaining metrics, the event of the end and summary.json, and prints the summary. message: the
  // event's; the summary has it unless the run succeeded.
  Status Finish(const std::string& phase, const std::string& message);

 private:
  RunView(const RunPlan& plan, OutputPaths paths, int64_t resume_step, ProgressStyle style);

  bool Complete() const { return state_.total_steps > 0 && state_.step >= state_.total_steps; }
  Status OpenTensorboard(int64_t resume_step);
  // Ends the event file after a failed write: training continues, and the next run writes the file again.
  void CheckTensorboard(const Status& written);
  void TakeValidation(const rendezvous::ValidationResult& result);
  void TakeRecord(const rendezvous::StepRecord& record, double received);
  void TakeReport(const rendezvous::Report& report);
  void TakeLine(const rendezvous::EventLine& line);
  void TakeCheckpointFailure(const std::string& why);
  void TakeBusyTimes(const rendezvous::GangBusyTimes& times);
  void NoteWorkers(const rendezvous::EventLine& line);
  std::vector<LiveScreen::Worker> WorkersOnScreen() const;
  // Prints the new output of the program of rank 0. `all`: also a last line without an end.
  void ShowOutput(bool all);
  // Prints once for each pause when it ends, and returns a note; empty: there is no pause.
  std::string NoteOfPause(std::optional<Time> next_attempt, Time now);
  Summary MakeSummary(const std::string& phase, const std::string& message) const;

  const OutputPaths paths_;
  const bool programs_;
  const bool language_model_;
  const int64_t tokens_per_sample_;
  const bool human_output_;  // stdout is for a person, not for a program
  const double started_ = MonotonicSeconds();
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<BusyLog> busy_log_;
  std::unique_ptr<TensorboardLog> tensorboard_;  // null: not requested, or it could not be written
  std::optional<rendezvous::ValidationResult> last_validation_;  // that was reported during training
  ProgressDisplay display_;
  Goodput goodput_;
  ProgressState state_;
  rendezvous::Report report_;
  struct WorkerNote {
    int rank = -1;  // of its first slot in the newest generation; -1: it is no member
    int failures = 0;
    bool failed = false;                                // since it was a member
    std::optional<rendezvous::RankBusyTime> busy = {};  // of its slowest slot in the newest window
  };
  std::map<std::string, WorkerNote> workers_;  // by pod; all that were members or failed
  int64_t checkpoint_step_ = -1;
  std::optional<ProgramOutput> output_;  // of jobs whose programs need not report steps; none for scripts
  std::optional<Time> pause_;            // the end of the newest pause
  std::string note_;                     // activity that the trainers report, until the next step
  bool checkpoint_failed_ = false;
  bool taken_ = false;  // a record
  double last_received_ = 0;
};

}  // namespace ringmaster::cli
