// SPDX-License-Identifier: Apache-2.0

#include "cli/run/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"

namespace ringmaster::cli {

namespace {

bool HasTerminal() {
  return ::isatty(STDIN_FILENO) == 1 || ::isatty(STDOUT_FILENO) == 1 || ::isatty(STDERR_FILENO) == 1;
}

}  // namespace

Signals::Signals() : had_terminal_(HasTerminal()) {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ours, signal);
  CHECK(::pthread_sigmask(SIG_BLOCK, &ours, nullptr) == 0);
  fd_ = Fd(::signalfd(-1, &ours, SFD_NONBLOCK | SFD_CLOEXEC));
  CHECK(fd_.valid());
}

std::optional<int> Signals::Next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  // A terminal that was closed is none any more. The kernel sends the signal to the foreground, and shells
  // send it to their other jobs.
  if (info.ssi_signo == SIGHUP && had_terminal_ && !HasTerminal()) return kTerminalClosed;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace ringmaster::cli
