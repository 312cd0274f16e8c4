// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/exec_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "base/exit_codes.h"

namespace ringmaster::agent {

std::vector<char*> PointersForExec(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void BecomeChildOf(pid_t agent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The agent may have died before the line above took effect.
  if (::getppid() != agent) ::_exit(0);
  ::setpgid(0, 0);
  if (::getpriority(PRIO_PROCESS, 0) < 0) ::setpriority(PRIO_PROCESS, 0, 0);  // drop the agent's priority
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void ExitWithExecFailure(int fd) {
  const int why = errno;
  [[maybe_unused]] const ssize_t put = ::write(fd, &why, sizeof why);
  ::_exit(kExitCannotStart);
}

int ReadExecFailure(int fd) {
  int why = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &why, sizeof why);
  } while (got < 0 && errno == EINTR);
  return got == sizeof why ? why : 0;
}

}  // namespace ringmaster::agent
