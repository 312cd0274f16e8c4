// SPDX-License-Identifier: Apache-2.0

// What a process and its descendants do, from /proc, and which of them take a signal. Linux only.
// Thread-safe; reads a few files for each process, so call it rarely.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::agent {

struct ProcessWork {
  Duration cpu{};         // of the processes that run now, and of those that they have collected
  uint64_t io_bytes = 0;  // that they have read and written, as far as /proc shows it to this process
  bool stopped = false;   // one of them is stopped by a signal
  bool blocked = false;   // one of them waits for a disk, in uninterruptible sleep
  ProcessWork& operator+=(const ProcessWork& other);
};

// A process that cannot be read does nothing.
ProcessWork WorkOf(pid_t pid);

// Whether the process catches the signal, or blocks it to read it from a descriptor.
bool TakesSignal(pid_t pid, int signal);

// Returns the first process on each path from `pid` down that takes the signal. What is below such a process
// is its own matter: processes that Python has forked have its handlers.
std::vector<pid_t> ReceiversOf(pid_t pid, int signal);

// Returns up to three of these processes for people: "pid 77 (cat), state D; pid 78 (python), state D; 4
// more".
std::string DescribeProcesses(const std::vector<pid_t>& pids);

}  // namespace ringmaster::agent
