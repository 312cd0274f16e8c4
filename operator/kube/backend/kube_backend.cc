// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/kube_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/heap.h"
#include "base/json.h"
#include "base/log.h"
#include "operator/control/job_tag.h"
#include "operator/kube/backend/decode_devices.h"
#include "operator/kube/backend/decode_job.h"
#include "operator/kube/backend/decode_node.h"
#include "operator/kube/backend/decode_pod.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {

using control::Key;
using control::Kind;

namespace {

constexpr Duration kSweepEvery = seconds(1);
// By how much younger the jobs of a namespace that uses the whole cluster count (core::RoomQueue::FairShare).
constexpr Duration kShareSpan = std::chrono::hours(24);
constexpr Duration kPlanEvery = seconds(1);
// The memory that the JSON of changes took goes back to the system at most this often.
constexpr Duration kTrimEvery = seconds(10);
constexpr Duration kReadLeaseEvery = seconds(10);
constexpr Duration kDiscoverAgain = seconds(300);  // finds APIs that are installed while the operator runs

// Changes the progress in `before`, which the caller is about to drop. Not a number is unequal to itself.
bool DiffersInProgressOnly(rendezvous::Report& before, rendezvous::Report& after) {
  const double loss = std::exchange(after.loss, 0);
  const double speed = std::exchange(after.samples_per_second, 0);
  before.loss = before.samples_per_second = 0;
  before.kept_samples = after.kept_samples;
  before.step = after.step;
  before.checkpoint_step = after.checkpoint_step;
  before.seconds_left = after.seconds_left;
  const bool same = before == after;
  after.loss = loss;
  after.samples_per_second = speed;
  return same;
}

Store<ObjectRecord>::Hooks ObjectHooks(Interners& interners, std::function<void(const std::string&)> notify) {
  Store<ObjectRecord>::Hooks hooks;
  hooks.decode = [&interners](const Json& object, const Meta& meta, const auto&) {
    return DecodeObject(object, meta, interners);
  };
  hooks.group = [](const ObjectRecord& record) { return record.owner->job; };
  hooks.changed = [notify = std::move(notify)](const std::string&, const auto& before, const auto& after) {
    notify(after ? after->owner->job : before->owner->job);
  };
  return hooks;
}

}  // namespace

KubeBackend::KubeBackend(ApiClient& client, Options options)
    : client_(client),
      options_(std::move(options)),
      jobs_({[this](const Json& object, const Meta& meta, const auto& before) {
               return DecodeJob(object, meta, before, options_.clock, Now(), options_.autoscaler);
             },
             [](const JobRecord& record) { return record.key.ToString(); },
             [this](const std::string&, const auto& before, const auto& after) { OnJob(before, after); }}),
      pods_({[this](const Json& object, const Meta& meta, const auto& before) {
               return DecodePod(object, meta, before, interners_, options_.clock, Now());
             },
             [](const PodRecord& record) { return record.own ? record.own->owner->job : std::string(); },
             [this](const std::string& name, const auto& before, const auto& after) {
               OnPod(name, before, after);
             },
             [](const PodRecord& record) { return record.own && record.own->labelled; }}),
      nodes_({[this](const Json& object, const Meta& meta, const auto& before) {
                return DecodeNode(object, meta, before, options_.clock, Now());
              },
              nullptr,
              [this](const std::string& name, const auto& before, const auto& after) {
                OnNode(name, before, after);
              }}),
      namespaces_({[this](const Json& object, const Meta&, const auto&) {
                     return DecodeNamespace(object, options_.kueue_namespaces);
                   },
                   nullptr,
                   [this](const std::string& name, const auto& before, const auto& after) {
                     OnNamespace(name, before, after);
                   }}),
      priority_classes_({[](const Json& object, const Meta& meta, const auto&) {
                           return DecodePriorityClass(object, meta);
                         },
                         nullptr,
                         [this](const std::string&, const auto& before, const auto& after) {
                           OnPriorityClass(before, after);
                         }}),
      workloads_(
          {[](const Json& object, const Meta& meta, const auto&) { return DecodeWorkload(object, meta); },
           [](const WorkloadRecord& record) { return record.job; },
           [this](const std::string&, const auto& before, const auto& after) {
             Notify(after ? after->job : before->job);
           },
           [](const WorkloadRecord& record) { return record.labelled; }}),
      default_queues_({[](const Json&, const Meta& meta, const auto&) { return DecodeLocalQueue(meta); },
                       nullptr,
                       [this](const std::string&, const auto& before, const auto& after) {
                         if (before && after) return;
                         const std::string space = (after ? after : before)->namespace_ + "/";
                         for (const std::string& job : jobs_.Keys())
                           if (job.starts_with(space)) Notify(job);
                       }}),
      flavors_({[](const Json& object, const Meta& meta, const auto&) { return DecodeFlavor(object, meta); },
                nullptr, [this](const std::string&, const auto&, const auto&) { NotifyQueued(); }}),
      workload_priorities_({[](const Json& object, const Meta& meta, const auto&) {
                              return DecodePriorityClass(object, meta);
                            },
                            nullptr,
                            [this](const std::string&, const auto&, const auto&) { NotifyQueued(); }}),
      device_classes_(
          {[](const Json& object, const Meta& meta, const auto&) { return DecodeDeviceClass(object, meta); },
           nullptr, [this](const std::string&, const auto&, const auto&) { OnDeviceClass(); }}),
      slices_({[this](const Json& object, const Meta&, const auto&) {
                 return DecodeResourceSlice(object, interners_);
               },
               nullptr, [this](const std::string&, const auto&, const auto&) { DevicesChanged(true); }}),
      claims_({[](const Json& object, const Meta& meta, const auto&) {
                 return DecodeResourceClaim(object, meta);
               },
               nullptr, [this](const std::string&, const auto&, const auto&) { DevicesChanged(false); }}),
      claim_templates_(
          {[](const Json& object, const Meta&, const auto&) { return DecodeClaimTemplate(object); }, nullptr,
           [this](const std::string& name, const auto&, const auto&) { OnClaimTemplate(name); }}),
      services_(ObjectHooks(interners_, [this](const std::string& job) { OnObject(job); })),
      config_maps_(ObjectHooks(interners_, [this](const std::string& job) { OnObject(job); })),
      planner_({Duration(kShareSpan).count(), options_.namespace_weights}),
      gate_(std::make_shared<Gate>()),
      reflectors_(client, options_.watch, [this](Time now) { return Housekeeping(now); }) {
  for (const GangApi api : kGangApis)
    groups_.emplace(api, std::make_unique<Store<ObjectRecord>>(
                             ObjectHooks(interners_, [this](const std::string& job) { Notify(job); })));
}

KubeBackend::~KubeBackend() { Stop(); }

Collection KubeBackend::Watched(Resource resource, std::string label_selector, bool metadata_only) {
  Collection collection;
  collection.resource = std::move(resource);
  collection.label_selector = std::move(label_selector);
  collection.metadata_only = metadata_only;
  const bool kueue = collection.resource.group == kWorkloads.group;
  const bool group = kueue || GangApiOf(collection.resource.group, collection.resource.plural).has_value();
  collection.on_failure = [this, watched = collection.resource, group, kueue](const Error& error) {
    if (kueue) {
      MutexLock lock(mutex_);
      failed_lists_.insert(watched.plural);
    }
    if (options_.on_watch_failure) options_.on_watch_failure(watched, error);
    if (group && error.code == Code::kNotFound) DiscoverBy(Now() + kDiscoverSoon);
  };
  return collection;
}

void KubeBackend::Start() {
  Follow(Watched(kJobs), jobs_);
  Follow(Watched(kPods), pods_);
  reflectors_.Add(Watched(kNodes), nodes_.In({}));
  reflectors_.Add(Watched(kNamespaces, {}, true), namespaces_.In({}));
  reflectors_.Add(Watched(kPriorityClasses), priority_classes_.In({}));
  Follow(Watched(kServices, wiring::kJobLabel, true), services_);
  Follow(Watched(kConfigMaps, wiring::kJobLabel, true), config_maps_);
  reflectors_.Start();
}

void KubeBackend::Stop() {
  reflectors_.Stop();
  WriterLock lock(gate_->mutex);
  gate_->closed = true;
}

bool KubeBackend::Synced() const {
  if (!jobs_.synced() || !pods_.synced() || !nodes_.synced() || !namespaces_.synced() ||
      !priority_classes_.synced() || !services_.synced() || !config_maps_.synced() || !KnowsQueues())
    return false;
  GangApis apis;
  {
    MutexLock lock(mutex_);
    if (AsksForVolcano() && !volcano_runs_) return false;
    apis = gang_apis_;
  }
  return std::all_of(std::begin(kGangApis), std::end(kGangApis), [&](GangApi api) {
    const auto it = apis.find(api);
    return it != apis.end() && (it->second.empty() || groups_.at(api)->synced());
  });
}

std::vector<std::string> KubeBackend::Problems() const {
  std::vector<std::string> problems = reflectors_.Problems();
  MutexLock lock(mutex_);
  for (const GangApi api : kGangApis)
    if (!gang_apis_.contains(api))
      problems.push_back(fmt::format("{}: the API server has not answered yet whether it serves this API",
                                     GangApiName(api)));
  return problems;
}

KubeBackend::Census KubeBackend::TakeCensus(Time now) const {
  Census census;
  census.namespaces_denied = static_cast<int64_t>(reflectors_.Denied().size());
  for (const Job& job : jobs_.All()) {
    const core::Display& display = job->status.display;
    ++census.jobs[static_cast<size_t>(display.phase)];
    const bool waits =
        display.Of(core::ConditionType::kScheduled).reason == core::Reason::kWaitingForCapacity ||
        display.Of(core::ConditionType::kScheduled).reason == core::Reason::kPreempting;
    census.gangs_waiting += waits ? 1 : 0;
    census.queue_lengths[job->key.namespace_] += waits ? 1 : 0;
  }
  MutexLock lock(mutex_);
  census.pods = worker_pods_;
  for (const auto& [name, state] : job_states_) {
    if (!state.report) continue;
    census.stragglers += static_cast<int64_t>(state.report->stragglers.size());
    if (state.report->phase == rendezvous::GangPhase::kActive && state.report->samples_per_second > 0) {
      const control::Key key = control::Key::Parse(name);
      census.samples_per_second[{key.namespace_, key.name}] = state.report->samples_per_second;
    }
    if (const std::optional<double> goodput = state.goodput.SamplesPerSecond(now)) {
      const control::Key key = control::Key::Parse(name);
      census.goodput[{key.namespace_, key.name}] = *goodput;
    }
    for (const rendezvous::WorkerFacts& worker : state.report->facts) {
      ++census.workers_by_gpu[{worker.facts.device, worker.facts.driver}];
      census.workers_with_device_fault += worker.facts.device_faults.empty() ? 0 : 1;
    }
  }
  return census;
}

std::vector<std::pair<std::string, int64_t>> KubeBackend::ObjectCounts() const {
  std::vector<std::pair<std::string, int64_t>> held;
  const auto add = [&](const Resource& resource, const auto& store) {
    held.emplace_back(resource.plural, static_cast<int64_t>(store.size()));
  };
  add(kJobs, jobs_);
  add(kPods, pods_);
  add(kNodes, nodes_);
  add(kNamespaces, namespaces_);
  add(kPriorityClasses, priority_classes_);
  add(kServices, services_);
  add(kConfigMaps, config_maps_);
  int64_t groups = 0;
  for (const auto& [api, store] : groups_) groups += static_cast<int64_t>(store->size());
  held.emplace_back("podgroups", groups);
  add(kWorkloads, workloads_);
  add(kResourceSlices, slices_);
  add(kResourceClaims, claims_);
  return held;
}

// ---- namespaces that the API server denies

bool KubeBackend::IsWithheld(const std::string& space) const {
  if (options_.namespaces.empty()) return false;
  return !jobs_.listed(space) || !pods_.listed(space) || !services_.listed(space) ||
         !config_maps_.listed(space);
}

void KubeBackend::WatchNamespaces() {
  if (options_.namespaces.empty()) return;
  std::set<std::string> denied = reflectors_.Denied();
  for (const std::string& space : denied)
    if (!denied_.contains(space))
      log::Warn(
          "namespace={} effect=\"the API server denies its objects: its jobs are not seen, or not any "
          "more\"",
          space);
  for (const std::string& space : denied_)
    if (!denied.contains(space)) log::Info("namespace={} denied=false", space);
  denied_ = std::move(denied);
  for (const std::string& space : options_.namespaces) {
    if (IsWithheld(space)) {
      withheld_.insert(space);
    } else if (withheld_.erase(space) > 0) {
      for (const std::string& job : jobs_.Keys())
        if (job.starts_with(space + "/")) Notify(job);
    }
  }
}

void KubeBackend::DropNamespace(const std::string& space) {
  if (std::find(options_.namespaces.begin(), options_.namespaces.end(), space) == options_.namespaces.end())
    return;
  jobs_.Drop(space);  // first: no decision sees a job without its pods
  pods_.Drop(space);
  services_.Drop(space);
  config_maps_.Drop(space);
  workloads_.Drop(space);
  for (const auto& [api, store] : groups_) store->Drop(space);
}

// ---- housekeeping, on the reflectors' thread

Time KubeBackend::Housekeeping(Time now) {
  bool discover = false;
  std::optional<core::RoomQueue::Sweep> sweep;
  bool plan = false;
  bool trim = false;
  bool forget_nodes = false;
  Time next = kNever;
  std::vector<std::string> progressed;
  std::vector<std::string> sleepers;
  bool read_lease = false;
  {
    MutexLock lock(mutex_);
    sleepers = sleeping_.Due(now);
    next = sleeping_.Next();
    if (AsksForVolcano()) {
      read_lease = now >= volcano_at_;
      if (read_lease) volcano_at_ = now + kReadLeaseEvery;
      next = std::min(next, volcano_at_);
    }
    while (!progress_due_.empty() && progress_due_.front().first <= now) {
      std::string& job = progressed.emplace_back(std::move(progress_due_.front().second));
      progress_due_.pop_front();
      if (const auto state = job_states_.find(job); state != job_states_.end())
        state->second.progress_due = false;
    }
    discover = now >= discover_at_;
    if (discover) discover_at_ = now + (WaitsForApi() ? kDiscoverWanted : kDiscoverAgain);
    next = std::min(next, discover_at_);
    // The jobs that would find room are decided again, but not for each pod that ends.
    if (capacity_changed_ && now >= last_sweep_ + kSweepEvery) {
      capacity_changed_ = false;
      last_sweep_ = now;
      sweep.emplace();
    }
    if (capacity_changed_) next = std::min(next, last_sweep_ + kSweepEvery);
    plan = plan_due_ && now >= last_plan_ + kPlanEvery;
    if (plan) {
      plan_due_ = false;
      last_plan_ = now;
    }
    if (plan_due_) next = std::min(next, last_plan_ + kPlanEvery);
    trim = pods_changed_ && now >= last_trim_ + kTrimEvery;
    if (trim) {
      pods_changed_ = false;
      last_trim_ = now;
    }
    if (pods_changed_) next = std::min(next, last_trim_ + kTrimEvery);
    forget_nodes = trim && missing_nodes_.size() > 0;
    if (!progress_due_.empty()) next = std::min(next, progress_due_.front().first);
  }
  WatchNamespaces();
  for (const std::string& job : progressed) Notify(job);
  for (const std::string& job : sleepers) WakeGroup(job);
  if (read_lease) ReadVolcanoLease();
  if (forget_nodes) ForgetUnusedNodes();
  if (trim) TrimHeap();
  if (discover) Discover();
  while (sweep && !sweep->done()) {
    std::vector<std::string> ready;
    {
      MutexLock lock(mutex_);
      ready = planner_.Ready(*sweep);
    }
    for (const std::string& job : ready) Notify(job);
  }
  if (plan) PlanPreemptions();
  next = std::min(next, KeepDevices(now));
  return std::min(next, AskForQueueHead(now));
}

void KubeBackend::ForgetUnusedNodes() {
  MutexLock lock(mutex_);
  missing_nodes_.KeepOnly(owners_on_);
}

void KubeBackend::Notify(const std::string& job) {
  std::vector<std::function<void(const Key&)>> subscribers;
  {
    MutexLock lock(mutex_);
    planner_.HolderChanged(job);
    subscribers = subscribers_;
  }
  const Key key = Key::Parse(job);
  for (const auto& subscriber : subscribers) subscriber(key);
}

void KubeBackend::Subscribe(std::function<void(const Key&)> changed) {
  MutexLock lock(mutex_);
  subscribers_.push_back(std::move(changed));
}

void KubeBackend::SetAuthority(std::string pem) {
  {
    MutexLock lock(mutex_);
    if (authority_pem_ == pem) return;
    authority_ = AuthorityHash(pem);
    authority_pem_ = std::move(pem);
  }
  for (const std::string& job : jobs_.Keys()) Notify(job);
}

void KubeBackend::SetReport(const Key& key, const std::string& uid, rendezvous::Report report) {
  const Job job = jobs_.Get(key.ToString());
  if (!job || job->uid != uid) return;
  bool progress = false;
  bool wake = false;
  {
    MutexLock lock(mutex_);
    JobState& state = StateOf(*job);
    // The first step of an attempt is more than progress: the ledger records it.
    progress = job->status.ledger.stepped && state.report && DiffersInProgressOnly(*state.report, report);
    if (report.phase == rendezvous::GangPhase::kStopped || report.phase == rendezvous::GangPhase::kFinished ||
        report.phase == rendezvous::GangPhase::kFailed)
      state.goodput.Reset();
    else
      state.goodput.Add(report.kept_samples, Now());
    state.report = std::make_unique<rendezvous::Report>(std::move(report));
    if (progress && !std::exchange(state.progress_due, true)) {
      wake = progress_due_.empty();
      progress_due_.emplace_back(Now() + options_.progress_every, key.ToString());
    }
  }
  if (!progress) Notify(key.ToString());
  if (wake) reflectors_.Wake();
}

std::string KubeBackend::JobTag(const Key& key) const {
  const Job job = jobs_.Get(key.ToString());
  return control::JobTag(key, job ? job->status : core::Status());
}

void KubeBackend::Record(const Key& key, const core::Event& event) {
  const Job job = jobs_.Get(key.ToString());
  if (options_.on_event) options_.on_event(key, job ? job->uid : std::string(), event);
}

Error KubeBackend::NotLeading() {
  return {Code::kUnavailable, "not written: this replica may have lost the Lease"};
}

KubeBackend::JobState& KubeBackend::StateOf(const JobRecord& job) const {
  const std::string name = job.key.ToString();
  if (const auto known = job_states_.find(name); known != job_states_.end() && known->second.uid == job.uid)
    return known->second;
  if (!IsStored(job)) {
    late_ = JobState();
    late_.uid = job.uid;
    return late_;
  }
  JobState& state = job_states_[name];
  state = JobState();
  state.uid = job.uid;
  return state;
}

bool KubeBackend::LearnJob(const std::string& name) {
  const Job job = jobs_.Get(name);
  if (!job) return false;
  const bool may_wait = job->spec->problem.empty() && core::MayWaitForVictims(job->Job(), job->status);
  return planner_.SetJob(name, job->uid, may_wait, job->status);
}

bool KubeBackend::IsStored(const JobRecord& job) const {
  const Job current = jobs_.Get(job.key.ToString());
  return current && current->uid == job.uid;
}

}  // namespace ringmaster::kube
