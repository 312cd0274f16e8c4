// SPDX-License-Identifier: Apache-2.0

// PodAgents is the agents of a gang whose pods are on fake nodes, in one loop: a ProgramMemberCore and a
// connection to the coordinator for each pod, with the configuration and the token that the pod has. Only the
// programs are missing: one runs from the order to start it until a signal or Fail.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/messages.h"
#include "rendezvous/program_member.h"
#include "worker/agent/trainer/config.h"

namespace ringmaster::bench {

class PodAgents {
 public:
  // REQUIRES: one slot in each pod, and a program.
  explicit PodAgents(const std::vector<agent::Config>& configs);
  ~PodAgents();

  // Serves all connections. Returns when the standard input has ended or every agent has to exit.
  //
  // A line "fail RANK" on the standard input ends the program of this rank with exit code 1. When all
  // programs of an incarnation have been started, "started COUNT after SECONDS" is printed: seconds since the
  // failure, or since Run began.
  void Run();

 private:
  struct Agent;

  // Connects further agents, a few at a time.
  void StartAgents();
  void OnLink(Agent& agent, short revents, Time now);
  void Read(Agent& agent);
  void LoseLink(Agent& agent, const Error& why);
  rendezvous::Message Decode(std::string_view frame);
  void Feed(Agent& agent, rendezvous::program::Event event);
  void Execute(Agent& agent, const rendezvous::program::Command& command);
  void Send(Agent& agent, rendezvous::Message message);
  void CountStart(const rendezvous::StartProgram& order);
  // Returns false at the end of the input.
  bool ReadInput();
  void FailRank(int32_t rank);

  std::vector<std::unique_ptr<Agent>> agents_;
  size_t next_ = 0;  // to connect
  std::string input_;
  std::string last_frame_;
  std::optional<rendezvous::Message> last_message_;  // of last_frame_
  rendezvous::Generation generation_ = 0;            // the newest one that an agent has started
  size_t started_ = 0;                               // programs of it
  Time since_{};
};

}  // namespace ringmaster::bench
