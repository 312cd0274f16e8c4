// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/network_check.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ringmaster::rendezvous {
namespace {

constexpr size_t kNamed = 3;           // findings that the text has in full
constexpr size_t kMaxPartBytes = 300;  // bytes of an address or a reason in the text

std::string Shorten(const std::string& text) { return text.substr(0, kMaxPartBytes); }

}  // namespace

bool NetworkCheck::Advance(std::vector<Participant> members, Time now,
                           std::vector<CoordinatorOutput>* outputs) {
  if (members.size() < 2) {
    Abandon();
    return true;
  }
  if (stage_ == Stage::kIdle || members != participants_) {
    participants_ = std::move(members);
    Begin(now, outputs);
    return false;
  }
  if (stage_ == Stage::kPause) {
    if (now >= due_) Begin(now, outputs);
    return false;
  }
  if (!AllHaveAnswered() && now < due_) return false;
  if (std::string found = Describe(); !found.empty()) {
    unreachable_ = std::move(found);
    stage_ = Stage::kPause;
    due_ = now + pause_;
    return false;
  }
  if (step_ == CheckStep::kEnd) {
    Abandon();
    return true;
  }
  OrderStep(step_ == CheckStep::kListen ? CheckStep::kConnect : CheckStep::kEnd, now, outputs);
  return false;
}

bool NetworkCheck::OnAnswer(ConnectionId connection, const PeersChecked& answer) {
  const uint64_t number = static_cast<uint64_t>(term_) << 32 | sequence_;
  if (stage_ != Stage::kStep || answer.number != number || answer.step != step_) return false;
  const bool takes_part = std::any_of(participants_.begin(), participants_.end(),
                                      [&](const Participant& p) { return p.connection == connection; });
  if (!takes_part) return false;
  answers_[connection] = answer;
  return AllHaveAnswered();
}

void NetworkCheck::Abandon() {
  stage_ = Stage::kIdle;
  participants_.clear();
  answers_.clear();
  due_ = kNever;
  unreachable_.clear();
}

void NetworkCheck::ShiftTimes(Duration gap) {
  if (due_ != kNever) due_ += gap;
}

void NetworkCheck::Begin(Time now, std::vector<CoordinatorOutput>* outputs) {
  ++sequence_;
  OrderStep(CheckStep::kListen, now, outputs);
}

void NetworkCheck::OrderStep(CheckStep step, Time now, std::vector<CoordinatorOutput>* outputs) {
  stage_ = Stage::kStep;
  step_ = step;
  answers_.clear();
  due_ = now + answer_limit_;
  CheckPeers order{static_cast<uint64_t>(term_) << 32 | sequence_, step};
  SendTo send;
  for (const Participant& participant : participants_) {
    send.connections.push_back(participant.connection);
    if (step == CheckStep::kConnect) order.members.push_back(participant.member);
  }
  send.message = std::make_shared<const Message>(std::move(order));
  outputs->push_back(std::move(send));
}

std::string NetworkCheck::Describe() const {
  std::string text;
  size_t findings = 0;
  const auto add = [&](const std::string& finding) {
    if (++findings <= kNamed) text += (text.empty() ? "" : "; ") + finding;
  };
  for (const Participant& participant : participants_) {
    const std::string& pod = participant.member.pod;
    const auto it = answers_.find(participant.connection);
    if (it == answers_.end()) {
      add(pod + " has not finished the check of the network in " +
          std::to_string(ToMs(answer_limit_) / 1000) + " s");
      continue;
    }
    if (!it->second.failure.empty()) add("no worker can reach " + pod + ": " + Shorten(it->second.failure));
    for (const UnreachablePeer& found : it->second.unreachable) {
      if (found.peer < 0 || static_cast<size_t>(found.peer) >= participants_.size()) continue;
      const Member& peer = participants_[static_cast<size_t>(found.peer)].member;
      add(pod + " cannot reach " + peer.pod + " (" + Shorten(peer.address) + "): " + Shorten(found.why));
    }
  }
  if (findings > kNamed) text += "; and " + std::to_string(findings - kNamed) + " more";
  return text;
}

}  // namespace ringmaster::rendezvous
