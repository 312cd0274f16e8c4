// SPDX-License-Identifier: Apache-2.0

// bench_room [nodes] [pods] [jobs] [shapes]
//
// Measures what the operator does with its lock held when capacity changes: the update for a pod, the update
// for a node, and the sweep over the waiting gangs. Defaults: 5,000 nodes with 8 GPUs, 100,000 pods, 2,000
// waiting gangs of 24 shapes. Prints the median, the 99th percentile and the maximum of each.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/core/capacity/capacity.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {
namespace {

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr int64_t kGiB = int64_t{1} << 30;

struct Scale {
  uint64_t nodes = 5'000;
  uint64_t pods = 100'000;
  uint64_t jobs = 2'000;
  uint64_t shapes = 24;
};

NodeFacts Node(uint64_t i) {
  NodeFacts node;
  node.name = fmt::format("node-{}", i);
  node.allocatable = {{"cpu", 128'000}, {"memory", 1024 * kGiB}, {kGpu, 8}, {"pods", 110}};
  node.labels = {{"kubernetes.io/hostname", node.name}, {"rack", fmt::format("r{}", i / 32)}};
  node.taints = {{kGpu, "", "NoSchedule"}};
  return node;
}

Capacity::Shape Shape(uint64_t i) {
  PodShape shape;
  shape.requests = {{"cpu", 4'000 + static_cast<int64_t>(i)}, {"memory", 32 * kGiB}, {kGpu, 8}};
  shape.tolerations = {{kGpu, true, "", "NoSchedule"}};
  if (i % 4 == 3) shape.topology_key = "rack";
  return std::make_shared<const PodShape>(std::move(shape));
}

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Runs `work` `times` times, each after `prepare`, and prints how long one run of `work` takes.
void Measure(const char* what, int times, const std::function<void()>& prepare,
             const std::function<void()>& work) {
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    prepare();
    const auto start = std::chrono::steady_clock::now();
    work();
    us.push_back(MicrosecondsSince(start));
  }
  std::sort(us.begin(), us.end());
  fmt::print("{:<40} {:>9.1f} us median {:>9.1f} us p99 {:>9.1f} us max\n", what, us[us.size() / 2],
             us[us.size() * 99 / 100], us.back());
}

void Run(const Scale& scale) {
  fmt::print("{} nodes, {} pods, {} waiting gangs of {} shapes\n", scale.nodes, scale.pods, scale.jobs,
             scale.shapes);
  SplitMix64 rng(1);
  Capacity capacity;
  for (uint64_t i = 0; i < scale.nodes; ++i) capacity.SetNode(Node(i));
  const Resources small = {{"cpu", 500}, {"memory", kGiB}};
  const Resources gpus = {{"cpu", 8'000}, {"memory", 64 * kGiB}, {kGpu, 4}};
  std::vector<std::string> names;
  for (uint64_t i = 0; i < scale.pods; ++i) {
    names.push_back(fmt::format("team-{}/job-{}-1-{}", i % 40, i / 10, i % 10));
    capacity.SetPod(names.back(), i < scale.nodes ? gpus : small, fmt::format("node-{}", i % scale.nodes));
  }
  std::vector<Capacity::Shape> shapes;
  for (uint64_t i = 0; i < scale.shapes; ++i) shapes.push_back(Shape(i));
  RoomQueue queue;
  for (uint64_t i = 0; i < scale.jobs; ++i)
    queue.Set(fmt::format("team-{}/waits-{}", i % 40, i), {shapes[i % shapes.size()], 8, {}, {}}, capacity);
  // The lock is free between two parts of a sweep.
  double longest_part_us = 0;
  const auto sweep = [&] {
    for (RoomQueue::Sweep pass; !pass.done();) {
      const auto start = std::chrono::steady_clock::now();
      queue.Ready(capacity, pass);
      longest_part_us = std::max(longest_part_us, MicrosecondsSince(start));
    }
  };
  const auto measure_sweep = [&](const char* what, int times, const std::function<void()>& prepare) {
    longest_part_us = 0;
    Measure(what, times, prepare, sweep);
    fmt::print("{:<40} {:>9.1f} us\n", "  longest part", longest_part_us);
  };
  const auto nothing = [] {};
  const auto replace = [&](uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      const std::string& name = names[scale.nodes + rng.Below(scale.pods - scale.nodes)];
      capacity.RemovePod(name);
      capacity.SetPod(name, small, fmt::format("node-{}", rng.Below(scale.nodes)));
    }
  };
  measure_sweep("first sweep", 1, nothing);
  Measure("a pod ends and another one is bound", 10'000, nothing, [&] { replace(1); });
  Measure("a node changes", 1'000, nothing, [&] { capacity.SetNode(Node(rng.Below(scale.nodes))); });
  measure_sweep("sweep, 10 pods have changed", 100, [&] { replace(10); });
  measure_sweep("sweep, 1,000 pods have changed", 20, [&] { replace(1'000); });
  measure_sweep("sweep, all nodes have changed", 5, [&] {
    for (uint64_t i = 0; i < scale.nodes; ++i) capacity.SetNode(Node(i));
  });
  Measure(
      "room for one gang", 1'000, [&] { replace(1); },
      [&] { capacity.FitOf(shapes[rng.Below(shapes.size())], 8); });
}

}  // namespace
}  // namespace ringmaster::core

int main(int argc, char** argv) {
  ringmaster::core::Scale scale;
  uint64_t* const values[] = {&scale.nodes, &scale.pods, &scale.jobs, &scale.shapes};
  for (int i = 1; i < argc && i <= 4; ++i) *values[i - 1] = std::strtoull(argv[i], nullptr, 10);
  ringmaster::core::Run(scale);
  return 0;
}
