// SPDX-License-Identifier: Apache-2.0

#include "bench/allreduce/probe.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <vector>

#include "base/check.h"
#include "bench/allreduce/plan.h"

namespace ringmaster::bench {
namespace {

struct Shared {
  alignas(64) std::atomic<int> turn[2];
  alignas(64) double exchange_us[2];
  double seconds[2];
};

constexpr int kExchanges = 20000;
constexpr size_t kFloats = 8 << 20;  // 32 MiB each of two arrays
constexpr int kSums = 3;

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void Side(Shared& shared, int side) {
  Pin(side);
  auto& mine = shared.turn[side];
  auto& other = shared.turn[1 - side];
  const double start = NowUs();
  for (int i = 1; i <= kExchanges; ++i) {
    mine.store(i, std::memory_order_release);
    for (int spins = 0; other.load(std::memory_order_acquire) < i; ++spins)
      if (spins % 1000 == 999) ::sched_yield();
  }
  shared.exchange_us[side] = (NowUs() - start) / kExchanges;
  std::vector<float> a(kFloats, 1.0f);
  std::vector<float> b(kFloats, 2.0f);
  mine.store(kExchanges + 1, std::memory_order_release);
  while (other.load(std::memory_order_acquire) < kExchanges + 1) ::sched_yield();
  const double begin = NowUs();
  for (int s = 0; s < kSums; ++s)
    for (size_t i = 0; i < kFloats; ++i) a[i] = b[i] = a[i] + b[i];
  shared.seconds[side] = (NowUs() - begin) * 1e-6;
  CHECK(a[1] == b[1]);
}

}  // namespace

void PrintProbe() {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const shared = new (memory) Shared{};
  const pid_t child = ::fork();
  CHECK(child >= 0);
  Side(*shared, child == 0 ? 1 : 0);
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const double slower = std::max(shared->seconds[0], shared->seconds[1]);
  std::printf("exchange %.3f us, two-process sum %.1f GB/s\n", shared->exchange_us[0],
              2.0 * kSums * kFloats * 16 / slower * 1e-9);
  ::munmap(memory, sizeof(Shared));
}

}  // namespace ringmaster::bench
