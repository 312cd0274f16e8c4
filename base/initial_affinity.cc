// SPDX-License-Identifier: Apache-2.0

#include "base/initial_affinity.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace ringmaster {
namespace {

constexpr unsigned long kMaxCpus = 8192;

// Constructors run before main, so nothing but a global object can carry this from before them to main.
unsigned long initial_cpus[kMaxCpus / 8 / sizeof(unsigned long)];
long initial_bytes = 0;  // of the mask that the kernel wrote; at most 0: unknown

// Runs before the constructors of libraries, and before the run-time of sanitizers is ready.
__attribute__((no_sanitize("address", "thread", "undefined"))) void RecordAffinity(int /*argc*/,
                                                                                   char** /*argv*/,
                                                                                   char** /*environment*/) {
  initial_bytes = ::syscall(SYS_sched_getaffinity, 0, sizeof initial_cpus, initial_cpus);
}

__attribute__((section(".preinit_array"), used)) void (*const kRecordAffinity)(int, char**,
                                                                               char**) = RecordAffinity;

}  // namespace

void RestoreInitialAffinity() {
  if (initial_bytes > 0) ::syscall(SYS_sched_setaffinity, 0, initial_bytes, initial_cpus);
}

}  // namespace ringmaster
