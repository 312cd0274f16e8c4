// SPDX-License-Identifier: Apache-2.0

#include "bench/operator/pod_agents.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <deque>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "rendezvous/codec.h"
#include "worker/agent/program/program_agent.h"
#include "worker/agent/shell/coordinator_link.h"

namespace ringmaster::bench {
namespace {

namespace program = rendezvous::program;
using agent::CoordinatorLink;

// Pings are this late at most. Shorter turns would take the processors from what is measured.
constexpr int kTurnMs = 20;
// Below the server's limit for connections of one address that it has not authenticated, and few enough for
// CoordinatorLink::kConnectLimit.
constexpr size_t kMostConnecting = 16;
constexpr size_t kSmallFrame = 2048;  // a larger one has the members, and is the same for all
constexpr int32_t kPort = 29400;      // of the programs, which do not exist

}  // namespace

struct PodAgents::Agent {
  explicit Agent(const agent::Config& from)
      : config(from),
        core(agent::MemberOptionsOf(config)),
        link(config.coordinator_host, config.coordinator_port, config.ca_file) {}

  agent::Config config;
  rendezvous::ProgramMemberCore core;
  CoordinatorLink link;
  bool welcome = false;
  std::deque<program::Event> events;
  bool executing = false;
};

PodAgents::PodAgents(const std::vector<agent::Config>& configs) {
  for (const agent::Config& config : configs) {
    CHECK(config.slots == 1 && !config.program.empty(), "{}: not one program", config.pod);
    agents_.push_back(std::make_unique<Agent>(config));
  }
}

PodAgents::~PodAgents() = default;

void PodAgents::Run() {
  since_ = Now();
  std::vector<pollfd> polled(agents_.size() + 1);
  const auto ended = [](const auto& agent) { return agent->core.ended(); };
  while (!std::all_of(agents_.begin(), agents_.end(), ended)) {
    StartAgents();
    for (size_t i = 0; i < agents_.size(); ++i) polled[i] = agents_[i]->link.PollFor();
    polled.back() = {STDIN_FILENO, POLLIN, 0};
    CHECK(::poll(polled.data(), polled.size(), kTurnMs) >= 0, "poll: error {}", errno);
    if (polled.back().revents != 0 && !ReadInput()) return;
    const Time now = Now();
    for (size_t i = 0; i < agents_.size(); ++i) {
      Agent& agent = *agents_[i];
      if (polled[i].revents != 0 || now >= agent.link.deadline()) OnLink(agent, polled[i].revents, now);
      if (now >= agent.core.next_wakeup()) Feed(agent, program::Tick{});
    }
  }
}

void PodAgents::StartAgents() {
  const auto welcome = static_cast<size_t>(
      std::count_if(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->welcome; }));
  for (; next_ < agents_.size() && next_ < welcome + kMostConnecting; ++next_)
    Feed(*agents_[next_], program::Started{});
}

// ---- the coordinator

void PodAgents::OnLink(Agent& agent, short revents, Time now) {
  const CoordinatorLink::State before = agent.link.state();
  const Status status = agent.link.OnReady(revents, now);
  const bool is_up = agent.link.state() == CoordinatorLink::State::kUp;
  if (!status.ok()) {
    if (before == CoordinatorLink::State::kUp) Read(agent);
    LoseLink(agent, status.error());
  } else if (is_up && before != CoordinatorLink::State::kUp) {
    Feed(agent, program::Connected{});
  } else if (is_up) {
    Read(agent);
  }
}

void PodAgents::Read(Agent& agent) {
  while (agent.link.state() == CoordinatorLink::State::kUp) {
    const auto frame = agent.link.NextFrame();
    if (!frame.ok()) return LoseLink(agent, frame.error());
    if (!frame.value()) return;
    rendezvous::Message message = Decode(**frame);
    agent.welcome = agent.welcome || std::holds_alternative<rendezvous::Welcome>(message);
    Feed(agent, program::FromCoordinator{std::move(message)});
  }
}

// The members are decoded once for all agents, which decode them on as many machines.
rendezvous::Message PodAgents::Decode(std::string_view frame) {
  if (last_message_ && frame == last_frame_) return *last_message_;
  auto message = rendezvous::DecodeBody(frame.substr(4));
  CHECK(message.ok(), "{}", message.error().message);
  if (frame.size() > kSmallFrame) {
    last_frame_ = frame;
    last_message_ = *message;
  }
  return std::move(message).value();
}

void PodAgents::LoseLink(Agent& agent, const Error& why) {
  if (agent.link.state() == CoordinatorLink::State::kIdle) return;
  if (!agent.welcome) fmt::print(stderr, "{}: no coordinator: {}\n", agent.config.pod, why.message);
  agent.link.Close();
  Feed(agent, program::Disconnected{});
}

void PodAgents::Send(Agent& agent, rendezvous::Message message) {
  if (agent.link.state() != CoordinatorLink::State::kUp) return;
  if (auto* hello = std::get_if<rendezvous::Hello>(&message)) {
    Result<std::string> secret = agent::ReadSecret(agent.config.secret_file);
    CHECK(secret.ok(), "{}", secret.error().message);
    hello->secret = std::move(secret).value();
  }
  if (auto* state = std::get_if<rendezvous::ProgramState>(&message);
      state != nullptr &&
      (state->phase == rendezvous::ProgramPhase::kIdle || state->phase == rendezvous::ProgramPhase::kEnded))
    state->address = fmt::format("{}:{}", agent.config.address, kPort);
  if (const Status sent = agent.link.Send(message); !sent.ok()) LoseLink(agent, sent.error());
}

// ---- the core, as in worker/agent/program/program_agent.cc

void PodAgents::Feed(Agent& agent, program::Event event) {
  agent.events.push_back(std::move(event));
  if (agent.executing) return;  // an event caused by a command: the outer call's loop handles it
  agent.executing = true;
  while (!agent.events.empty()) {
    const program::Event next = std::move(agent.events.front());
    agent.events.pop_front();
    agent.core.On(next, Now());
    for (const program::Command& command : agent.core.Take()) Execute(agent, command);
  }
  agent.executing = false;
}

void PodAgents::Execute(Agent& agent, const program::Command& command) {
  if (std::holds_alternative<program::Connect>(command)) {
    agent.link.Connect(Now());
  } else if (const auto* up = std::get_if<program::Send>(&command)) {
    Send(agent, up->message);
  } else if (const auto* start = std::get_if<program::Start>(&command)) {
    CountStart(start->order);
  } else if (const auto* check = std::get_if<program::Check>(&command)) {
    Feed(agent, program::Checked{{check->order.number, check->order.step}});
  } else if (const auto* signal = std::get_if<program::Signal>(&command)) {
    Feed(agent, program::Ended{128 + (signal->kill ? 9 : 15), "exit", "", Duration{0}});
  } else {
    agent.link.Close();
  }
}

void PodAgents::CountStart(const rendezvous::StartProgram& order) {
  if (order.generation < generation_) return;
  if (order.generation > std::exchange(generation_, order.generation)) started_ = 0;
  if (++started_ < order.members.size()) return;
  fmt::print("started {} after {:.6f}\n", started_, ToSeconds(Now() - since_));
  std::fflush(stdout);
}

// ---- the input

bool PodAgents::ReadInput() {
  std::array<char, 256> bytes;
  const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got <= 0) return false;
  input_.append(bytes.data(), static_cast<size_t>(got));
  for (size_t end = 0; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1)) {
    constexpr std::string_view kFail = "fail ";
    const std::string_view line = std::string_view(input_).substr(0, end);
    int32_t rank = -1;
    if (line.starts_with(kFail)) std::from_chars(line.data() + kFail.size(), line.data() + line.size(), rank);
    FailRank(rank);
  }
  return true;
}

void PodAgents::FailRank(int32_t rank) {
  const auto it = std::find_if(agents_.begin(), agents_.end(), [&](const auto& agent) {
    const rendezvous::ProgramState& state = agent->core.state();
    return state.phase == rendezvous::ProgramPhase::kRunning && state.generation == generation_ &&
           state.rank == rank;
  });
  CHECK(it != agents_.end(), "no program runs as rank {}", rank);
  since_ = Now();
  Feed(**it, program::Ended{1, "exit", "RuntimeError: the benchmark ends this rank", Duration{0}});
}

}  // namespace ringmaster::bench
