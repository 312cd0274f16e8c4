// SPDX-License-Identifier: Apache-2.0

// The fixture of the coordinator's tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator.h"

namespace ringmaster::rendezvous {

// A gang of agents that answer when the test says so.
class CoordinatorTest : public testing::Test {
 protected:
  void Make(int32_t min, int32_t target, int32_t max) {
    options_.job = "default/job";
    options_.min = min;
    options_.target = target;
    options_.max = max;
    options_.term = 7;
    coordinator_.emplace(options_);
    On(TimePassed{});
  }
  void On(const CoordinatorEvent& event) {
    coordinator_->On(event, now_);
    std::vector<ConnectionId> asked;
    for (CoordinatorOutput& output : coordinator_->Take()) {
      if (auto* send = std::get_if<SendTo>(&output)) {
        for (const ConnectionId c : send->connections) sent_.push_back({c, *send->message});
      }
      if (auto* ask = std::get_if<AskArrival>(&output)) asked.push_back(ask->connection);
      if (auto* line = std::get_if<EventLine>(&output)) {
        lines_.push_back(std::move(*line));
      }
      if (auto* out = std::get_if<ProgressOut>(&output)) progress_.push_back(out->progress);
    }
    for (const ConnectionId c : asked) {
      const auto arrived = arrived_.find(c);
      On(LastArrival{c, arrived == arrived_.end() ? Time::min() : arrived->second});
    }
  }
  void Pass(Duration duration) {
    const Time until = now_ + duration;
    while (coordinator_->next_wakeup() <= until) {
      now_ = std::max(now_, coordinator_->next_wakeup());
      for (ConnectionId c : alive_) On(MessageFrom{c, Ping{}});
      On(TimePassed{});
    }
    now_ = until;
  }
  void Join(ConnectionId c) {
    alive_.push_back(c);
    On(AgentConnected{c, {"default/job", "pod-" + std::to_string(c), "agent-" + std::to_string(c), ""}});
    On(MessageFrom{c, rendezvous::Join{Id(c), "x"}});
  }
  static std::string Id(ConnectionId c) { return "agent-" + std::to_string(c) + ".1"; }
  template <class T>
  std::optional<T> Last(ConnectionId c) {
    for (auto it = sent_.rbegin(); it != sent_.rend(); ++it) {
      if (it->connection != c) continue;
      if (const T* found = std::get_if<T>(&it->message)) return *found;
    }
    return std::nullopt;
  }
  void Answer(ConnectionId c, int64_t step) {  // -1: no state
    const auto prepare = Last<Prepare>(c);
    ASSERT_TRUE(prepare.has_value());
    MemberStatus status;
    status.generation = prepare->generation;
    status.member = Id(c);
    status.has_state = step >= 0;
    status.step = std::max<int64_t>(step, 0);
    status.can_roll_back = step > 0;
    status.params_hash = static_cast<uint64_t>(step);
    if (prepare->find_checkpoint) status.checkpoint_step = coordinator_->report().checkpoint_step;
    On(MessageFrom{c, status});
  }
  // This member reports that the next step is committed.
  void Commit(ConnectionId c, double seconds) {
    Progress progress;
    progress.records.push_back({});
    progress.records[0].step = coordinator_->report().step + 1;
    progress.records[0].seconds = seconds;
    On(MessageFrom{c, progress});
  }
  void Form(std::vector<ConnectionId> members) {
    for (const ConnectionId c : members) Join(c);
    Pass(seconds(1));
    for (const ConnectionId c : members) Answer(c, -1);
    ASSERT_EQ(coordinator_->report().phase, GangPhase::kActive);
  }

  CoordinatorOptions options_;
  std::optional<Coordinator> coordinator_;
  Time now_{};
  struct Sent {
    ConnectionId connection = 0;
    Message message;
  };
  std::vector<Sent> sent_;
  std::map<ConnectionId, Time> arrived_;  // bytes that the server has not read yet
  std::vector<EventLine> lines_;
  std::vector<Progress> progress_;
  std::vector<ConnectionId> alive_;
};

}  // namespace ringmaster::rendezvous
