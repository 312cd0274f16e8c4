// SPDX-License-Identifier: Apache-2.0

// The end of a job whose trainers are programs of a user. After the last step a program evaluates, exports
// its weights, and may fail in doing so. The job has ended when all programs have, and their exit codes
// decide whether it has succeeded.
#include <algorithm>

#include <utility>
#include <vector>

#include "base/exit_codes.h"
#include "rendezvous/coordinator.h"

namespace ringmaster::rendezvous {
namespace {

constexpr int32_t kSignalled = 128;  // exit codes from here on are those of signals
// After this time a program whose agent is not heard counts as lost.
constexpr Duration kLostProgram = seconds(300);

}  // namespace

// Whether a Done is repeated for this coordinator, which has taken over.
bool Coordinator::AdoptsEnd() const {
  return options_.await_programs && options_.resumed && current_.generation == 0;
}

void Coordinator::AdoptEnd(Peer& peer, const Done& done, Time now) {
  if (!programs_started_again_) return AwaitPrograms(done, now);
  EvictPeer(peer, std::string(peer.member), "a program failed after the last step");
}

void Coordinator::AwaitPrograms(const Done& done, Time now) {
  if (done.saved) report_.checkpoint_step = std::max(report_.checkpoint_step, done.step);
  newest_step_ = std::max(newest_step_, done.step);
  const bool adopted = current_.generation == 0;
  if (!adopted && CurrentBroken()) {
    // A member was lost after the last step, when no program knew of the end yet. The others write the
    // checkpoint and report the end once more, without it.
    if (!change_) StartChange(Urgency::kAbort, now);
    return;
  }
  Ending& ending = ending_.emplace(Ending{done, adopted, adopted ? now + options_.resumed_grace : now, {}});
  for (const Member& member : current_.members) ending.running[member.id] = true;
  change_.reset();
  failed_operation_.reset();
  abort_at_ = awaited_check_at_ = boundary_at_ = fatal_due_ = kNever;
  active_ = report_dirty_ = true;
  AddEvent(EventKind::kOther, "all steps are done; the job ends when its programs have ended");
  for (auto& [agent, peer] : peers_) {
    peer.awaited = false;
    if (adopted && !peer.member.empty()) ending.running[peer.member] = true;
    if (ending.running.contains(peer.member)) Send(peer, Exit{0, "finished", true, true});
  }
}

void Coordinator::OnMessageAtEnd(Peer& peer, const Message& message, Time now) {
  if (const auto* join = std::get_if<Join>(&message)) {
    // Repeated on a new connection, unless it is of a trainer that comes too late.
    if (!join->member.starts_with(peer.agent + ".")) return;
    if (!ending_->adopted && !ending_->running.contains(join->member)) return;
    peer.member = join->member;
    peer.lost_at = kNever;
    Count(peer);
    report_dirty_ = true;
  } else if (std::holds_alternative<Done>(message)) {
    if (ending_->adopted && !peer.member.empty()) ending_->running.try_emplace(peer.member, true);
    if (ending_->running.contains(peer.member)) Send(peer, Exit{0, "finished", true, true});
  } else if (const auto* down = std::get_if<Down>(&message)) {
    if (down->member.starts_with(peer.agent + ".")) OnProgramEnded(peer, *down, now);
  } else if (const auto* fatal = std::get_if<Fatal>(&message)) {
    if (fatal->member.starts_with(peer.agent + "."))
      OnProgramEnded(peer, Down{fatal->member, "exit", fatal->exit_code, fatal->message}, now);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    OnProgress(peer, *progress, now);
  } else if (const auto* facts = std::get_if<Facts>(&message)) {
    OnFacts(peer, *facts);
  }
}

void Coordinator::OnProgramEnded(Peer& peer, const Down& down, Time now) {
  if (ended_) return;
  if (ending_->adopted) ending_->running.try_emplace(down.member, true);
  const auto program = ending_->running.find(down.member);
  if (program == ending_->running.end() || !program->second) return;
  program->second = false;
  if (down.evidence == "exit" && down.exit_code == 0) return;
  const std::string pod = peer.pod;
  const std::string why = down.message;
  const bool wrong = down.exit_code == kExitBadInput;
  const bool killed = down.evidence == "exit" ? down.exit_code >= kSignalled : down.evidence == "eof";
  const bool first = ending_->adopted || ranks_.at(down.member) == 0;
  peer.failed_member = down.member;
  CountFailure(peer, {pod, down.evidence, down.exit_code, why});
  if (wrong) return Fail(pod + ": after the last step: " + why);
  // A program that was killed, such as with its node, says nothing about the work of the others. Rank 0 is
  // the one that writes files.
  if (killed && !first) return;
  StartProgramsAgain(now);
}

// The members load the checkpoint of the last step, and their programs do the rest again.
void Coordinator::StartProgramsAgain(Time now) {
  AddEvent(EventKind::kOther,
           "the programs start again, to do from the newest checkpoint what follows the last step");
  CountWithoutProgress();
  programs_started_again_ = true;
  const auto running = std::move(ending_->running);
  ending_.reset();
  std::vector<Peer*> late;  // their trainers may have joined after the last step
  for (auto& [agent, peer] : peers_) {
    if (!running.contains(peer.member)) {
      late.push_back(&peer);
      continue;
    }
    const std::string member = peer.member;
    EvictPeer(peer, member, "a program failed after the last step");
  }
  for (Peer* peer : late) ErasePeer(*peer);  // they connect again, and join
  active_ = survivors_hold_ = false;
  report_dirty_ = true;
  retry_at_ = now;
  first_join_ = kNever;
  CountLostSteps();
  SetCurrent({});
}

void Coordinator::CheckPrograms(Time now) {
  if (ended_) return;
  if (stop_requested_) {
    report_.done = ending_->done;
    report_.done->finished = false;
    End(GangPhase::kStopped, 0, "stopped on request, before the programs had ended");
    return;
  }
  // Not every backend reports the end of a pod.
  for (auto& [agent, peer] : peers_) {
    const auto program = ending_->running.find(peer.member);
    if (program == ending_->running.end() || !program->second) continue;
    if (peer.lost_at == kNever || now < peer.lost_at + kLostProgram) continue;
    OnProgramEnded(peer, Down{peer.member, "eof", 0, "its agent cannot be reached"}, now);
    return;  // peers_ may have changed
  }
  const auto runs = [](const auto& program) { return program.second; };
  if (now < ending_->due || std::ranges::any_of(ending_->running, runs)) return;
  report_.done = ending_->done;
  End(GangPhase::kFinished, 0, "finished");
}

}  // namespace ringmaster::rendezvous
