// SPDX-License-Identifier: Apache-2.0

// bench_queue [nodes] [jobs] [load] [nodes of a rack]
//
// Replays one synthetic trace of jobs through three orders, over the same Capacity: the queue of the
// scheduling gate (core/room_queue.h), plain FIFO, in which a job that does not fit blocks those behind it,
// and the order that the gate had before the queue: all waiting jobs are tried by name when room becomes
// free, and a new job takes what it finds. Prints utilisation, waiting times by size, and fairness between
// namespaces. Virtual time, deterministic, without a scheduler: each pod runs from its reservation to its
// end.
//
// The order of the queue is replayed twice more with a topology: all jobs prefer one rack; and jobs that fit
// into a rack require one. Every replay prints which share of the jobs with several workers is in one rack.
//
// The trace has the statistics that are published of GPU jobs in Helios (Hu et al., "Characterization and
// Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC '21; the summary of its artifact,
// helios_cluster_summary.csv, row "total"): a median run time of 206 s and a mean of 6,651.7 s, and 1 GPU in
// the median and 3.716 GPUs in the mean. Run times are log-normal, which these two numbers determine. Sizes
// are powers of two: 55% of the jobs have one GPU, and each further doubling is rarer by the factor that
// gives the mean. Jobs arrive at random (Poisson) so that they ask for `load` of all GPUs in the long run,
// from 20 namespaces, of which the i-th submits a share proportional to 1 / i. A worker has up to 8 GPUs.
//
// Defaults: 778 nodes of 8 GPUs, which are as many GPUs as Helios has (6,220), 200,000 jobs, load 1.5: a part
// of the load comes after the last arrival, since the longest jobs are longer than the trace.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "operator/core/capacity/capacity.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {
namespace {

constexpr const char* kGpu = "nvidia.com/gpu";
constexpr const char* kRack = "rack";
constexpr double kMedianSeconds = 206;
constexpr double kMeanSeconds = 6651.681;
constexpr double kMeanGpus = 3.716;
constexpr double kOneGpu = 0.55;
constexpr int32_t kGpusOfNode = 8;
constexpr int kLargest = 9;  // a job has at most 2^9 GPUs
constexpr int kSpaces = 20;
constexpr double kSweepEvery = 1;  // seconds, as in the operator

struct Scale {
  int64_t nodes = 778;
  int64_t jobs = 200'000;
  double load = 1.5;
  int64_t rack = 32;  // nodes of each
};

enum class Topology : uint8_t { kNone, kPreferred, kRequired };

struct TraceJob {
  std::string name;
  int space = 0;
  double at = 0;
  double seconds = 0;
  int32_t gpus = 1;
  int32_t pods() const { return (gpus + kGpusOfNode - 1) / kGpusOfNode; }
  int32_t gpus_of_pod() const { return std::min(gpus, kGpusOfNode); }
};

// Returns the probability of each power of two.
std::array<double, kLargest + 1> SizeShares() {
  const auto shares_of = [](double factor) {
    std::array<double, kLargest + 1> shares{};
    double sum = 0;
    for (int i = 1; i <= kLargest; ++i) sum += shares[static_cast<size_t>(i)] = std::pow(factor, i);
    for (int i = 1; i <= kLargest; ++i) shares[static_cast<size_t>(i)] *= (1 - kOneGpu) / sum;
    shares[0] = kOneGpu;
    return shares;
  };
  const auto mean_of = [](const std::array<double, kLargest + 1>& shares) {
    double mean = 0;
    for (int i = 0; i <= kLargest; ++i) mean += shares[static_cast<size_t>(i)] * std::pow(2, i);
    return mean;
  };
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (mean_of(shares_of(middle)) < kMeanGpus ? low : high) = middle;
  }
  return shares_of(low);
}

std::vector<TraceJob> DrawTrace(const Scale& scale) {
  SplitMix64 rng(1);
  const auto shares = SizeShares();
  const double sigma = std::sqrt(2 * std::log(kMeanSeconds / kMedianSeconds));
  const auto uniform = [&] { return std::max(rng.Uniform(), 1e-12); };
  const auto normal = [&] {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * 3.14159265358979 * uniform());
  };
  std::vector<TraceJob> jobs;
  double work = 0;
  for (int64_t i = 0; i < scale.jobs; ++i) {
    TraceJob& job = jobs.emplace_back();
    double draw = rng.Uniform();
    size_t size = 0;
    while (size < kLargest && draw >= shares[size]) draw -= shares[size++];
    job.gpus = 1 << size;
    job.seconds = std::max(1.0, kMedianSeconds * std::exp(sigma * normal()));
    double space = 0;
    for (int s = 1; s <= kSpaces; ++s) space += 1.0 / s;
    space *= rng.Uniform();
    while (job.space + 1 < kSpaces && space >= 1.0 / (job.space + 1)) space -= 1.0 / ++job.space;
    job.name = fmt::format("team-{:02}/job-{:06}", job.space, rng.Below(1'000'000));
    job.name += fmt::format("-{}", i);
    work += job.gpus * job.seconds;
  }
  // So that the drawn jobs ask for the load, not only the expected ones.
  const double span = work / (scale.load * static_cast<double>(scale.nodes) * kGpusOfNode);
  std::vector<double> arrivals;
  double total = 0;
  for (size_t i = 0; i < jobs.size(); ++i) arrivals.push_back(total += -std::log(uniform()));
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].at = arrivals[i] / total * span;
  return jobs;
}

// The cluster under one order.
class Replay {
 public:
  Replay(const Scale& scale, const std::vector<TraceJob>& jobs, Topology topology = Topology::kNone)
      : jobs_(jobs), gpus_(static_cast<double>(scale.nodes) * kGpusOfNode), rack_(scale.rack) {
    for (int64_t i = 0; i < scale.nodes; ++i) {
      NodeFacts node;
      node.name = fmt::format("n{:05}", i);
      node.allocatable = {{kGpu, kGpusOfNode}, {"pods", 110}};
      node.labels[kRack] = std::to_string(i / scale.rack);
      capacity.SetNode(std::move(node));
    }
    for (int32_t gpus = 1; gpus <= kGpusOfNode; gpus *= 2) {
      PodShape shape;
      shape.requests[kGpu] = gpus;
      if (topology != Topology::kNone) shape.preferred_key = kRack;
      shapes_[gpus] = std::make_shared<const PodShape>(shape);
      if (topology == Topology::kRequired) shape.topology_key = kRack;
      in_rack_[gpus] = std::make_shared<const PodShape>(std::move(shape));
    }
    started_at_.resize(jobs.size(), -1);
  }

  const Capacity::Shape& ShapeOf(size_t job) const {
    return (jobs_[job].pods() <= rack_ ? in_rack_ : shapes_).at(jobs_[job].gpus_of_pod());
  }
  double now() const { return now_; }
  // Starts the job if it fits.
  bool Start(size_t job) {
    std::vector<std::string> pods;
    for (int32_t i = 0; i < jobs_[job].pods(); ++i) pods.push_back(fmt::format("{}-{}", jobs_[job].name, i));
    if (!capacity.Reserve(pods, ShapeOf(job))) return false;
    if (pods.size() > 1) {
      std::set<std::string> racks;
      for (const std::string& pod : pods) racks.insert(capacity.DomainOf(pod, kRack).value_or(""));
      gangs_ += 1;
      in_one_rack_ += racks.size() == 1 ? 1 : 0;
    }
    started_at_[job] = now_;
    ends_.emplace(now_ + jobs_[job].seconds, job);
    return true;
  }

  // `arrive`: a job arrives. `serve`: room has become free.
  void Run(const std::function<void(size_t)>& arrive, const std::function<void()>& serve) {
    size_t next = 0;
    bool freed = false;
    double served = -kSweepEvery;
    while (next < jobs_.size() || !ends_.empty()) {
      const double end = ends_.empty() ? 1e300 : ends_.begin()->first;
      const double arrival = next < jobs_.size() ? jobs_[next].at : 1e300;
      const double sweep = freed ? served + kSweepEvery : 1e300;
      now_ = std::max(now_, std::min({end, arrival, sweep}));
      if (sweep <= std::min(end, arrival)) {
        served = now_;
        freed = false;
        serve();
      } else if (end <= arrival) {
        const size_t job = ends_.begin()->second;
        ends_.erase(ends_.begin());
        for (int32_t i = 0; i < jobs_[job].pods(); ++i)
          capacity.Unreserve(fmt::format("{}-{}", jobs_[job].name, i));
        freed = true;
      } else {
        arrive(next++);
      }
    }
  }

  void Print(const char* name, double took_ms) const {
    // Until the last arrival: after it the cluster empties.
    const double span = jobs_.back().at;
    double used = 0;
    std::map<int, std::vector<double>> waits;  // by class
    std::vector<double> got(kSpaces, 0);
    std::vector<double> asked(kSpaces, 0);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const TraceJob& job = jobs_[i];
      const double begin = started_at_[i] < 0 ? span : started_at_[i];
      const double work = std::max(0.0, std::min(span, begin + job.seconds) - begin) * job.gpus;
      used += work;
      got[static_cast<size_t>(job.space)] += work;
      asked[static_cast<size_t>(job.space)] += std::min(job.seconds, span - job.at) * job.gpus;
      waits[ClassOf(job)].push_back(begin - job.at);
    }
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double ratio = got[i] / asked[i];
      sum += ratio;
      squares += ratio * ratio;
    }
    fmt::print("{:<12} utilisation {:.3f}  fairness {:.4f}  gangs in one rack {:.3f}  {:>8.0f} ms\n", name,
               used / (gpus_ * span), sum * sum / (static_cast<double>(got.size()) * squares),
               static_cast<double>(in_one_rack_) / static_cast<double>(std::max<int64_t>(gangs_, 1)),
               took_ms);
    static const char* const kNames[] = {"1 GPU", "2-4", "8", "16-64", "128-512"};
    for (auto& [size, of] : waits) {
      std::vector<double> sorted = of;
      std::sort(sorted.begin(), sorted.end());
      double total = 0;
      for (const double wait : sorted) total += wait;
      fmt::print("  {:<8} {:>6} jobs  wait mean {:>9.0f} s  p99 {:>9.0f} s  max {:>9.0f} s\n", kNames[size],
                 sorted.size(), total / static_cast<double>(sorted.size()), sorted[sorted.size() * 99 / 100],
                 sorted.back());
    }
  }

  Capacity capacity;

 private:
  static int ClassOf(const TraceJob& job) {
    return job.gpus == 1 ? 0 : job.gpus <= 4 ? 1 : job.gpus <= 8 ? 2 : job.gpus <= 64 ? 3 : 4;
  }
  const std::vector<TraceJob>& jobs_;
  const double gpus_;
  const int64_t rack_;
  std::map<int32_t, Capacity::Shape> shapes_;
  std::map<int32_t, Capacity::Shape> in_rack_;  // of jobs that fit into a rack
  int64_t gangs_ = 0;                           // with several pods
  int64_t in_one_rack_ = 0;
  std::multimap<double, size_t> ends_;
  std::vector<double> started_at_;
  double now_ = 0;
};

double Measured(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void RunQueue(const Scale& scale, const std::vector<TraceJob>& jobs, const char* name, int64_t span,
              Topology topology = Topology::kNone) {
  Replay replay(scale, jobs, topology);
  RoomQueue queue({span, {}});
  std::map<std::string, size_t> numbers;
  for (size_t i = 0; i < jobs.size(); ++i) numbers[jobs[i].name] = i;
  const auto try_job = [&](size_t job) {
    RoomQueue::Standing standing;
    standing.created = static_cast<int64_t>(jobs[job].at);
    bool started = false;
    {
      std::optional<Capacity::WithoutClaim> lifted;
      if (queue.MayUseClaim(jobs[job].name, standing, replay.capacity)) lifted.emplace(replay.capacity);
      started = replay.Start(job);
    }
    if (!started)
      return queue.Set(jobs[job].name, {replay.ShapeOf(job), jobs[job].pods(), {}, standing},
                       replay.capacity);
    queue.Remove(jobs[job].name, replay.capacity);
  };
  const auto serve = [&] {
    for (RoomQueue::Sweep sweep; !sweep.done();)
      for (const std::string& job : queue.Ready(replay.capacity, sweep)) try_job(numbers.at(job));
  };
  const double took = Measured([&] { replay.Run(try_job, serve); });
  replay.Print(name, took);
}

void RunFifo(const Scale& scale, const std::vector<TraceJob>& jobs) {
  Replay replay(scale, jobs);
  std::vector<size_t> line;
  size_t first = 0;
  const auto serve = [&] {
    while (first < line.size() && replay.Start(line[first])) first += 1;
  };
  const double took = Measured([&] {
    replay.Run(
        [&](size_t job) {
          line.push_back(job);
          serve();
        },
        serve);
  });
  replay.Print("FIFO", took);
}

void RunByName(const Scale& scale, const std::vector<TraceJob>& jobs) {
  Replay replay(scale, jobs);
  std::map<std::string, size_t> waiting;
  const auto serve = [&] {
    for (auto it = waiting.begin(); it != waiting.end();)
      it = replay.Start(it->second) ? waiting.erase(it) : std::next(it);
  };
  const double took = Measured([&] {
    replay.Run(
        [&](size_t job) {
          if (!replay.Start(job)) waiting.emplace(jobs[job].name, job);
        },
        serve);
  });
  replay.Print("by name", took);
}

void Run(const Scale& scale) {
  const std::vector<TraceJob> jobs = DrawTrace(scale);
  double gpus = 0;
  double seconds = 0;
  for (const TraceJob& job : jobs) {
    gpus += job.gpus;
    seconds += job.seconds;
  }
  const auto count = static_cast<double>(jobs.size());
  fmt::print("{} nodes of {} GPUs, {} jobs in {:.1f} days: {:.2f} GPUs and {:.0f} s in the mean\n",
             scale.nodes, kGpusOfNode, jobs.size(), jobs.back().at / 86400, gpus / count, seconds / count);
  RunQueue(scale, jobs, "queue", 86'400);
  RunQueue(scale, jobs, "preferred", 86'400, Topology::kPreferred);
  RunQueue(scale, jobs, "required", 86'400, Topology::kRequired);
  RunQueue(scale, jobs, "age only", 0);
  RunFifo(scale, jobs);
  RunByName(scale, jobs);
}

}  // namespace
}  // namespace ringmaster::core

int main(int argc, char** argv) {
  ringmaster::core::Scale scale;
  if (argc > 1) scale.nodes = std::strtoll(argv[1], nullptr, 10);
  if (argc > 2) scale.jobs = std::strtoll(argv[2], nullptr, 10);
  if (argc > 3) scale.load = std::strtod(argv[3], nullptr);
  if (argc > 4) scale.rack = std::strtoll(argv[4], nullptr, 10);
  ringmaster::core::Run(scale);
  return 0;
}
