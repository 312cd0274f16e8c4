// SPDX-License-Identifier: Apache-2.0

// Signals that the agent passes on to its program, such as an order to write a checkpoint.
#pragma once

#include <signal.h>

#include <algorithm>
#include <array>

namespace ringmaster::agent {

// Not the signals of a terminal (SIGTSTP, SIGCONT, SIGWINCH): a program has none, and one that is stopped
// counts as hung.
constexpr std::array kPassedSignals = {SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

constexpr bool IsPassed(int signal) {
  return std::find(kPassedSignals.begin(), kPassedSignals.end(), signal) != kPassedSignals.end();
}

inline void AddPassedSignals(sigset_t& set) {
  for (const int signal : kPassedSignals) ::sigaddset(&set, signal);
}

}  // namespace ringmaster::agent
