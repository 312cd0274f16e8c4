// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/metrics.h"

#include <dirent.h>
#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/mutex.h"

namespace ringmaster::serve {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

const Labels kController = {{"controller", "trainingjob"}};
const Labels kQueue = {{"controller", "trainingjob"}, {"name", "trainingjob"}};

// The buckets of controller-runtime and client-go, in seconds.
const Histogram::BucketBoundaries kReconcileBuckets = {
    0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
    0.7,   0.8,  0.9,   1,    1.25, 1.5,  1.75, 2,    2.5, 3,    3.5, 4,    4.5, 5,
    6,     7,    8,     9,    10,   15,   20,   25,   30,  40,   50,  60};
const Histogram::BucketBoundaries kQueueBuckets = {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10};
const Histogram::BucketBoundaries kRequestBuckets = {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60};
const Histogram::BucketBoundaries kRecoveryBuckets = {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                                      1,     2,     5,    10,   30,   60,  300, 1800};
const Histogram::BucketBoundaries kImbalanceBuckets = {1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 10};
const Histogram::BucketBoundaries kStartBuckets = {1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600};

template <class Builder>
auto& Build(Builder builder, prometheus::Registry& registry, std::vector<Metrics::Described>& table,
            const char* type, const char* name, const char* help) {
  table.push_back({name, type, help});
  return builder.Name(name).Help(help).Register(registry);
}

// The fields of /proc/self/stat after the name, which may contain spaces; [0] is the state.
std::vector<std::string> ProcessStat() {
  std::vector<std::string> fields;
  const Result<std::string> text = ReadFile("/proc/self/stat", 4096);
  if (!text.ok()) return fields;
  std::string_view rest = text.value();
  rest.remove_prefix(std::min(rest.size(), rest.rfind(')') + 2));
  while (!rest.empty()) {
    const size_t end = rest.find(' ');
    fields.emplace_back(rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return fields;
}

double Number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

int64_t OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t count = -3;  // ".", ".." and the open folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

class Metrics::Impl {
 public:
  Family<Counter>& MakeCounter(const char* name, const char* help) {
    return Build(BuildCounter(), registry, table, "counter", name, help);
  }
  Family<Gauge>& MakeGauge(const char* name, const char* help) {
    return Build(BuildGauge(), registry, table, "gauge", name, help);
  }
  Family<Histogram>& MakeHistogram(const char* name, const char* help) {
    return Build(BuildHistogram(), registry, table, "histogram", name, help);
  }

  prometheus::Registry registry;
  std::vector<Described> table;

  Family<Counter>& reconciles = MakeCounter("controller_runtime_reconcile_total",
                                            "Decisions by result: success, error, requeue_after.");
  Family<Counter>& reconcile_errors =
      MakeCounter("controller_runtime_reconcile_errors_total", "Decisions with a failed write.");
  Family<Histogram>& reconcile_time =
      MakeHistogram("controller_runtime_reconcile_time_seconds",
                    "Time from a decision to the last response to its writes.");
  Family<Gauge>& max_concurrent = MakeGauge("controller_runtime_max_concurrent_reconciles",
                                            "Decisions at the same time; their writes overlap.");
  Family<Gauge>& active_workers = MakeGauge("controller_runtime_active_workers", "Writes in flight.");
  Family<Gauge>& queue_depth = MakeGauge("workqueue_depth", "Jobs that wait for a decision.");
  Family<Counter>& queue_adds = MakeCounter("workqueue_adds_total", "Jobs added to the queue.");
  Family<Counter>& queue_retries =
      MakeCounter("workqueue_retries_total", "Jobs added to the queue again after a failure.");
  Family<Histogram>& queue_wait =
      MakeHistogram("workqueue_queue_duration_seconds", "Time that a job waits in the queue.");
  Family<Histogram>& queue_work =
      MakeHistogram("workqueue_work_duration_seconds", "Time that a decision takes.");
  Family<Counter>& requests = MakeCounter(
      "rest_client_requests_total", "Responses of the API server by method and code; <error>: no response.");
  Family<Histogram>& request_time =
      MakeHistogram("rest_client_request_duration_seconds", "Time to a response, by verb.");
  Family<Counter>& request_retries =
      MakeCounter("rest_client_request_retries_total",
                  "Retried requests, by verb and by the code of the response before.");
  Family<Counter>& failed_writes =
      MakeCounter("ringmaster_failed_writes_total",
                  "Failed writes, by action and code; codes of writes that another one overtook are normal.");
  Family<Gauge>& leading =
      MakeGauge("leader_election_master_status", "1 while this process holds the Lease.");
  Family<Gauge>& jobs = MakeGauge("ringmaster_jobs", "Jobs by phase.");
  Family<Gauge>& pods = MakeGauge("ringmaster_worker_pods", "Worker pods.");
  Family<Gauge>& gangs_waiting = MakeGauge("ringmaster_gangs_waiting", "Gangs that wait for capacity.");
  Family<Gauge>& namespaces_denied =
      MakeGauge("ringmaster_namespaces_denied",
                "Namespaces of --watch-namespaces in which the API server denies the operator its objects.");
  Family<Gauge>& queue_length =
      MakeGauge("ringmaster_queue_length",
                "Gangs of a namespace that wait for capacity, by job_namespace, of each one that has jobs.");
  Family<Gauge>& workers_connected =
      MakeGauge("ringmaster_workers_connected", "Agents connected to this process's rendezvous server.");
  Family<Gauge>& gpu_workers =
      MakeGauge("ringmaster_gpu_workers", "Workers that train on GPUs, by gpu (model) and driver.");
  Family<Gauge>& device_faults = MakeGauge("ringmaster_gpu_workers_in_trouble",
                                           "Workers with a GPU that is throttled, hot, or reports errors.");
  Family<Gauge>& stragglers = MakeGauge(
      "ringmaster_stragglers", "Workers that are slower than the others of their gang, which wait for them.");
  Family<Histogram>& imbalance = MakeHistogram("ringmaster_step_imbalance_ratio",
                                               "Busy time per step of the slowest worker, over the median of "
                                               "its gang; one value per gang and second.");
  Family<Gauge>& worker_busy = MakeGauge("ringmaster_worker_step_busy_seconds",
                                         "Time of a step in which the worker does not wait for others; "
                                         "`ringmaster run` only, which has one job.");
  Family<Gauge>& job_speed = MakeGauge("ringmaster_job_samples_per_second",
                                       "Samples per second of a job that trains, by job_namespace and "
                                       "trainingjob; with the operator's flag --job-metrics only.");
  Family<Gauge>& job_goodput =
      MakeGauge("ringmaster_job_goodput_samples_per_second",
                "Samples per second of wall time that a job keeps, over the last minute: pauses and repeated "
                "steps add none; by job_namespace and trainingjob; with --job-metrics only.");
  Family<Gauge>& cached = MakeGauge("ringmaster_cached_objects", "Objects in the cache, by kind.");
  Family<Counter>& restarts =
      MakeCounter("ringmaster_restarts_total",
                  "Restarts of all workers of a job; charged: whether it counts towards the job's limit.");
  Family<Counter>& ended =
      MakeCounter("ringmaster_jobs_ended_total", "Finished jobs, by outcome and reason.");
  Family<Histogram>& first_step = MakeHistogram(
      "ringmaster_first_step_seconds", "Time from the creation of a job to its first committed step.");
  Family<Counter>& steps = MakeCounter("ringmaster_steps_total", "Committed steps of all jobs.");
  Family<Counter>& samples = MakeCounter("ringmaster_samples_total", "Samples of the committed steps.");
  Family<Counter>& generations =
      MakeCounter("ringmaster_generations_total",
                  "Memberships formed; recovery: whether it followed the loss of a member.");
  Family<Counter>& worker_failures =
      MakeCounter("ringmaster_worker_failures_total", "Lost members, planned leaves excepted.");
  Family<Histogram>& recoveries = MakeHistogram(
      "ringmaster_recovery_seconds", "Time from the noticed loss of a member to the membership without it.");
  Family<Gauge>& loss = MakeGauge(
      "ringmaster_loss", "Training loss of the newest step; `ringmaster run` only, which has one job.");
  Family<Counter>& events_dropped =
      MakeCounter("ringmaster_events_dropped_total", "Events dropped because one job caused too many.");
  Family<Gauge>& cpu = MakeGauge("process_cpu_seconds_total", "User and system CPU time.");
  Family<Gauge>& resident = MakeGauge("process_resident_memory_bytes", "Resident memory.");
  Family<Gauge>& virtual_memory = MakeGauge("process_virtual_memory_bytes", "Virtual memory.");
  Family<Gauge>& descriptors = MakeGauge("process_open_fds", "Open file descriptors.");
  Family<Gauge>& max_descriptors = MakeGauge("process_max_fds", "Maximum number of open file descriptors.");
  Family<Gauge>& started = MakeGauge("process_start_time_seconds", "Start time in seconds since the epoch.");

  Mutex mutex;
  std::function<Gauges()> read RM_GUARDED_BY(mutex);
  std::map<std::string, Gauge*> busy_workers RM_GUARDED_BY(mutex);
  std::map<std::pair<std::string, std::string>, Gauge*> gpus RM_GUARDED_BY(mutex);  // all since the start
  using ByJob = std::map<std::pair<std::string, std::string>, Gauge*>;
  ByJob training RM_GUARDED_BY(mutex);
  ByJob goodputs RM_GUARDED_BY(mutex);
  std::map<std::string, Gauge*> queues RM_GUARDED_BY(mutex);

  void ReadProcess() {
    const std::vector<std::string> stat = ProcessStat();
    if (stat.size() > 21) {
      const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
      cpu.Add({}).Set((Number(stat[11]) + Number(stat[12])) / ticks);
      virtual_memory.Add({}).Set(Number(stat[20]));
      resident.Add({}).Set(Number(stat[21]) * static_cast<double>(sysconf(_SC_PAGESIZE)));
    }
    descriptors.Add({}).Set(static_cast<double>(OpenDescriptors()));
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
      max_descriptors.Add({}).Set(static_cast<double>(limit.rlim_cur));
  }

  static void CountTo(Counter& counter, int64_t total) {
    counter.Increment(std::max(static_cast<double>(total) - counter.Value(), 0.0));
  }

  // Sets the gauges of these jobs, and removes those of others.
  static void SetByJob(const std::map<std::pair<std::string, std::string>, double>& values,
                       Family<Gauge>& family, ByJob& gauges) {
    std::erase_if(gauges, [&](const auto& known) {
      if (values.contains(known.first)) return false;
      family.Remove(known.second);
      return true;
    });
    for (const auto& [job, value] : values) {
      Gauge* const gauge = &family.Add({{"job_namespace", job.first}, {"trainingjob", job.second}});
      gauges.try_emplace(job, gauge).first->second->Set(value);
    }
  }

  void ReadGauges() {
    std::function<Gauges()> current;
    {
      MutexLock lock(mutex);
      current = read;
    }
    if (!current) return;
    const Gauges now = current();
    MutexLock lock(mutex);  // several scrapes may run at the same time
    CountTo(queue_adds.Add(kQueue), now.queue_adds);
    CountTo(queue_retries.Add(kQueue), now.queue_retries);
    CountTo(events_dropped.Add({}), now.events_dropped);
    queue_depth.Add(kQueue).Set(static_cast<double>(now.queue_depth));
    active_workers.Add(kController).Set(static_cast<double>(now.writes_in_flight));
    pods.Add({}).Set(static_cast<double>(now.pods));
    gangs_waiting.Add({}).Set(static_cast<double>(now.gangs_waiting));
    namespaces_denied.Add({}).Set(static_cast<double>(now.namespaces_denied));
    workers_connected.Add({}).Set(static_cast<double>(now.workers_connected));
    for (const auto& [phase, count] : now.jobs_by_phase)
      jobs.Add({{"phase", phase}}).Set(static_cast<double>(count));
    device_faults.Add({}).Set(static_cast<double>(now.workers_with_device_fault));
    stragglers.Add({}).Set(static_cast<double>(now.stragglers));
    // A GPU kind without workers reports 0, not its last value.
    for (auto& [gpu, gauge] : gpus) gauge->Set(0);
    for (const auto& [gpu, count] : now.workers_by_gpu) {
      Gauge* const gauge = &gpu_workers.Add({{"gpu", gpu.first}, {"driver", gpu.second}});
      gpus.try_emplace(gpu, gauge).first->second->Set(static_cast<double>(count));
    }
    std::erase_if(queues, [&](const auto& known) {
      if (now.queue_lengths.contains(known.first)) return false;
      queue_length.Remove(known.second);
      return true;
    });
    for (const auto& [space, length] : now.queue_lengths) {
      Gauge* const gauge = &queue_length.Add({{"job_namespace", space}});
      queues.try_emplace(space, gauge).first->second->Set(static_cast<double>(length));
    }
    SetByJob(now.samples_per_second, job_speed, training);
    SetByJob(now.goodput, job_goodput, goodputs);
    for (const auto& [kind, count] : now.cached_objects)
      cached.Add({{"kind", kind}}).Set(static_cast<double>(count));
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  impl_->max_concurrent.Add(kController).Set(1);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  impl_->started.Add({}).Set(now.count());
  // Create these series at once, so that a rate over them starts at zero rather than at the first event.
  for (const char* result : {"success", "error", "requeue_after"})
    impl_->reconciles.Add({{"controller", "trainingjob"}, {"result", result}});
  impl_->reconcile_errors.Add(kController);
  for (const char* recovery : {"true", "false"}) impl_->generations.Add({{"recovery", recovery}});
  impl_->recoveries.Add({}, kRecoveryBuckets);
  impl_->imbalance.Add({}, kImbalanceBuckets);
  impl_->worker_failures.Add({});
  impl_->steps.Add({});
  impl_->samples.Add({});
  for (const char* charged : {"true", "false"}) impl_->restarts.Add({{"charged", charged}});
}
Metrics::~Metrics() = default;

void Metrics::Reconciled(const std::string& result, Duration took) {
  impl_->reconciles.Add({{"controller", "trainingjob"}, {"result", result}}).Increment();
  if (result == "error") impl_->reconcile_errors.Add(kController).Increment();
  impl_->reconcile_time.Add(kController, kReconcileBuckets).Observe(ToSeconds(took));
}
void Metrics::QueueWaited(Duration waited, Duration worked) {
  impl_->queue_wait.Add(kQueue, kQueueBuckets).Observe(ToSeconds(waited));
  impl_->queue_work.Add(kQueue, kQueueBuckets).Observe(ToSeconds(worked));
}
void Metrics::WriteFailed(const std::string& action, const std::string& code) {
  impl_->failed_writes.Add({{"action", action}, {"code", code}}).Increment();
}
void Metrics::Requested(const std::string& method, int code, Duration took) {
  impl_->requests.Add({{"method", method}, {"code", code == 0 ? "<error>" : std::to_string(code)}})
      .Increment();
  impl_->request_time.Add({{"verb", method}}, kRequestBuckets).Observe(ToSeconds(took));
}
void Metrics::RequestRetried(const std::string& method, int code) {
  impl_->request_retries.Add({{"verb", method}, {"code", std::to_string(code)}}).Increment();
}
void Metrics::Leading(const std::string& lease, bool leads) {
  impl_->leading.Add({{"name", lease}}).Set(leads ? 1 : 0);
}
void Metrics::Restarted(bool charged) {
  impl_->restarts.Add({{"charged", charged ? "true" : "false"}}).Increment();
}
void Metrics::JobEnded(bool succeeded, const std::string& reason) {
  impl_->ended.Add({{"outcome", succeeded ? "Succeeded" : "Failed"}, {"reason", reason}}).Increment();
}
void Metrics::FirstStep(Duration after_creation) {
  impl_->first_step.Add({}, kStartBuckets).Observe(ToSeconds(after_creation));
}

void Metrics::Stepped(int64_t steps, int64_t samples) {
  impl_->steps.Add({}).Increment(static_cast<double>(steps));
  impl_->samples.Add({}).Increment(static_cast<double>(samples));
}
void Metrics::GenerationFormed(std::optional<Duration> recovery) {
  impl_->generations.Add({{"recovery", recovery ? "true" : "false"}}).Increment();
  if (recovery) impl_->recoveries.Add({}, kRecoveryBuckets).Observe(ToSeconds(*recovery));
}
void Metrics::WorkerFailed() { impl_->worker_failures.Add({}).Increment(); }
void Metrics::StepImbalance(double ratio) { impl_->imbalance.Add({}, kImbalanceBuckets).Observe(ratio); }
void Metrics::WorkerBusy(const std::map<std::string, double>& seconds_by_worker) {
  MutexLock lock(impl_->mutex);
  for (auto it = impl_->busy_workers.begin(); it != impl_->busy_workers.end();) {
    if (seconds_by_worker.contains(it->first)) {
      ++it;
      continue;
    }
    impl_->worker_busy.Remove(it->second);
    it = impl_->busy_workers.erase(it);
  }
  for (const auto& [worker, busy] : seconds_by_worker) {
    Gauge* const gauge = &impl_->worker_busy.Add({{"worker", worker}});
    impl_->busy_workers.try_emplace(worker, gauge).first->second->Set(busy);
  }
}
void Metrics::Loss(double loss) { impl_->loss.Add({}).Set(loss); }

void Metrics::SetGauges(std::function<Gauges()> read) {
  MutexLock lock(impl_->mutex);
  impl_->read = std::move(read);
}

std::string Metrics::Text() const {
  impl_->ReadProcess();
  impl_->ReadGauges();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

std::vector<Metrics::Described> Metrics::Describe() const { return impl_->table; }

}  // namespace ringmaster::serve
