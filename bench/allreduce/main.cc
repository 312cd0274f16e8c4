// SPDX-License-Identifier: Apache-2.0

// Measures the fabric's all-reduce; forks one process per rank.
//
//   bench_allreduce shm|shm-private|ucx NP SMALLEST_BYTES LARGEST_BYTES
//   bench_allreduce abort NP BYTES
//   bench_allreduce cpu NP BYTES
//   bench_allreduce form NP
//   bench_allreduce probe
//
// The first form prints "bytes min_us median_us" per size. "abort" prints the milliseconds (shortest, median,
// longest) over UCX from an abort in the middle of an all-reduce to the end of the first barrier of the next
// generation, at rank 0; "cpu" the microseconds of processor time of a call over UCX, in the program and in
// the system, the mean over the ranks: on a busy machine it says more than the time that passes; "form" the
// milliseconds until NP ranks are connected over UCX, and the memory and descriptors of rank 0 before and
// after; "probe" the state of the machine (probe.h).
//
// RINGMASTER_BENCH_NAMESPACES=A,B distributes the ranks of UCX over these named network namespaces, in turn.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "bench/allreduce/plan.h"
#include "bench/allreduce/probe.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::bench {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kAborts = 20;

// Memory that the ranks share, for their addresses and results.
struct SharedPage {
  std::atomic<int> written;
  char addresses[kMaxRanks][16384];
  double times[kMaxRanks][kMostSamples];
};

struct Run {
  std::string what;  // shm, shm-private, ucx, abort, cpu or form
  std::string transport;
  bool shared = true;
  int world = 2;
  size_t smallest = 8;
  size_t largest = 0;
};

template <class T>
T Must(Result<T> result, const char* what) {
  if (!result.ok()) {
    fmt::print(stderr, "{}: {}\n", what, result.error().message);
    std::_Exit(1);
  }
  return std::move(result).value();
}

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::_Exit(1);
}

// Enters one of the namespaces that the environment names.
void EnterNamespace(int rank) {
  const char* const names = std::getenv("RINGMASTER_BENCH_NAMESPACES");
  if (names == nullptr) return;
  const std::string_view both(names);
  const size_t comma = both.find(',');
  CHECK(comma != std::string_view::npos, "RINGMASTER_BENCH_NAMESPACES: expected A,B, got {}", names);
  const std::string_view name = rank % 2 == 0 ? both.substr(0, comma) : both.substr(comma + 1);
  const int fd = ::open(fmt::format("/var/run/netns/{}", name).c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0, "no network namespace {}", name);
  // UCX finds network devices in /sys, which shows those of the namespace in which it was mounted.
  CHECK(::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0 &&
            ::mount("sysfs", "/sys", "sysfs", 0, "") == 0,
        "cannot mount /sys");
}

size_t ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:" && status >> word) return std::stoull(word);
  return 0;
}

size_t CountDescriptors() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(descriptors), end(descriptors)));
}

// Returns the milliseconds from an abort by rank 0 to the end of the first barrier of the next generation.
double MeasureAbort(fabric::Fabric& fabric, fabric::Membership& membership, std::span<float> data) {
  auto communicator = Must(fabric.Connect(membership), "connect");
  Must(communicator->Barrier());
  std::atomic<int> calls{0};
  std::atomic<double> aborted_us{0};
  std::thread aborter;
  if (membership.rank == 0)
    aborter = std::thread([&, generation = membership.generation] {
      while (calls.load() < 3) ::sched_yield();
      aborted_us = NowUs();
      fabric.Abort(generation);
    });
  while (communicator->AllReduce(data, fabric::ReduceOp::kSum).ok()) ++calls;
  calls = 3;
  if (aborter.joinable()) aborter.join();
  communicator.reset();
  ++membership.generation;
  communicator = Must(fabric.Connect(membership), "connect again");
  Must(communicator->Barrier());
  ++membership.generation;
  return (NowUs() - aborted_us) / 1000;
}

// Prints the processor time of a call, in the program and in the system.
void MeasureCpu(fabric::Communicator& communicator, SharedPage& page, int rank, int world,
                std::span<float> data) {
  const auto calls = std::clamp(static_cast<int>((size_t{512} << 20) / data.size_bytes()), 50, 5000);
  const auto call = [&] { Must(communicator.AllReduce(data, fabric::ReduceOp::kSum)); };
  std::fill(data.begin(), data.end(), 0.0f);
  for (int i = 0; i < calls / 10; ++i) call();
  Must(communicator.Barrier());
  rusage before = {};
  rusage after = {};
  ::getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < calls; ++i) call();
  ::getrusage(RUSAGE_SELF, &after);
  const auto us = [&](const timeval& from, const timeval& to) {
    return (static_cast<double>(to.tv_sec - from.tv_sec) * 1e6 +
            static_cast<double>(to.tv_usec - from.tv_usec)) /
           calls;
  };
  page.times[rank][0] = us(before.ru_utime, after.ru_utime);
  page.times[rank][1] = us(before.ru_stime, after.ru_stime);
  Must(communicator.Barrier());
  double sums[2] = {};
  for (int q = 0; q < world; ++q)
    for (int kind = 0; kind < 2; ++kind) sums[kind] += page.times[q][kind] / world;
  if (rank == 0) fmt::print("{:.2f} {:.2f}\n", sums[0], sums[1]);
  Must(communicator.Barrier());
}

bool RunRank(const Run& run, SharedPage& page, int rank) {
  if (run.transport == "ucx") EnterNamespace(rank);
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= run.world) {
    int nth = rank;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set) || nth-- != 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      // Pin after the fabric is created, because it counts CPUs by affinity.
      set = one;
      break;
    }
  } else {
    CPU_ZERO(&set);
  }
  fabric::FabricOptions options;
  options.transport = run.transport;
  const auto fabric = Must(fabric::Fabric::Create(options), "fabric");
  std::span<std::byte> memory =
      Must(fabric->Allocate(std::max<size_t>(run.largest, 4096), "bench"), "allocate");
  // As malloc returns large buffers: 16 bytes behind a page.
  constexpr size_t kHeader = 16;
  const std::unique_ptr<void, decltype(&std::free)> own(
      std::aligned_alloc(4096, (kHeader + run.largest + 4095) / 4096 * 4096), &std::free);
  CHECK(own != nullptr);
  float* const data = run.shared ? reinterpret_cast<float*>(memory.data())
                                 : reinterpret_cast<float*>(static_cast<std::byte*>(own.get()) + kHeader);
  const std::string address = fabric->Address();
  CHECK(address.size() < sizeof page.addresses[0]);
  std::memcpy(page.addresses[rank], address.c_str(), address.size() + 1);
  page.written.fetch_add(1);
  while (page.written.load() < run.world) ::sched_yield();
  fabric::Membership membership;
  membership.generation = 1;
  membership.rank = rank;
  for (int q = 0; q < run.world; ++q) membership.addresses.emplace_back(page.addresses[q]);
  if (run.what == "abort") {
    std::vector<double> times;
    for (int i = 0; i < kAborts; ++i)
      times.push_back(MeasureAbort(*fabric, membership, std::span(data, run.largest / sizeof *data)));
    std::sort(times.begin(), times.end());
    if (rank == 0) fmt::print("{:.2f} {:.2f} {:.2f}\n", times.front(), times[kAborts / 2], times.back());
    return true;
  }
  if (run.what == "form") {
    const size_t kib = ResidentKib();
    const size_t descriptors = CountDescriptors();
    const double begin_us = NowUs();
    const auto formed = Must(fabric->Connect(membership), "connect");
    Must(formed->Barrier());
    if (rank == 0)
      fmt::print("{:.0f} ms, {} and {} KiB, {} and {} descriptors\n", (NowUs() - begin_us) / 1000, kib,
                 ResidentKib(), descriptors, CountDescriptors());
    Must(formed->Barrier());
    return true;
  }
  const auto communicator = Must(fabric->Connect(membership), "connect");
  if (CPU_COUNT(&set) == 1) ::sched_setaffinity(0, sizeof set, &set);
  if (run.what == "cpu") {
    MeasureCpu(*communicator, page, rank, run.world, std::span(data, run.largest / sizeof *data));
    return true;
  }

  bool good = true;
  for (const size_t bytes : Sizes(run.smallest, run.largest)) {
    good = Measure(
               bytes, data, rank, run.world,
               [&](float* values, size_t count) {
                 Must(communicator->AllReduce(std::span(values, count), fabric::ReduceOp::kSum));
               },
               [&] { Must(communicator->Barrier()); },
               [&](const std::vector<double>& mine) {
                 std::copy(mine.begin(), mine.end(), page.times[rank]);
                 Must(communicator->Barrier());
                 std::vector<double> slowest = mine;
                 for (size_t i = 0; i < slowest.size(); ++i)
                   for (int q = 0; q < run.world; ++q) slowest[i] = std::max(slowest[i], page.times[q][i]);
                 Must(communicator->Barrier());
                 return slowest;
               }) &&
           good;
  }
  if (!good) fmt::print(stderr, "rank {}: wrong sum\n", rank);
  return good;
}

int RunAll(const Run& run) {
  void* const memory =
      ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const page = new (memory) SharedPage;
  std::vector<pid_t> children;
  for (int rank = 0; rank < run.world; ++rank) {
    const pid_t pid = ::fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const bool good = RunRank(run, *page, rank);
      std::fflush(stdout);
      ::_exit(good ? 0 : 1);
    }
    children.push_back(pid);
  }
  int failed = 0;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using ringmaster::bench::Run;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "probe") {
    ringmaster::bench::PrintProbe();
    return 0;
  }
  Run run;
  run.what = words.empty() ? "" : words[0];
  const size_t expected = run.what == "form" ? 2 : run.what == "abort" || run.what == "cpu" ? 3 : 4;
  if (words.size() != expected) {
    fmt::print(stderr,
               "usage: bench_allreduce shm|shm-private|ucx NP SMALLEST_BYTES LARGEST_BYTES, "
               "bench_allreduce abort|cpu NP BYTES, bench_allreduce form NP, or bench_allreduce probe\n");
    return 2;
  }
  run.shared = run.what == "shm";
  run.transport = run.what == "shm" || run.what == "shm-private" ? "shm" : "ucx";
  run.world = std::clamp(std::atoi(words[1].c_str()), 1, ringmaster::bench::kMaxRanks);
  if (expected == 4) run.smallest = std::strtoull(words[2].c_str(), nullptr, 10);
  if (expected > 2) run.largest = std::strtoull(words.back().c_str(), nullptr, 10);
  return ringmaster::bench::RunAll(run);
}
