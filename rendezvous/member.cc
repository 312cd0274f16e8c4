// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/member.h"

#include "base/exit_codes.h"

#include <algorithm>
#include <utility>

namespace ringmaster::rendezvous {
namespace {

// A trainer exits with this code when a restart would not help.

constexpr const char* kEvicted = "evicted";

}  // namespace

MemberCore::MemberCore(const MemberOptions& options)
    : options_(options),
      connect_backoff_(options.connect_backoff_min),
      restart_backoff_(options.restart_backoff_min) {}

std::vector<MemberCommand> MemberCore::Take() { return std::exchange(commands_, {}); }

void MemberCore::On(const MemberEvent& event, Time now) {
  if (stage_ == Stage::kEnded) return;
  if (std::holds_alternative<Started>(event)) {
    connect_at_ = restart_at_ = now;
  } else if (std::holds_alternative<Connected>(event)) {
    OnConnected(now);
  } else if (std::holds_alternative<Disconnected>(event)) {
    connected_ = false;
    ping_at_ = kNever;
    connect_at_ = now + connect_backoff_;
    connect_backoff_ = std::min(connect_backoff_ * 2, options_.connect_backoff_max);
  } else if (const auto* from_coordinator = std::get_if<FromCoordinator>(&event)) {
    OnCoordinator(from_coordinator->message, now);
  } else if (const auto* from_trainer = std::get_if<FromTrainer>(&event)) {
    OnTrainer(from_trainer->message);
  } else if (const auto* lost = std::get_if<TrainerLost>(&event)) {
    OnLost(lost->evidence, lost->message);
  } else if (const auto* reaped = std::get_if<TrainerReaped>(&event)) {
    OnReaped(reaped->exit_code, now);
  } else if (std::holds_alternative<Terminate>(event)) {
    OnTerminate(now);
  }
  OnTick(now);
}

void MemberCore::OnTick(Time now) {
  if (stage_ == Stage::kEnded) return;
  if (now >= deadline_) {
    if (stage_ == Stage::kLeaving) {
      Finish(143, "no answer to the leave");
    } else if (stage_ == Stage::kAfterLoop && trainer_ == Trainer::kRunning) {
      deadline_ = now + options_.answer_grace;
      OnLost("hang", "the program has not ended " + std::to_string(ToMs(*options_.after_loop) / 1000) +
                         " s after the last step, the limit of health.startupSeconds");
    } else {
      Finish(end_code_, end_reason_);
    }
    return;
  }
  if (now >= connect_at_) {
    connect_at_ = kNever;
    commands_.push_back(Connect{});
  }
  if (connected_ && now >= ping_at_) {
    ping_at_ = now + options_.ping_interval;
    commands_.push_back(SendCoordinator{Ping{}});
  }
  if (now >= restart_at_) {
    restart_at_ = kNever;
    ++incarnation_;
    member_ = options_.hello.agent + "." + std::to_string(incarnation_);
    trainer_ = Trainer::kRunning;
    joined_ = evicted_ = false;
    started_at_ = now;
    commands_.push_back(StartTrainer{member_});
  }
}

void MemberCore::OnConnected(Time now) {
  connected_ = true;
  connect_at_ = kNever;
  connect_backoff_ = options_.connect_backoff_min;
  ping_at_ = now + options_.ping_interval;
  SendToCoordinator(options_.hello);
  if (down_ && stage_ != Stage::kAfterLoop) SendToCoordinator(*down_);
  if (facts_) SendToCoordinator(*facts_);
  if (join_) SendJoin();
  if (!recent_.empty()) {
    Progress progress = progress_;
    progress.records.assign(recent_.begin(), recent_.end());
    SendProgress(std::move(progress));
  }
  if (failed_) SendToCoordinator(*failed_);
  if (done_) SendToCoordinator(*done_);
  if (down_ && stage_ == Stage::kAfterLoop) SendToCoordinator(*down_);
  if (stage_ == Stage::kLeaving) SendToCoordinator(Leave{"terminated"});
  if (fatal_) SendToCoordinator(*fatal_);
}

void MemberCore::OnCoordinator(const Message& message, Time now) {
  if (const auto* exit = std::get_if<Exit>(&message)) {
    OnExit(*exit, now);
    return;
  }
  if (const auto* evict = std::get_if<Evict>(&message)) {
    OnEvict(*evict, now);
    return;
  }
  if (stage_ == Stage::kEnding || stage_ == Stage::kAfterLoop || trainer_ != Trainer::kRunning || !join_)
    return;
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    if (prepare->generation < prepared_) return;
    if (prepare->generation == prepared_ && prepare_forwarded_) {
      // Repeated on a new connection. The trainer has received it, but its answer may be lost.
      if (status_) SendToCoordinator(*status_);
      return;
    }
    prepared_ = prepare->generation;
    prepare_forwarded_ = true;
    status_.reset();
    failed_.reset();
    commands_.push_back(SendTrainer{*prepare});
  } else if (const auto* next = std::get_if<NewGeneration>(&message)) {
    // It may be addressed to an earlier incarnation that has died in the meantime.
    const bool for_us = status_.has_value() &&
                        std::any_of(next->members.begin(), next->members.end(),
                                    [&](const rendezvous::Member& member) { return member.id == member_; });
    if (next->generation != prepared_ || next->generation == forwarded_generation_ || !for_us) return;
    forwarded_generation_ = next->generation;
    done_.reset();
    commands_.push_back(SendTrainer{*next});
  }
}

void MemberCore::OnEvict(const Evict& evict, Time now) {
  if (stage_ == Stage::kEnding) return;
  if (stage_ == Stage::kAfterLoop) return StartAgain(evict, now);
  const bool answers_fatal = fatal_ && fatal_->member == evict.member;
  if (!answers_fatal && (trainer_ != Trainer::kRunning || member_ != evict.member)) return;
  fatal_.reset();
  evicted_ = true;
  OnLost(kEvicted, evict.reason);
  if (stage_ != Stage::kRunning) return;
  if (evict.refused && options_.exit_when_refused) {
    EndBy(kExitRefused, evict.reason, now + options_.exit_grace);
    if (trainer_ == Trainer::kNone) Finish(end_code_, end_reason_);
  } else if (trainer_ == Trainer::kNone) {
    ScheduleRestart(now);
  }
}

void MemberCore::OnTrainer(const Message& message) {
  if (trainer_ != Trainer::kRunning) return;
  if (const auto* join = std::get_if<Join>(&message)) {
    join_ = *join;
    join_->member = member_;
    joined_ = true;
    down_.reset();
    SendJoin();
  } else if (const auto* facts = std::get_if<Facts>(&message)) {
    facts_ = *facts;
    SendToCoordinator(*facts_);
  } else if (const auto* status = std::get_if<MemberStatus>(&message)) {
    if (status->generation != prepared_) return;
    status_ = *status;
    status_->member = member_;
    SendToCoordinator(*status_);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    recent_.insert(recent_.end(), progress->records.begin(), progress->records.end());
    while (recent_.size() > kKeptRecords) recent_.pop_front();
    Progress last = *progress;
    last.records.clear();
    // These come once, and the coordinator may have been away then.
    if (!last.checkpoint_step) last.checkpoint_step = progress_.checkpoint_step;
    if (!last.validation) last.validation = progress_.validation;
    progress_ = std::move(last);
    SendProgress(*progress);
  } else if (const auto* failed = std::get_if<OperationFailed>(&message)) {
    // A Prepare may have crossed it.
    if (failed->generation != forwarded_generation_ || forwarded_generation_ != prepared_) return;
    failed_ = *failed;
    failed_->member = member_;
    SendToCoordinator(*failed_);
  } else if (const auto* done = std::get_if<Done>(&message)) {
    done_ = *done;
    SendToCoordinator(*done);
  } else if (const auto* fatal = std::get_if<Fatal>(&message)) {
    SendFatal(*fatal);
  }
}

void MemberCore::SendJoin() {
  join_->newest = prepared_;
  SendToCoordinator(*join_);
}

void MemberCore::SendFatal(Fatal fatal) {
  fatal_ = std::move(fatal);
  fatal_->member = member_;
  fatal_->joined = joined_;
  SendToCoordinator(*fatal_);
}

void MemberCore::OnLost(const std::string& evidence, const std::string& message, int32_t exit_code) {
  if (trainer_ != Trainer::kRunning) return;
  trainer_ = Trainer::kLost;
  commands_.push_back(KillTrainer{evidence == "hang"});
  if (stage_ != Stage::kAfterLoop) {  // a coordinator that takes over needs both
    join_.reset();
    done_.reset();
  }
  facts_.reset();
  status_.reset();
  prepare_forwarded_ = false;
  failed_.reset();
  recent_.clear();
  // The coordinator evicted it, or decides about its Fatal, so it needs no Down.
  if (stage_ == Stage::kEnding || evidence == kEvicted || fatal_) return;
  down_ = Down{member_, evidence, exit_code, message};
  SendToCoordinator(*down_);
}

void MemberCore::OnReaped(int32_t exit_code, Time now) {
  if (trainer_ == Trainer::kNone) return;
  if (stage_ == Stage::kAfterLoop) return OnProgramEnd(exit_code, now);
  const bool unreported = exit_code == kExitBadInput && !fatal_ && !evicted_;
  if (unreported && stage_ != Stage::kEnding) {
    SendFatal(Fatal{exit_code, "the trainer ended with exit code 64"});
  }
  if (trainer_ == Trainer::kRunning) OnLost("exit", "", exit_code);
  trainer_ = Trainer::kNone;
  ended_at_ = now;
  const std::string member = std::exchange(member_, {});
  if (stage_ == Stage::kEnding) {
    Finish(end_code_, end_reason_);
    return;
  }
  if (fatal_) return;  // the coordinator decides
  if (down_ && down_->member == member) {
    down_->exit_code = exit_code;
    SendToCoordinator(*down_);  // repeats the Down, now with the exit code
  }
  if (stage_ == Stage::kRunning) ScheduleRestart(now);
}

void MemberCore::ScheduleRestart(Time now) {
  if (ended_at_ - started_at_ >= options_.stable_after) {
    restart_backoff_ = options_.restart_backoff_min;
    restart_at_ = now;
  } else {
    restart_at_ = now + restart_backoff_;
    restart_backoff_ = std::min(restart_backoff_ * 2, options_.restart_backoff_max);
  }
}

void MemberCore::OnTerminate(Time now) {
  const bool second = std::exchange(terminated_, true);
  if ((stage_ == Stage::kEnding || stage_ == Stage::kAfterLoop) && exit_received_ && !second)
    return;  // it ends by plan already
  if (stage_ != Stage::kRunning) {
    Finish(143, "terminated");
    return;
  }
  stage_ = Stage::kLeaving;
  deadline_ = now + options_.leave_grace;
  restart_at_ = kNever;
  SendToCoordinator(Leave{"terminated"});
}

void MemberCore::OnExit(const Exit& exit, Time now) {
  if (exit.after_program && options_.after_loop) return BeginAfterLoop(exit, now);
  if (stage_ == Stage::kAfterLoop) {
    finished_ = exit.finished;
    // A job that has ended otherwise does not wait for the program.
    if (trainer_ == Trainer::kNone || !exit.finished)
      Finish(exit.code == 0 ? end_code_ : exit.code, exit.reason);
    return;
  }
  if (exit_received_) return;
  exit_received_ = true;
  finished_ = exit.finished;
  // The agent's own Fatal is the more precise reason.
  if (fatal_ && exit.code != 0) {
    EndBy(fatal_->exit_code, fatal_->message, now + options_.exit_grace);
  } else {
    EndBy(exit.code, exit.reason, now + options_.exit_grace);
  }
  if (trainer_ == Trainer::kRunning) commands_.push_back(SendTrainer{exit});
  if (trainer_ == Trainer::kNone) Finish(end_code_, end_reason_);
}

void MemberCore::BeginAfterLoop(const Exit& exit, Time now) {
  if (exit_received_) return;
  exit_received_ = true;  // only the last Exit says that the work of the job is done
  if (trainer_ != Trainer::kRunning) {
    Finish(0, exit.reason);
    return;
  }
  stage_ = Stage::kAfterLoop;
  deadline_ = *options_.after_loop == Duration::zero() ? kNever : now + *options_.after_loop;
  restart_at_ = kNever;
  commands_.push_back(SendTrainer{exit});
}

// The program of a member failed after the last step: all start again.
void MemberCore::StartAgain(const Evict& evict, Time now) {
  if (!join_ || join_->member != evict.member) return;
  stage_ = Stage::kRunning;
  exit_received_ = finished_ = false;
  deadline_ = kNever;
  fatal_.reset();
  down_.reset();
  evicted_ = true;
  OnLost(kEvicted, evict.reason);  // unless it has ended
  join_.reset();
  done_.reset();
  if (trainer_ == Trainer::kNone) ScheduleRestart(now);
}

void MemberCore::OnProgramEnd(int32_t exit_code, Time now) {
  if (trainer_ == Trainer::kRunning) {
    OnLost("exit", "", exit_code);
  } else if (down_) {
    down_->exit_code = exit_code;
    SendToCoordinator(*down_);
  }
  trainer_ = Trainer::kNone;
  ended_at_ = now;
  end_code_ = exit_code;
  end_reason_ = "the program has ended";
  // The coordinator answers when the last program has ended, and all began their time together.
  deadline_ =
      *options_.after_loop == Duration::zero() ? kNever : now + *options_.after_loop + options_.answer_grace;
}

// The agent exits with `code` when its trainer has ended, at the latest at `deadline`.
void MemberCore::EndBy(int32_t code, const std::string& reason, Time deadline) {
  stage_ = Stage::kEnding;
  deadline_ = deadline;
  end_code_ = code;
  end_reason_ = reason;
  restart_at_ = kNever;
}

void MemberCore::Finish(int32_t code, const std::string& reason) {
  if (trainer_ == Trainer::kRunning) commands_.push_back(KillTrainer{});
  commands_.push_back(ExitAgent{code, reason, finished_ && code == 0});
  stage_ = Stage::kEnded;
}

// At the end of a job all members repeat their records at once: the coordinator's machine holds a part of
// each message until it is complete.
void MemberCore::SendProgress(Progress progress) {
  const std::vector<StepRecord> records = std::move(progress.records);
  for (size_t begin = 0; begin + kRecordsPerMessage < records.size(); begin += kRecordsPerMessage) {
    Progress part;
    part.total_steps = progress.total_steps;
    const auto first = records.begin() + static_cast<std::ptrdiff_t>(begin);
    part.records.assign(first, first + kRecordsPerMessage);
    SendToCoordinator(std::move(part));
  }
  const size_t rest = records.empty() ? 0 : (records.size() - 1) % kRecordsPerMessage + 1;
  progress.records.assign(records.end() - static_cast<std::ptrdiff_t>(rest), records.end());
  SendToCoordinator(std::move(progress));
}

void MemberCore::SendToCoordinator(Message message) {
  if (connected_) commands_.push_back(SendCoordinator{std::move(message)});
}

Time MemberCore::next_wakeup() const {
  if (stage_ == Stage::kEnded) return kNever;
  return std::min({deadline_, connect_at_, ping_at_, restart_at_});
}

}  // namespace ringmaster::rendezvous
