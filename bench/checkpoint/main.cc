// SPDX-License-Identifier: Apache-2.0

// Measures the memory that saving and loading a checkpoint takes, in multiples of the state.
//
//   bench_checkpoint save FOLDER PARAMETERS [STEPS]   the state is in memory; what the writer adds
//   bench_checkpoint load FOLDER                      nothing is in memory; what the loader holds at most
//
// Prints one line. Peaks are those of the process (VmHWM), less what it had before.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "worker/checkpoint/checkpoint.h"

namespace ringmaster {
namespace {

// Returns the peak of the resident memory in bytes.
int64_t Peak() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) << 10;
  CHECK(false, "/proc/self/status has no VmHWM");
}

void Report(const std::string& what, int64_t state, int64_t before, Time begin) {
  const int64_t more = Peak() - before;
  fmt::print("{}: {:.1f} MB more than before, for a state of {:.1f} MB: {:.3f} times the state; {:.1f} s\n",
             what, static_cast<double>(more) / 1e6, static_cast<double>(state) / 1e6,
             static_cast<double>(more) / static_cast<double>(state), ToSeconds(Now() - begin));
}

void Save(const std::string& folder, int64_t parameters, int64_t steps) {
  checkpoint::Snapshot snapshot;
  snapshot.model = "bench";
  std::vector<std::vector<float>> arrays;
  for (const char* name : {"params", "adamw.m", "adamw.v"}) {
    arrays.emplace_back(static_cast<size_t>(parameters), 1.0F);
    snapshot.arrays.push_back({name, "f32", std::as_bytes(std::span(arrays.back()))});
  }
  auto writer = checkpoint::Writer::Create(folder, 1, "bench");
  CHECK(writer.ok(), "{}", writer.error().message);
  const int64_t before = Peak();
  const Time begin = Now();
  for (snapshot.step = 1; snapshot.step <= steps; ++snapshot.step) {
    CHECK((*writer)->Start(snapshot).ok());
    const Status written = (*writer)->Wait();
    CHECK(written.ok(), "{}", written.error().message);
  }
  Report("save", parameters * 3 * int64_t{sizeof(float)}, before, begin);
}

void Load(const std::string& folder) {
  const int64_t before = Peak();
  const Time begin = Now();
  const auto loaded = checkpoint::Load(folder);
  CHECK(loaded.ok(), "{}", loaded.error().message);
  int64_t state = 0;
  for (const auto& part : loaded->arrays) state += static_cast<int64_t>(part.bytes.size());
  Report("load", state, before, begin);
}

int Main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  const int64_t parameters = argc > 3 ? std::atoll(argv[3]) : 0;
  if (what == "save" && parameters > 0) {
    Save(argv[2], parameters, argc > 4 ? std::atoll(argv[4]) : 2);
  } else if (what == "load") {
    Load(argv[2]);
  } else {
    fmt::print(stderr, "usage: bench_checkpoint save FOLDER PARAMETERS [STEPS] | load FOLDER\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) { return ringmaster::Main(argc, argv); }
