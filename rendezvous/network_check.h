// SPDX-License-Identifier: Apache-2.0

// NetworkCheck finds out whether the members of a first incarnation reach each other, before their programs
// start: an agent listens on the port of its next program, and every other agent connects to it. A program
// that cannot reach its peers would hang, or fail with an error that does not name the network.
//
// All agents take each of three steps (CheckStep) before any of them takes the next one. The check begins
// again, with a new number, when the members change, and after a pause when some of them cannot reach each
// other: a network policy or the network of a new node may need time.
//
// A pure state machine: time is an argument. Not thread-safe.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "rendezvous/job_coordinator.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

class NetworkCheck {
 public:
  struct Participant {
    ConnectionId connection = 0;
    Member member;  // id, pod and address
    bool operator==(const Participant&) const = default;
  };

  // `term`: of the coordinator, for the numbers of its checks.
  NetworkCheck(uint32_t term, Duration answer_limit, Duration pause)
      : term_(term), answer_limit_(answer_limit), pause_(pause) {}

  // Takes the steps that are due, for the members that the incarnation would have now. Returns whether all of
  // them reach each other; then the check has ended. Appends its messages to `outputs`.
  bool Advance(std::vector<Participant> members, Time now, std::vector<CoordinatorOutput>* outputs);
  // Returns whether Advance has something to do. Ignores answers to another step than the current one.
  bool OnAnswer(ConnectionId connection, const PeersChecked& answer);
  // No incarnation can be formed now: the next Advance begins again.
  void Abandon();
  // When Advance is due without an event; kNever: not at all.
  Time due() const { return due_; }
  void ShiftTimes(Duration gap);

  // What the last check has found: "train-1-0 cannot reach train-1-2 (10.0.0.7:41233): timed out after 5 s".
  // Empty: nothing.
  const std::string& unreachable() const { return unreachable_; }

 private:
  enum class Stage { kIdle, kStep, kPause };

  void Begin(Time now, std::vector<CoordinatorOutput>* outputs);
  void OrderStep(CheckStep step, Time now, std::vector<CoordinatorOutput>* outputs);
  bool AllHaveAnswered() const { return answers_.size() == participants_.size(); }
  std::string Describe() const;

  const uint32_t term_;
  const Duration answer_limit_;
  const Duration pause_;
  Stage stage_ = Stage::kIdle;
  CheckStep step_ = CheckStep::kListen;
  uint32_t sequence_ = 0;
  std::vector<Participant> participants_;                   // in the order of ranks
  std::unordered_map<ConnectionId, PeersChecked> answers_;  // to the current step
  Time due_ = kNever;  // kStep: when answers are missing; kPause: its end
  std::string unreachable_;
};

}  // namespace ringmaster::rendezvous
