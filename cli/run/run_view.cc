// SPDX-License-Identifier: Apache-2.0

#include "cli/run/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "cli/history/step_history.h"
#include "cli/write_text.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::cli {
namespace {

using rendezvous::GangPhase;

// `note`: of a trainer.
std::string NoteOf(const rendezvous::Report& report, bool stopping, const std::string& note) {
  if (stopping || report.phase == GangPhase::kStopping) return "stopping";
  if (!report.unreachable.empty()) return "waiting: workers cannot reach each other";
  if (report.phase == GangPhase::kForming) return "waiting for workers" + (note.empty() ? "" : ": " + note);
  if (report.phase == GangPhase::kPaused) return "paused: too few workers";
  return report.done ? "" : note;
}

RunEvent PlainEvent(bool warning, const std::string& reason, const std::string& message) {
  RunEvent event;
  event.warning = warning;
  event.reason = reason;
  event.message = message;
  return event;
}

double EpochSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RunEvent ValidationEvent(const rendezvous::ValidationResult& result) {
  RunEvent event = PlainEvent(false, "Validated",
                              fmt::format("step {}: validation loss {:.4f}", result.step, result.loss));
  event.step = result.step;
  event.loss = result.loss;
  event.accuracy = result.accuracy;
  return event;
}

}  // namespace

RunView::RunView(const RunPlan& plan, OutputPaths paths, int64_t resume_step, ProgressStyle style)
    : paths_(std::move(paths)),
      programs_(plan.programs.has_value()),
      language_model_(!programs_ && !plan.library && plan.config.model.kind == engine::ModelKind::kGpt),
      tokens_per_sample_(language_model_ ? plan.config.model.context : 0),
      human_output_(style != ProgressStyle::kJson),
      display_(style) {
  state_.step = resume_step;
  state_.total_steps = plan.config.steps;
  state_.title = plan.job.metadata.name;
  if (programs_ && human_output_) output_.emplace(paths_.logs);
}

Result<std::unique_ptr<RunView>> RunView::Create(const RunPlan& plan, const OutputPaths& paths,
                                                 int64_t resume_step, const RunOptions& options) {
  std::unique_ptr<RunView> view(new RunView(plan, paths, resume_step, options.progress));
  // Programs may continue from a folder that they name themselves.
  const bool known = options.fresh || !(plan.programs || (plan.library && resume_step == 0));
  RM_ASSIGN(view->metrics_, MetricsLog::Open(paths.metrics, known ? std::optional(resume_step) : std::nullopt,
                                             view->programs_));
  RM_ASSIGN(view->events_, EventLog::Open(paths.events));
  RM_ASSIGN(view->busy_log_, BusyLog::Open(paths.busy_times));
  if (options.tensorboard) RM_TRY(view->OpenTensorboard(resume_step));
  // How many steps a program will do, it may report itself.
  const std::string steps = plan.config.steps > 0 ? fmt::format("{} steps on ", plan.config.steps) : "";
  RunEvent started = PlainEvent(
      false, "Started",
      fmt::format("{}: {}{} workers", plan.job.metadata.name, steps, plan.job.spec.workers.replicas));
  started.step = resume_step;
  started.total_steps = plan.config.steps;
  view->events_->Write(std::move(started));
  for (const std::string& note : plan.notes) view->Announce(true, "Note", note);
  if (view->programs_ || plan.library)
    view->display_.Say(fmt::format("output of the workers: {}/", paths.logs));
  if (resume_step > 0 && !view->programs_)
    view->Announce(false, "Resumed", fmt::format("continues from the checkpoint of step {}", resume_step));
  return view;
}

// The part of the history before the checkpoint is written again from the other files.
Status RunView::OpenTensorboard(int64_t resume_step) {
  std::vector<rendezvous::StepRecord> steps;
  std::vector<RunEvent> events;
  if (resume_step > 0) {
    RM_ASSIGN(steps, ReadSteps(paths_.metrics));
    RM_ASSIGN(events, ReadEvents(paths_.events));
  }
  RM_ASSIGN(tensorboard_,
            TensorboardLog::Open(paths_.tensorboard, steps, events, resume_step, EpochSeconds()));
  return Ok();
}

void RunView::CheckTensorboard(const Status& written) {
  if (written.ok()) return;
  tensorboard_.reset();
  Announce(true, "TensorboardFailed",
           written.error().message + "; training continues without its event file for TensorBoard");
}

void RunView::TakeValidation(const rendezvous::ValidationResult& result) {
  if (last_validation_ && result.step <= last_validation_->step) return;  // repeated
  last_validation_ = result;
  Announce(ValidationEvent(result));
  if (tensorboard_) CheckTensorboard(tensorboard_->AddValidation(result, EpochSeconds()));
}

void RunView::Announce(RunEvent event) {
  display_.Say(event.message);
  events_->Write(std::move(event));
}

void RunView::Announce(bool warning, const std::string& reason, const std::string& message) {
  Announce(PlainEvent(warning, reason, message));
}

Status RunView::Take(const Inbox::Content& content) {
  for (const Inbox::Content::Note& note : content.notes) Announce(note.warning, note.reason, note.text);
  for (const rendezvous::EventLine& line : content.coordinator_lines) TakeLine(line);
  Status outcome;
  for (const auto& [progress, received] : content.progress) {
    for (const rendezvous::StepRecord& record : progress.records) {
      const auto written = metrics_->Add(record);
      if (!written.ok()) {
        if (outcome.ok()) outcome = written.error();
        continue;  // it waits in metrics_
      }
      for (const rendezvous::StepRecord& step : *written) TakeRecord(step, received);
    }
    if (!progress.note.empty()) note_ = progress.note;
    if (progress.validation) TakeValidation(*progress.validation);
    if (progress.checkpoint_failure) TakeCheckpointFailure(*progress.checkpoint_failure);
    if (progress.total_steps > 0) state_.total_steps = progress.total_steps;
    if (progress.checkpoint_step.value_or(-1) > checkpoint_step_) {
      checkpoint_step_ = *progress.checkpoint_step;
      RunEvent event =
          PlainEvent(false, "CheckpointPublished", fmt::format("checkpoint of step {}", checkpoint_step_));
      event.step = checkpoint_step_;
      events_->Write(std::move(event));
    }
  }
  for (const rendezvous::GangBusyTimes& times : content.busy_times) TakeBusyTimes(times);
  if (content.report) TakeReport(*content.report);
  return outcome;
}

void RunView::TakeRecord(const rendezvous::StepRecord& record, double received) {
  last_received_ = std::max(last_received_, received);
  if (tensorboard_) CheckTensorboard(tensorboard_->Add(record, EpochSeconds()));
  // Only the first record of a program shows where it continues, which may be before the end of the file.
  if (programs_ && !std::exchange(taken_, true)) state_.step = std::min(state_.step, record.step - 1);
  if (record.step <= state_.step) return;  // a step of an earlier run, repeated to fill a gap in the file
  goodput_.Add(record, received);
  note_.clear();
  state_.step = record.step;
  state_.loss = record.loss;
  state_.samples_per_second = goodput_.RecentSamplesPerSecond();
  state_.seconds_per_step = goodput_.RecentSecondsPerStep();
  display_.Step(record, received);
}

void RunView::TakeBusyTimes(const rendezvous::GangBusyTimes& times) {
  busy_log_->Add(times, MonotonicSeconds());
  for (auto& [pod, worker] : workers_) worker.busy.reset();
  for (size_t rank = 0; rank < times.ranks.size(); ++rank) {
    const rendezvous::RankBusyTime& busy = times.ranks[rank];
    if (busy.steps == 0) continue;
    auto& shown = workers_[(*times.pods)[rank]].busy;
    const bool straggler = busy.straggler || (shown && shown->straggler);
    if (!shown || busy.seconds > shown->seconds) shown = busy;
    shown->straggler = straggler;
  }
}

void RunView::TakeReport(const rendezvous::Report& report) {
  report_ = report;
  // After the last step the workers end one after another: none of the last members is missing.
  state_.workers_alive =
      static_cast<int>(report.done ? std::count_if(workers_.begin(), workers_.end(),
                                                   [](const auto& w) { return w.second.rank >= 0; })
                                   : static_cast<ptrdiff_t>(report.live_pods.size()));
}

void RunView::TakeCheckpointFailure(const std::string& why) {
  const std::string text = "checkpoint failed: " + why;
  events_->Write(PlainEvent(true, "CheckpointFailed", text));
  // Print only the first failure; events.jsonl has all of them.
  if (!checkpoint_failed_) display_.Say(text + "; training continues, and the next attempt follows");
  checkpoint_failed_ = true;
}

void RunView::TakeLine(const rendezvous::EventLine& line) {
  NoteWorkers(line);
  RunEvent event = EventOf(line);
  if (event.warning)
    Announce(std::move(event));
  else
    events_->Write(std::move(event));
}

void RunView::NoteWorkers(const rendezvous::EventLine& line) {
  if (line.kind == rendezvous::EventKind::kWorkerFailed && !line.pod.empty()) {
    WorkerNote& worker = workers_[line.pod];
    ++worker.failures;
    worker.failed = true;
    worker.rank = -1;
  }
  if (line.kind != rendezvous::EventKind::kGenerationFormed) return;
  if (output_ && !line.workers.empty()) output_->Follow(line.workers.front());
  for (auto& [pod, worker] : workers_) worker.rank = -1, worker.busy.reset();
  for (size_t rank = line.workers.size(); rank-- > 0;) {
    WorkerNote& worker = workers_[line.workers[rank]];
    worker.rank = static_cast<int>(rank);
    worker.failed = false;
  }
}

std::vector<LiveScreen::Worker> RunView::WorkersOnScreen() const {
  using State = LiveScreen::Worker::State;
  std::vector<LiveScreen::Worker> workers;
  for (const auto& [pod, note] : workers_) {
    LiveScreen::Worker worker;
    worker.name = pod;
    worker.state = note.rank >= 0 ? State::kMember : note.failed ? State::kFailed : State::kStarting;
    worker.text = note.rank >= 0 ? fmt::format("rank {}", note.rank)
                  : note.failed  ? "restarts"
                                 : "not a member";
    if (note.rank >= 0 && note.busy) LiveScreen::ShowBusy(note.busy->seconds, note.busy->straggler, &worker);
    if (note.failures > 0)
      worker.text += fmt::format(", {} failure{}", note.failures, note.failures == 1 ? "" : "s");
    workers.push_back(std::move(worker));
  }
  return workers;
}

void RunView::ShowOutput(bool all) {
  if (output_) output_->Read([this](std::string_view line) { display_.Say(line); }, all);
}

std::string RunView::NoteOfPause(std::optional<Time> next_attempt, Time now) {
  if (!next_attempt || *next_attempt <= now) return "";
  const auto left = std::chrono::ceil<seconds>(*next_attempt - now);
  if (pause_ != next_attempt && left > seconds(1)) {
    Announce(true, "BackOff",
             fmt::format("after failures in a row the next attempt starts in {} s", left.count()));
  }
  pause_ = next_attempt;
  // One line per second in a pipe would say no more.
  return display_.style() == ProgressStyle::kBar
             ? fmt::format("the next attempt starts in {} s", left.count())
             : "waiting for the next attempt";
}

void RunView::Show(int workers_wanted, bool stopping, std::optional<Time> next_attempt, Time now) {
  ShowOutput(/*all=*/false);
  state_.workers_wanted = workers_wanted;
  state_.workers = WorkersOnScreen();
  const std::string pause = stopping ? "" : NoteOfPause(next_attempt, now);
  state_.note = pause.empty() ? NoteOf(report_, stopping, note_) : pause;
  display_.Update(state_, now);
}

Summary RunView::MakeSummary(const std::string& phase, const std::string& message) const {
  Summary summary;
  summary.phase = phase;
  summary.message = message;
  summary.step = std::max(state_.step, report_.done ? report_.done->step : 0);
  summary.total_steps = state_.total_steps;
  summary.loss = metrics_->last_loss();
  summary.language_model = language_model_;
  summary.tokens_per_sample = tokens_per_sample_;
  if (report_.done) {
    const rendezvous::Done& done = *report_.done;
    if (!summary.loss || metrics_->last_step() < done.step) summary.loss = done.loss;
    if (done.finished) {
      const bool known = !std::isnan(done.validation_loss);
      if (known) summary.validation_loss = done.validation_loss;
      summary.validation_accuracy = done.validation_accuracy;
      // A program reports it by itself.
      if (!known && last_validation_ && last_validation_->step == done.step) {
        summary.validation_loss = last_validation_->loss;
        summary.validation_accuracy = last_validation_->accuracy;
      }
    }
    summary.weights_hash = done.weights_hash;
    summary.optimizer_hash = done.optimizer_hash;
  }
  summary.samples_per_second = goodput_.SamplesPerSecond();
  summary.goodput = goodput_.Ratio();
  summary.generations = report_.generations;
  summary.worker_failures = report_.worker_failures;
  summary.lost_steps = report_.lost_steps;
  summary.wall_seconds = MonotonicSeconds() - started_;
  return summary;
}

Status RunView::Finish(const std::string& phase, const std::string& message) {
  auto left = metrics_->Finish();
  if (left.ok())
    for (const rendezvous::StepRecord& record : *left) TakeRecord(record, last_received_);
  ShowOutput(/*all=*/true);
  display_.Finish();
  const Summary summary = MakeSummary(phase, phase == "Succeeded" ? "" : message);
  if (summary.validation_loss && !(last_validation_ && last_validation_->step == summary.step)) {
    const rendezvous::ValidationResult last{summary.step, *summary.validation_loss,
                                            summary.validation_accuracy};
    events_->Write(ValidationEvent(last));
    if (tensorboard_) CheckTensorboard(tensorboard_->AddValidation(last, EpochSeconds()));
  }
  events_->Write(PlainEvent(phase == "Failed", phase, message));
  const Status written = WriteSummary(paths_.summary, summary);
  if (human_output_) WriteText(stdout, SummaryText(summary, paths_.folder));
  std::fflush(stdout);
  if (!left.ok()) return left.error();
  return written;
}

}  // namespace ringmaster::cli
