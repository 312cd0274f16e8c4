// SPDX-License-Identifier: Apache-2.0

// A coordinator and an agent process for tests: real sockets, real processes, every wait with a deadline.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "base/fd.h"
#include "base/time.h"
#include "rendezvous/codec.h"
#include "tests/temp_folder.h"

namespace ringmaster::agent {

// Long enough for a busy machine; only reached by a failing test.
inline constexpr Duration kPatience = seconds(120);

// Polls `condition` every few milliseconds until it holds (returns true) or `limit` has passed.
bool Eventually(const std::function<bool()>& condition, Duration limit = kPatience);
bool WaitReadable(int fd, Duration limit = kPatience);

// Accepts one agent at a time on a free port.
class TestCoordinator {
 public:
  TestCoordinator();

  std::string address() const;
  // Waits for a connection and its Hello, and answers with Welcome.
  std::optional<rendezvous::Hello> Accept();
  void Hang() { connection_.Reset(); }
  void Send(const rendezvous::Message& message);
  // Returns the next message, skipping pings (and Progress, unless requested); nullopt at the end of the
  // connection or after kPatience.
  std::optional<rendezvous::Message> Next();
  // Skips to the next message of type T; fails the test when there is none.
  template <class T>
  T Expect() {
    while (auto message = Next()) {
      if (auto* found = std::get_if<T>(&*message)) return std::move(*found);
    }
    ADD_FAILURE() << "the message did not come";
    return {};
  }
  // Waits for the next ping.
  bool ExpectPing();
  // Reads until the connection ends; returns false after kPatience.
  bool ExpectEnd();

 private:
  std::optional<rendezvous::Message> NextOfAnyKind();

  Fd listener_;
  Fd connection_;
  rendezvous::Decoder decoder_;
};

class AgentProcess {
 public:
  // `trainer`: behaviour and number for fake_trainer. `extra` sets or (when empty) removes variables;
  // AGENT_PROGRAM names another agent, and AGENT_WORDS its arguments, one a line.
  AgentProcess(const TestCoordinator& coordinator, const std::string& trainer,
               const std::map<std::string, std::string>& extra = {}, int stdout_fd = -1);
  // Kills the agent if it still runs.
  ~AgentProcess();
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Returns the exit code, or 128 + signal; nullopt when it still runs after kPatience.
  std::optional<int> Wait();

  std::string Output() const;
  std::string TerminationLog() const;
  static constexpr const char* kSecret = "a-secret-of-this-run-only";

 private:
  TempFolder folder_;
  pid_t pid_ = -1;
};

// ---- inspecting processes
Fd OpenPid(pid_t pid);  // a pidfd: readable when it has ended
int64_t RssKib(pid_t pid);
int OpenFds(pid_t pid);
int Threads(pid_t pid);
std::string Children(pid_t pid);  // pids, separated by spaces

}  // namespace ringmaster::agent
