// SPDX-License-Identifier: Apache-2.0

// A coordinator of programs whose agents are played by the test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/program_coordinator.h"

namespace ringmaster::rendezvous {

// Agents that carry out orders at once, except that a program ends only when the test says so.
class ProgramCoordinatorTest : public testing::Test {
 protected:
  void Make(int32_t min, int32_t target, int32_t max, uint32_t term = 1, bool resumed = false) {
    options_.job = "default/job";
    options_.min = min;
    options_.target = target;
    options_.max = max;
    options_.term = term;
    options_.resumed = resumed;
    if (!options_.programs) options_.programs.emplace();
    coordinator_.emplace(options_);
    connections_.clear();
    On(TimePassed{});
  }
  void On(const CoordinatorEvent& event) {
    coordinator_->On(event, now_);
    std::vector<ConnectionId> asked;
    for (CoordinatorOutput& output : coordinator_->Take()) {
      if (const auto* send = std::get_if<SendTo>(&output)) {
        for (const ConnectionId c : send->connections) Deliver(c, *send->message);
      }
      if (const auto* ask = std::get_if<AskArrival>(&output)) asked.push_back(ask->connection);
      if (const auto* line = std::get_if<EventLine>(&output)) lines_.push_back(line->text);
    }
    for (const ConnectionId c : asked) On(LastArrival{c, Time::min()});
    for (const auto& [n, order] : std::exchange(to_answer_, {})) Answer(n, order);
    for (const int n : std::exchange(to_report_, {})) Report(n);
  }
  void Pass(Duration duration) {
    const Time until = now_ + duration;
    while (coordinator_->next_wakeup() <= until) {
      now_ = std::max(now_, coordinator_->next_wakeup());
      for (const auto& [c, n] : connections_)
        if (!mute_.contains(n)) On(MessageFrom{c, Ping{}});
      On(TimePassed{});
    }
    now_ = until;
  }
  // Agent n of pod-n connects.
  void Connect(int n) {
    const ConnectionId c = ++last_connection_;
    connections_[c] = n;
    Hello hello = {"default/job", Pod(n), Agent(n), ""};
    if (const auto role = roles_.find(n); role != roles_.end()) hello.role = role->second;
    hello.checks_peers = checks_peers_ && !old_.contains(n);
    On(AgentConnected{c, hello});
    Report(n);
  }
  void Disconnect(int n) {
    const ConnectionId c = ConnectionOf(n);
    connections_.erase(c);
    On(AgentDisconnected{c});
  }
  void Report(int n) {
    state_[n].address = "10.0.0." + std::to_string(n) + ":" + std::to_string(1000 + starts_);
    if (const ConnectionId c = ConnectionOf(n); c != 0) On(MessageFrom{c, state_[n]});
  }
  void End(int n, int32_t exit_code, const std::string& message = "") {
    ProgramState& state = state_[n];
    state.phase = state.phase == ProgramPhase::kStopping ? ProgramPhase::kIdle : ProgramPhase::kEnded;
    state.exit_code = exit_code;
    state.evidence = "exit";
    state.message = message;
    Report(n);
  }
  // The programs that were ordered to stop end.
  void EndStopped() {
    for (const auto& [n, state] : std::map(state_))
      if (state.phase == ProgramPhase::kStopping) End(n, 143);
  }
  // Agent n takes a step of the check of the network.
  void Answer(int n, const CheckPeers& order) {
    PeersChecked result{order.number, order.step};
    if (order.step == CheckStep::kListen) listening_.insert(n);
    if (order.step == CheckStep::kEnd) listening_.erase(n);
    for (size_t i = 0; i < order.members.size(); ++i) {
      const int peer = std::stoi(order.members[i].id.substr(6));
      EXPECT_TRUE(listening_.contains(peer)) << n << " connects to " << peer;
      if (blocked_.contains({n, peer}))
        result.unreachable.push_back({static_cast<int32_t>(i), "timed out after 5 s"});
    }
    if (const ConnectionId c = ConnectionOf(n); c != 0) On(MessageFrom{c, result});
  }
  void Deliver(ConnectionId c, const Message& message) {
    if (!connections_.contains(c)) return;
    const int n = connections_.at(c);
    if (mute_.contains(n)) return;
    ProgramState& state = state_[n];
    if (const auto* start = std::get_if<StartProgram>(&message)) {
      const auto self = std::find_if(start->members.begin(), start->members.end(),
                                     [&](const Member& member) { return member.id == Agent(n); });
      ASSERT_NE(self, start->members.end());
      last_start_ = *start;
      if (state.phase == ProgramPhase::kRunning && start->generation == state.generation &&
          start->life == state.life) {
        ASSERT_GT(start->version, state.version);
        state.version = start->version;
        to_report_.insert(n);
        return;
      }
      ASSERT_GT(std::pair(start->generation, start->life), std::pair(state.generation, state.life));
      EXPECT_TRUE(listening_.empty()) << "a program would find the listener of an agent";
      state = {ProgramPhase::kRunning, start->generation, static_cast<int32_t>(self - start->members.begin()),
               static_cast<int32_t>(start->members.size())};
      state.life = start->life;
      state.version = start->version;
      to_report_.insert(n);
      ++starts_;
    } else if (const auto* stop = std::get_if<StopProgram>(&message)) {
      if (state.phase == ProgramPhase::kRunning && stop->generation >= state.generation) {
        state.phase = ProgramPhase::kStopping;
        stop_grace_ms_ = stop->grace_ms;
        to_report_.insert(n);
      }
    } else if (const auto* check = std::get_if<CheckPeers>(&message)) {
      checks_[n].push_back(*check);
      if (!withholding_.contains(n)) to_answer_.emplace_back(n, *check);
    } else if (const auto* exit = std::get_if<Exit>(&message)) {
      exits_[n] = exit->code;
      if (exit->finished) finished_.insert(n);
    }
  }
  ConnectionId ConnectionOf(int n) const {
    for (const auto& [c, of] : connections_)
      if (of == n) return c;
    return 0;
  }
  static std::string Pod(int n) { return "pod-" + std::to_string(n); }
  static std::string Agent(int n) { return "agent-" + std::to_string(n); }
  bool Runs(int n) const { return state_.at(n).phase == ProgramPhase::kRunning; }
  const rendezvous::Report& report() { return coordinator_->report(); }
  void Form(std::initializer_list<int> agents) {
    for (const int n : agents) Connect(n);
    for (const int n : agents) ASSERT_TRUE(Runs(n)) << n;
    ASSERT_EQ(report().phase, GangPhase::kActive);
  }

  CoordinatorOptions options_;
  std::optional<ProgramCoordinator> coordinator_;
  Time now_{seconds(1000)};
  ConnectionId last_connection_ = 0;
  std::map<ConnectionId, int> connections_;
  std::map<int, ProgramState> state_;
  std::map<int, std::string> roles_;  // of agents that are no workers
  std::map<int, int32_t> exits_;
  std::set<int> finished_;  // agents whose Exit says that the job is finished
  std::set<int> mute_;
  std::set<int> to_report_;
  // The check of the network.
  bool checks_peers_ = false;
  std::set<int> old_;                      // agents of earlier builds
  std::set<std::pair<int, int>> blocked_;  // the first cannot reach the second
  std::set<int> withholding_;              // agents that do not answer
  std::set<int> listening_;
  std::map<int, std::vector<CheckPeers>> checks_;  // what each agent received
  std::vector<std::pair<int, CheckPeers>> to_answer_;
  std::vector<std::string> lines_;
  StartProgram last_start_;
  int starts_ = 0;
  int64_t stop_grace_ms_ = -1;
};

}  // namespace ringmaster::rendezvous
