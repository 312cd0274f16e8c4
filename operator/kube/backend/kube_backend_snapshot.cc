// SPDX-License-Identifier: Apache-2.0

// KubeBackend: what a decision reads. Observe takes a snapshot of the stores, with the refusals that the
// cluster would give (preflight); ReadThrough lists a job and its pods past the watch.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"
#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "operator/kube/backend/gang_apis.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {

using control::Key;
using control::Kind;

KubeBackend::Look KubeBackend::Read(const Key& key) const {
  if (IsWithheld(key.namespace_)) return {};
  Look look;
  const Job job = jobs_.Get(key.ToString());
  control::Snapshot& snapshot = look.snapshot.emplace();
  core::Observed& observed = snapshot.observed;
  std::tie(observed.pods, observed.strays) = PodsOf(key, job ? job->uid : std::string());
  if (!job) {
    for (const auto& record : workloads_.Group(key.ToString()))
      if (record->workload.held)
        observed.stray_workloads.push_back({record->workload.name, record->workload.uid});
    if (observed.strays.empty() && observed.stray_workloads.empty()) return {};
    observed.job.name = key.name;
    observed.job.deleted = true;
    return look;
  }
  snapshot.job_revision = job->revision;
  observed.job = job->Job();
  observed.status = job->status;
  ReadQuota(*job, observed);
  ReadNodes(observed);
  observed.holds_groups = HoldsGroups(*job);
  observed.invalid = job->spec->problem;
  if (!observed.invalid.empty() || job->remote) return look;
  look.job = job;
  observed.prepared = PreparedOf(*job);
  look.gang = GangOf(*job);
  observed.provider = ProviderOf(look.gang);
  const std::string queue = observed.quota ? observed.quota->queue : "";
  if (!job->status.ended()) observed.preflight = PreflightOf(*job, queue, look.gang);
  if (core::ReservesRoom(observed)) observed.untried = IsUntried(*job, observed.status.ledger.attempt);
  observed.spread = SpreadOf(*job, observed);
  MutexLock lock(mutex_);
  const JobState& state = StateOf(*job);
  observed.order = state.order;
  observed.all_at_once = PlacesAtOnce(look.gang, gang_apis_);
  observed.native_on_trial = look.gang == wiring::Gang::kNative &&
                             observed.job.gang == core::GangMode::kAuto &&
                             options_.gang == core::GangMode::kAuto && !observed.status.ledger.placed &&
                             state.whole_attempt != observed.status.ledger.attempt;
  if (job->spec->job.in_place && state.report) observed.report = *state.report;
  return look;
}

std::optional<control::Snapshot> KubeBackend::Observe(const Key& key) const {
  Look look = Read(key);
  if (!look.job) return std::move(look.snapshot);
  core::Observed& observed = look.snapshot->observed;
  if (core::ReservesRoom(observed)) {
    const RoomInputs inputs = RoomInputsOf(*look.job, observed);
    MutexLock lock(mutex_);
    observed.fit = planner_.FitOf(key.ToString(), inputs.gang, inputs.begun);
    inputs.Complete(observed.fit);
  }
  ReadPreemption(*look.job, observed);
  return std::move(look.snapshot);
}

std::optional<control::Snapshot> KubeBackend::TakeTurn(const Key& key) {
  Look look = Read(key);
  const std::string name = key.ToString();
  if (!look.job) {
    MutexLock lock(mutex_);
    planner_.Leave(name, "", false);
    return std::move(look.snapshot);
  }
  const JobRecord& job = *look.job;
  core::Observed& observed = look.snapshot->observed;
  const bool reserves = core::ReservesRoom(observed);
  const auto inputs = reserves ? std::optional(RoomInputsOf(job, observed)) : std::nullopt;
  bool wake = false;
  {
    MutexLock lock(mutex_);
    if (IsStored(job) && !planner_.Knows(name, job.uid)) LearnJob(name);
    if (reserves) {
      core::RoomPlanner::Turn turn = planner_.Update(name, job.uid, inputs->gang, inputs->begun, Now());
      observed.fit = std::move(turn.fit);
      inputs->Complete(observed.fit);
      if (inputs->has_devices && IsStored(job)) devices_.jobs.insert(name);
      plan_due_ = plan_due_ || turn.plan;
      wake = plan_due_;
    } else {
      planner_.Leave(name, job.uid, true);
    }
    if (!core::KeepsPlaces(observed) && planner_.GiveUpPlaces(name, job.uid)) {
      capacity_changed_ = true;
      wake = true;
    }
    NoteSleeper(job, look.gang, observed);
    if (observed.status.ledger.placed) StateOf(job).whole_attempt = observed.status.ledger.attempt;
  }
  if (wake) reflectors_.Wake();
  ReadPreemption(job, observed);
  return std::move(look.snapshot);
}

std::optional<core::Pod> KubeBackend::FindPod(const Key& key, const std::string& name) const {
  const Job job = jobs_.Get(key.ToString());
  const auto record = pods_.Get(key.namespace_ + "/" + name);
  if (!job || !record || !record->own) return std::nullopt;
  if (record->own->owner->job != key.ToString() || record->own->owner->uid != job->uid) return std::nullopt;
  return record->own->ToCore();
}

bool KubeBackend::IsLeftBehind(const Key& key, const std::string& pod, const std::string& uid) const {
  if (!jobs_.listed(key.namespace_)) return false;
  const Job job = jobs_.Get(key.ToString());
  if (!job) return true;
  const auto record = pods_.Get(key.namespace_ + "/" + pod);
  return record && record->uid() == uid && !(record->own && record->own->owner->uid == job->uid);
}

control::Revision KubeBackend::Seen(Kind kind, const Key& key) const {
  if (kind == Kind::kWorkload) return workloads_.revision(key.namespace_);
  return kind == Kind::kJob ? jobs_.revision(key.namespace_) : pods_.revision(key.namespace_);
}

std::vector<Key> KubeBackend::Keys() const {
  std::set<std::string> names;
  for (const std::string& job : jobs_.Keys()) names.insert(job);
  for (const auto& pod : pods_.All())  // of jobs that are gone
    if (pod->own) names.insert(pod->own->owner->job);
  for (const auto& workload : workloads_.All()) names.insert(workload->job);
  // As core::RoomQueue orders them, apart from the shares of their namespaces.
  using Turn = std::tuple<bool, int64_t, Time, std::string>;
  std::vector<Turn> turns;
  for (const std::string& name : names) {
    const Job job = jobs_.Get(name);
    if (!job) {
      turns.emplace_back(false, 0, Time{}, name);
      continue;
    }
    const bool holds_part = !job->status.ledger.placed && !pods_.Group(name).empty();
    turns.emplace_back(!holds_part, -int64_t{PriorityClassOf(*job).value}, job->created, name);
  }
  std::sort(turns.begin(), turns.end());
  std::vector<Key> keys;
  for (const Turn& turn : turns) keys.push_back(Key::Parse(std::get<std::string>(turn)));
  return keys;
}

std::pair<std::vector<core::Pod>, std::vector<core::Pod>> KubeBackend::PodsOf(const Key& key,
                                                                              const std::string& uid) const {
  std::vector<core::Pod> own;
  std::vector<core::Pod> strays;
  for (const auto& record : pods_.Group(key.ToString())) {
    const std::string& owner = record->own->owner->uid;
    core::Pod& pod = (!owner.empty() && owner == uid ? own : strays).emplace_back(record->own->ToCore());
    if (pod.node.empty()) continue;
    if (const auto node = nodes_.Get(pod.node)) {
      pod.unreachable_since = node->unreachable_since;
      pod.lost |= pod.phase == core::PodPhase::kFailed && node->restarted && *node->restarted > pod.started;
    } else if (nodes_.synced()) {
      MutexLock lock(mutex_);
      pod.unreachable_since = missing_nodes_.Since(pod.node, Now());
    }
  }
  for (std::vector<core::Pod>* pods : {&own, &strays})
    std::sort(pods->begin(), pods->end(), [](const core::Pod& a, const core::Pod& b) {
      return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
    });
  return {std::move(own), std::move(strays)};
}

wiring::Gang KubeBackend::GangOf(const JobRecord& job) const {
  const auto pinned = PinnedGang(MarksOf(job), job.status.ledger.attempt);
  MutexLock lock(mutex_);
  if (pinned && IsAvailable(*pinned, gang_apis_)) return *pinned;
  return ChosenGang(job).value_or(wiring::Gang::kNone);
}

std::optional<wiring::Gang> KubeBackend::ChosenGang(const JobRecord& job) const {
  const core::Job& spec = job.spec->job;
  const bool volcano = volcano_runs_.value_or(false) && OtherScheduler(job, wiring::Gang::kVolcano).empty();
  return ChooseGang({spec.gang, options_.gang, std::max(spec.max, spec.replicas), volcano, native_tears_},
                    gang_apis_);
}

std::string KubeBackend::OtherScheduler(const JobRecord& job, wiring::Gang gang) const {
  const std::string wanted = wiring::SchedulerOf(gang, options_.schedulers);
  if (wanted.empty()) return {};
  for (const auto& [path, name] : job.spec->schedulers) {
    if (name != wanted)
      return fmt::format(
          "{}.spec.schedulerName: {} does not know the gangs of scheduling.gang {}, which the scheduler {} "
          "places: it would place each worker alone",
          path, name, GangName(gang), wanted);
  }
  return {};
}

core::GangProvider KubeBackend::ProviderOf(wiring::Gang gang) {
  switch (gang) {
    case wiring::Gang::kNone:
      return core::GangProvider::kNone;
    case wiring::Gang::kGate:
      return core::GangProvider::kGate;
    default:
      return core::GangProvider::kScheduler;
  }
}

void KubeBackend::ReadNodes(core::Observed& observed) const {
  observed.not_ready_nodes.emplace();
  if (!nodes_.synced()) return;
  std::set<std::string> names;
  for (const core::Pod& pod : observed.pods) names.insert(pod.node);
  for (const core::Suspect& suspect : observed.status.ledger.suspects) names.insert(suspect.node);
  names.erase(std::string());
  for (const std::string& name : names) {
    const auto node = nodes_.Get(name);
    if (!node || !node->facts.ready) observed.not_ready_nodes->push_back(name);
    if (node && node->restarted) observed.restarted_nodes.push_back({name, *node->restarted});
  }
}

std::vector<std::string> KubeBackend::MarksOf(const JobRecord& job) const {
  std::vector<CreatedObject> created;
  {
    MutexLock lock(mutex_);
    JobState& state = StateOf(job);
    // Forget objects that the watch has delivered: the store is newer, and may say that they are gone again.
    std::erase_if(state.created, [&](const CreatedObject& item) {
      return item.store->revision(job.key.namespace_) >= item.revision;
    });
    if (state.created.empty()) state.created.shrink_to_fit();
    created = state.created;
  }
  std::vector<std::string> marks;
  for (const CreatedObject& item : created) marks.push_back(item.mark);
  const auto gather = [&](const Store<ObjectRecord>& store) {
    for (const auto& record : store.Group(job.key.ToString())) {
      if (record->owner->uid != job.uid) continue;
      const bool older = std::any_of(created.begin(), created.end(), [&](const CreatedObject& item) {
        return item.store == &store && item.name == record->name;
      });
      if (!older) marks.push_back(*record->prepared_for);
    }
  };
  gather(services_);
  gather(config_maps_);
  for (const auto& [api, store] : groups_) gather(*store);
  return marks;
}

std::optional<core::PrepareGang> KubeBackend::PreparedOf(const JobRecord& job) const {
  uint64_t authority = 0;
  int64_t refused = 0;
  {
    MutexLock lock(mutex_);
    if (job.spec->job.in_place) authority = authority_;  // only native jobs get the authority
    refused = StateOf(job).refused_attempt;
  }
  auto prepared = PreparedAction(MarksOf(job), authority);
  // The next PrepareGang asks again.
  if (prepared && prepared->attempt == refused) prepared.reset();
  return prepared;
}

// ---- preflight

std::optional<core::Refusal> KubeBackend::PreflightOf(const JobRecord& job, const std::string& queue,
                                                      wiring::Gang gang) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  const bool ending = space && space->ending;
  const std::string no_class = MissingPriorityClass(job, queue);
  const std::string no_topology = MissingTopology(job);
  const std::string no_queue = MissingQueue(job, gang);
  const std::string bad_label = BadLabel(job, queue);
  std::string inputs;
  {
    MutexLock lock(mutex_);
    inputs = fmt::format("{}/{}/{}/{}/{}/{}/{}", job.spec->job.spec_generation, ending, no_class, no_topology,
                         queue, no_queue, bad_label);
    for (const auto& [api, version] : gang_apis_) inputs += '/' + version;
    inputs += '/' + unknown_native_;
    inputs += volcano_runs_.value_or(false) ? '+' : '-';
    inputs += native_tears_ ? '+' : '-';
    const JobState& state = StateOf(job);
    if (state.preflight_inputs == inputs) return state.preflight;
  }
  core::RefusalKind kind = core::RefusalKind::kForbidden;
  std::optional<std::string> message = RefusalOf(job, queue, gang, kind);
  MutexLock lock(mutex_);
  JobState& state = StateOf(job);
  state.preflight_inputs = inputs;
  const Time now = Now();
  if (!message) {
    state.preflight.reset();
  } else {
    const Time since = state.preflight && state.preflight->kind == kind ? state.preflight->since : now;
    state.preflight = core::Refusal{kind, *std::move(message), since, since};
  }
  return state.preflight;
}

std::string KubeBackend::MissingPriorityClass(const JobRecord& job, const std::string& queue) const {
  const JobSpec& spec = *job.spec;
  const auto misses = [this](const std::string& name) {
    return !name.empty() && priority_classes_.synced() && !priority_classes_.Get(name);
  };
  if (misses(spec.workers_priority)) return spec.workers_priority;
  if (!queue.empty() && !job.workload_priority.empty() && workload_priorities_.synced() &&
      !workload_priorities_.Get(job.workload_priority))
    return job.workload_priority;
  const auto it = std::find_if(spec.other_priorities.begin(), spec.other_priorities.end(), misses);
  return it == spec.other_priorities.end() ? "" : *it;
}

std::string KubeBackend::MissingQueue(const JobRecord& job, wiring::Gang gang) const {
  MutexLock lock(mutex_);
  const std::string& queue = job.spec->job.gang_queue;
  return gang == wiring::Gang::kVolcano && missing_queues_.contains(queue) ? queue : std::string();
}

std::string KubeBackend::BadLabel(const JobRecord& job, const std::string& queue) const {
  // One that runs has the time of its Workload.
  if (queue.empty() || job.maximum_time.empty() || core::HasStarted(job.status.ledger)) return "";
  if (wiring::MaximumSeconds(job.maximum_time)) return "";
  return fmt::format("the label {} is {}, and Kueue needs a number of seconds from 1 to {}",
                     wiring::kMaximumTimeLabel, job.maximum_time, std::numeric_limits<int32_t>::max());
}

PriorityClassRecord KubeBackend::PriorityClassOf(const JobRecord& job) const {
  if (const std::string& name = job.spec->workers_priority; !name.empty()) {
    const auto known = priority_classes_.Get(name);
    return known ? *known : PriorityClassRecord{};
  }
  // With several defaults the API server takes the lowest.
  std::optional<PriorityClassRecord> lowest;
  for (const auto& known : priority_classes_.All())
    if (known->is_default && (!lowest || known->value < lowest->value)) lowest = *known;
  return lowest.value_or(PriorityClassRecord{});
}

std::optional<std::string> KubeBackend::RefusalOf(const JobRecord& job, const std::string& queue,
                                                  wiring::Gang used, core::RefusalKind& kind) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  if (space && space->ending) {
    kind = core::RefusalKind::kNamespaceEnding;
    return "namespace " + job.key.namespace_ + " is being deleted";
  }
  if (const std::string missing = MissingPriorityClass(job, queue); !missing.empty()) {
    kind = core::RefusalKind::kNoPriorityClass;
    return fmt::format("the cluster has no {} {}",
                       missing == job.workload_priority ? "WorkloadPriorityClass" : "PriorityClass", missing);
  }
  if (std::string bad = BadLabel(job, queue); !bad.empty()) {
    kind = core::RefusalKind::kInvalidLabel;
    return bad;
  }
  if (std::string missing = MissingTopology(job); !missing.empty()) {
    kind = core::RefusalKind::kNoTopologyLabel;
    return missing;
  }
  std::optional<wiring::Gang> gang;
  std::string unknown;
  {
    MutexLock lock(mutex_);
    gang = ChosenGang(job);
    unknown = unknown_native_;
  }
  if (!gang) {
    kind = core::RefusalKind::kNoGangProvider;
    const core::GangMode mode = job.spec->job.gang;
    if (!unknown.empty() && (mode == core::GangMode::kAuto ? options_.gang : mode) == core::GangMode::kNative)
      return fmt::format(
          "the API server serves {}/{}, and of its gangs this operator knows {} to {}: upgrade the operator, "
          "or set spec.scheduling.gang to gate",
          wiring::kNativeGroup, unknown, std::rbegin(wiring::kNativeApis)->version,
          wiring::kNativeApis[0].version);
    if (mode == core::GangMode::kAuto)
      return "the operator's flag --gang names a scheduler whose PodGroup the API server does not serve";
    return fmt::format("spec.scheduling.gang is {} and the API server serves no such PodGroup",
                       job.ToApi().spec.scheduling.gang);
  }
  if (const std::string missing = MissingQueue(job, used); !missing.empty()) {
    kind = core::RefusalKind::kNoQueue;
    return "Volcano has no queue " + missing;
  }
  kind = core::RefusalKind::kOtherScheduler;
  std::string other = OtherScheduler(job, *gang);
  return other.empty() ? std::nullopt : std::optional(std::move(other));
}

// ---- ReadThrough

// Lists a job, its pods and its Workloads at the newest revision and puts them into the stores.
//
// A pod belongs to the job that owns it, and so does a Workload. But a list can select them only by label,
// and a user or a webhook may have removed the label of one. So each live one that the view has and the list
// lacks is read by name.
class KubeBackend::ReadThroughRequest : public std::enable_shared_from_this<ReadThroughRequest> {
 public:
  ReadThroughRequest(KubeBackend& backend, Key key, std::function<void(Status)> done)
      : backend_(backend), key_(std::move(key)), done_(std::move(done)) {}

  void Begin() {
    jobs_before_ = backend_.jobs_.revision(key_.namespace_);
    pods_.before = backend_.pods_.revision(key_.namespace_);
    workloads_.before = backend_.workloads_.revision(key_.namespace_);
    ListOptions one;
    one.namespace_ = key_.namespace_;
    one.field_selector = "metadata.name=" + key_.name;
    List(kJobs, one, jobs_, [self = shared_from_this()](Revision revision) {
      if (revision < self->jobs_before_) return self->Restored();
      self->backend_.jobs_.ReplaceGroup(self->key_.ToString(), self->jobs_, revision);
      self->Answer(Ok());
    });
    ListOptions labelled;
    labelled.namespace_ = key_.namespace_;
    labelled.label_selector = std::string(wiring::kJobLabel) + "=" + key_.name;
    if (backend_.workloads_.synced()) {
      {
        MutexLock lock(mutex_);
        ++left_;
      }
      List(kWorkloads, labelled, workloads_.items, [self = shared_from_this()](Revision revision) {
        self->workloads_.revision = revision;
        std::vector<std::string> known;
        for (const auto& record : self->backend_.workloads_.Group(self->key_.ToString()))
          known.push_back(record->workload.name);
        self->ReadMissing(kWorkloads, self->workloads_, std::move(known));
      });
    }
    List(kPods, labelled, pods_.items, [self = shared_from_this()](Revision revision) {
      self->pods_.revision = revision;
      std::vector<std::string> known;
      for (const auto& record : self->backend_.pods_.Group(self->key_.ToString()))
        if (!record->ended) known.push_back(record->own->ToCore().name);
      self->ReadMissing(kPods, self->pods_, std::move(known));
    });
  }

 private:
  // The objects of the job, and the revision of their list.
  struct Part {
    std::vector<Json> items;
    Revision revision = 0;
    Revision before = 0;  // what the view had when the list was requested
    size_t missing = 0;   // objects whose read has not been answered
  };

  void List(const Resource& resource, const ListOptions& options, std::vector<Json>& gathered,
            std::function<void(Revision)> listed) {
    backend_.client_.List(
        resource, options,
        [self = shared_from_this(), &gathered](Json items) {
          if (!items.is_array()) return gathered.clear();  // the list starts again
          for (Json& item : items) gathered.push_back(std::move(item));
        },
        backend_.Guard([self = shared_from_this(), listed = std::move(listed)](Result<Json> result) {
          if (!result.ok()) return self->Answer(result.error());
          const Revision revision = ParseRevision(json::Text(*result, "resourceVersion"));
          if (revision == 0) return self->Answer(Error{Code::kInternal, "the list has no resourceVersion"});
          listed(revision);
        }));
  }

  // Reads those of the `known` objects that the list lacks.
  void ReadMissing(const Resource& resource, Part& part, std::vector<std::string> known) {
    std::set<std::string> listed;
    for (const Json& item : part.items) listed.insert(ReadMeta(item).name);
    std::erase_if(known, [&](const std::string& name) { return listed.contains(name); });
    {
      MutexLock lock(mutex_);
      part.missing = known.size();
    }
    if (known.empty()) return Replace(part);
    for (const std::string& name : known)
      backend_.client_.Get(resource, key_.namespace_, name,
                           backend_.Guard([self = shared_from_this(), &part](Result<Json> result) {
                             self->TakeMissing(part, std::move(result));
                           }));
  }

  void TakeMissing(Part& part, Result<Json> result) {
    Status failed;
    {
      MutexLock lock(mutex_);
      if (result.ok())
        part.items.push_back(std::move(result).value());
      else if (result.error().code != Code::kNotFound)
        status_ = result.error();
      if (--part.missing > 0) return;
      failed = status_;
    }
    // An object whose read failed may live.
    if (!failed.ok()) return Answer(std::move(failed));
    Replace(part);
  }

  // The list is a consistent read, so it shows all that the view has, unless the data of the server was
  // restored from a backup.
  void Restored() {
    log::Warn("{} effect=\"lists everything again: the API server has older data than before\"",
              backend_.JobTag(key_));
    backend_.reflectors_.ListAgain();
    Answer(Error{Code::kUnavailable, "the API server has older data than before"});
  }

  void Replace(const Part& part) {
    if (part.revision < part.before) return Restored();
    if (&part == &pods_)
      backend_.pods_.ReplaceGroup(key_.ToString(), part.items, part.revision);
    else
      backend_.workloads_.ReplaceGroup(key_.ToString(), part.items, part.revision);
    Answer(Ok());
  }

  void Answer(Status status) {
    {
      MutexLock lock(mutex_);
      if (!status.ok()) status_ = std::move(status);
      if (--left_ > 0) return;
      status = status_;
    }
    done_(std::move(status));
  }

  KubeBackend& backend_;
  const Key key_;
  const std::function<void(Status)> done_;
  // Each is written by its list, then by the reads of what that lacks, with the mutex held.
  std::vector<Json> jobs_;
  Revision jobs_before_ = 0;  // as Part::before
  Part pods_;
  Part workloads_;
  Mutex mutex_;
  int left_ RM_GUARDED_BY(mutex_) = 2;  // jobs and pods
  Status status_ RM_GUARDED_BY(mutex_);
};

void KubeBackend::ReadThrough(const Key& key, std::function<void(Status)> done) {
  std::make_shared<ReadThroughRequest>(*this, key, std::move(done))->Begin();
}

}  // namespace ringmaster::kube
