// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/program_member.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

constexpr int32_t kKilled = 137;
constexpr int32_t kTerminated = 143;

}  // namespace

ProgramMemberCore::ProgramMemberCore(const ProgramMemberOptions& options)
    : options_(options), connect_backoff_(options.connect_backoff_min) {}

std::vector<program::Command> ProgramMemberCore::Take() { return std::exchange(commands_, {}); }

void ProgramMemberCore::On(const program::Event& event, Time now) {
  if (ended_) return;
  if (std::holds_alternative<program::Started>(event)) {
    connect_at_ = now;
  } else if (std::holds_alternative<program::Connected>(event)) {
    connected_ = true;
    connect_at_ = kNever;
    connect_backoff_ = options_.connect_backoff_min;
    ping_at_ = now + options_.ping_interval;
    SendUp(options_.hello);
    Report(now);
    if (leaving_) SendUp(Leave{"terminated"});
  } else if (std::holds_alternative<program::Disconnected>(event)) {
    connected_ = false;
    ping_at_ = kNever;
    connect_at_ = now + connect_backoff_;
    connect_backoff_ = std::min(connect_backoff_ * 2, options_.connect_backoff_max);
  } else if (const auto* from = std::get_if<program::FromCoordinator>(&event)) {
    OnCoordinator(from->message, now);
  } else if (const auto* gone = std::get_if<program::Ended>(&event)) {
    OnEnded(*gone, now);
  } else if (const auto* failed_by_itself = std::get_if<program::Failed>(&event)) {
    OnFailed(*failed_by_itself, now);
  } else if (const auto* survived = std::get_if<program::Survived>(&event)) {
    OnSurvived(*survived, now);
  } else if (const auto* hung = std::get_if<program::Hung>(&event)) {
    if (state_.phase == ProgramPhase::kRunning && !failed() && !killed_) {
      killed_ = true;
      SetEnd({kKilled, "hang", hung->message, Duration{0}}, now);
      Report(now);
      commands_.push_back(program::Signal{true});
    }
  } else if (const auto* reported = std::get_if<program::Reported>(&event)) {
    Progress progress = reported->progress;
    for (StepRecord& record : progress.records) record.generation = state_.generation;
    if (runs()) SendUp(std::move(progress));
  } else if (const auto* ranks = std::get_if<program::Ranks>(&event)) {
    if (runs()) OnRanks(*ranks, now);
  } else if (const auto* checked = std::get_if<program::Checked>(&event)) {
    if (!runs()) SendUp(checked->result);
  } else if (std::holds_alternative<program::Terminate>(event)) {
    OnTerminate(now);
  }
  OnTick(now);
}

void ProgramMemberCore::OnTick(Time now) {
  if (ended_) return;
  if (now >= exit_by_) return Finish();
  if (now >= leave_due_) {
    leave_due_ = kNever;
    ExitWhenStopped({kTerminated, "terminated"}, options_.stop_grace, now);
    if (ended_) return;
  }
  if (now >= kill_at_) {
    kill_at_ = kNever;
    killed_ = true;
    commands_.push_back(program::Signal{true});
  }
  if (now >= connect_at_) {
    connect_at_ = kNever;
    commands_.push_back(program::Connect{});
  }
  if (connected_ && now >= ping_at_) {
    ping_at_ = now + options_.ping_interval;
    SendUp(Ping{});
  }
}

void ProgramMemberCore::OnCoordinator(const Message& message, Time now) {
  if (const auto* start = std::get_if<StartProgram>(&message)) {
    OnStart(*start, now);
  } else if (const auto* stop = std::get_if<StopProgram>(&message)) {
    if (stop->generation < state_.generation) return;
    next_.reset();
    if (runs()) Stop(milliseconds(std::max<int64_t>(0, stop->grace_ms)), now);
  } else if (const auto* exit = std::get_if<rendezvous::Exit>(&message)) {
    ExitWhenStopped({exit->code, exit->reason, exit->finished && exit->code == 0}, options_.stop_grace, now);
  } else if (const auto* check = std::get_if<CheckPeers>(&message)) {
    OnCheck(*check);
  }
}

// The port of the next program is in use while a program runs.
void ProgramMemberCore::OnCheck(const CheckPeers& order) {
  if (runs() || leaving_ || exit_) return;
  const auto self = std::find_if(order.members.begin(), order.members.end(),
                                 [&](const Member& member) { return member.id == options_.hello.agent; });
  if (order.step == CheckStep::kConnect && self == order.members.end()) return;
  commands_.push_back(program::Check{order, static_cast<size_t>(self - order.members.begin())});
}

void ProgramMemberCore::OnStart(const StartProgram& order, Time now) {
  const auto place = [](const auto& of) { return std::pair(of.generation, of.life); };
  if (place(order) == place(state_) && order.version > state_.version &&
      state_.phase == ProgramPhase::kRunning) {
    state_.version = order.version;
    commands_.push_back(program::Update{order});
    SendUp(state_);
    return;
  }
  if (place(order) <= place(state_) || leaving_ || exit_) return;
  if (!runs()) return Begin(order);
  if (next_ && place(*next_) >= place(order)) return;
  next_ = order;
  Stop(Duration{0}, now);
}

void ProgramMemberCore::Begin(const StartProgram& order) {
  const auto self = std::find_if(order.members.begin(), order.members.end(),
                                 [&](const Member& member) { return member.id == options_.hello.agent; });
  if (self == order.members.end()) return;
  const auto rank = static_cast<int32_t>(self - order.members.begin());
  state_ = {.phase = ProgramPhase::kRunning,
            .generation = order.generation,
            .rank = rank,
            .world = static_cast<int32_t>(order.members.size()),
            .address = self->address,
            .life = order.life,
            .version = order.version};
  killed_ = false;
  kill_at_ = kNever;
  commands_.push_back(program::Start{order, rank});
  SendUp(state_);
}

void ProgramMemberCore::Stop(Duration grace, Time now) {
  if (!runs()) return;
  const bool first = state_.phase == ProgramPhase::kRunning;
  state_.phase = ProgramPhase::kStopping;
  leave_due_ = kNever;
  if (grace > Duration{0} && first && !killed_) commands_.push_back(program::Signal{false});
  if (!killed_) kill_at_ = std::min(kill_at_, now + grace);
  if (first) SendUp(state_);
}

void ProgramMemberCore::OnEnded(const program::Ended& event, Time now) {
  if (!runs()) return;
  const bool ordered = state_.phase == ProgramPhase::kStopping && !failed();
  if (!ordered && !failed()) SetEnd(event, now);
  state_.phase = ordered ? ProgramPhase::kIdle : ProgramPhase::kEnded;
  state_.address.clear();
  state_.survivors.clear();
  kill_at_ = kNever;
  Report(now);
  if (exit_) return Finish();
  if (next_) {
    const StartProgram order = *std::exchange(next_, std::nullopt);
    Begin(order);
  }
}

void ProgramMemberCore::OnFailed(const program::Failed& event, Time now) {
  CHECK(event.how.exit_code != 0);
  if (state_.phase != ProgramPhase::kRunning || failed()) return;
  SetEnd(event.how, now);
  Report(now);
}

void ProgramMemberCore::OnSurvived(const program::Survived& event, Time now) {
  if (!runs()) return;
  state_.survivors = event.processes;
  Report(now);
}

void ProgramMemberCore::SetEnd(const program::Ended& end, Time now) {
  // An end in the future would be a count below zero, which no coordinator accepts: it closes the connection.
  CHECK(end.ago >= Duration{0}, "ended {} us in the future",
        -std::chrono::duration_cast<std::chrono::microseconds>(end.ago).count());
  ended_at_ = now - end.ago;
  state_.exit_code = end.exit_code;
  state_.evidence = end.evidence;
  state_.message = end.message;
}

void ProgramMemberCore::OnRanks(const program::Ranks& ranks, Time now) {
  state_.open_ranks += ranks.started;
  for (const RankCount& more : ranks.succeeded) {
    state_.open_ranks -= more.count;
    const auto it = std::find_if(state_.ranks.begin(), state_.ranks.end(), [&](const RankCount& known) {
      return known.size == more.size && known.rank == more.rank;
    });
    if (it != state_.ranks.end())
      it->count += more.count;
    else
      state_.ranks.push_back(more);
  }
  Report(now);
}

void ProgramMemberCore::OnTerminate(Time now) {
  if (leaving_ || exit_) {
    exit_ = program::Exit{kTerminated, "terminated"};
    return Finish();
  }
  leaving_ = true;
  // Without a coordinator no order to stop comes.
  leave_due_ = connected_ ? now + options_.leave_patience : now;
  SendUp(Leave{"terminated"});
}

void ProgramMemberCore::ExitWhenStopped(program::Exit exit, Duration grace, Time now) {
  if (!exit_) exit_ = std::move(exit);
  next_.reset();
  leave_due_ = kNever;
  if (!runs()) return Finish();
  Stop(grace, now);
  exit_by_ = std::min(exit_by_, now + grace + options_.exit_limit);
}

void ProgramMemberCore::Finish() {
  commands_.push_back(exit_.value());
  ended_ = true;
}

void ProgramMemberCore::Report(Time now) {
  if (state_.phase == ProgramPhase::kEnded || failed())
    state_.ended_us = std::chrono::duration_cast<std::chrono::microseconds>(now - ended_at_).count();
  SendUp(state_);
}

void ProgramMemberCore::SendUp(Message message) {
  if (connected_) commands_.push_back(program::Send{std::move(message)});
}

Time ProgramMemberCore::next_wakeup() const {
  if (ended_) return kNever;
  return std::min({connect_at_, ping_at_, kill_at_, leave_due_, exit_by_});
}

}  // namespace ringmaster::rendezvous
