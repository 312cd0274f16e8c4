// SPDX-License-Identifier: Apache-2.0

// KubeBackend: jobs in a queue of Kueue. Watches Workloads, ResourceFlavors, WorkloadPriorityClasses and the
// LocalQueues of jobs without a label where the API server serves them, and changes the Workloads of jobs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "operator/kube/backend/decode_workload.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {
namespace {

constexpr Duration kQueueRound = seconds(15);
constexpr Duration kAskEvery = seconds(1);

// Returns the metadata of a patch that is valid only for the object as it was found.
Json AsFound(const Json& found) {
  const Json& metadata = json::Child(found, "metadata");
  return {{"uid", json::Child(metadata, "uid")},
          {"resourceVersion", json::Child(metadata, "resourceVersion")}};
}

}  // namespace

// ---- discovery

void KubeBackend::OnKueue(bool served) {
  {
    MutexLock lock(mutex_);
    if (MustAskAgain(kueue_ == true && !served, kueue_doubtful_)) return;
    if (kueue_ == served) return;
    const bool before = kueue_.value_or(false);
    kueue_ = served;
    if (before == served) return;
  }
  if (served) {
    Follow(Watched(kWorkloads), workloads_);  // the owner decides, and a label can be removed
    reflectors_.Add(Watched(kFlavors), flavors_.In({}));
    reflectors_.Add(Watched(kWorkloadPriorityClasses), workload_priorities_.In({}));
    FollowDefaultQueues();
  } else {
    for (const Resource& resource : {kWorkloads, kFlavors, kWorkloadPriorityClasses, kLocalQueues})
      reflectors_.Retire(resource);
    {
      MutexLock lock(mutex_);
      failed_lists_.clear();
    }
    workloads_.Clear();
    default_queues_.Clear();
    flavors_.Clear();
    workload_priorities_.Clear();
  }
  NotifyQueued();
}

void KubeBackend::FollowDefaultQueues() {
  Collection queues = Watched(kLocalQueues, {}, true);
  queues.field_selector = std::string("metadata.name=") + core::kDefaultQueue;
  queues.optional = true;
  queues.on_failure = [this](const Error& error) {
    {
      MutexLock lock(mutex_);
      if (!failed_lists_.insert(kLocalQueues.plural).second) return;
    }
    log::Warn("watch={} error={} effect=\"jobs without a queue's label are in no queue\"",
              kLocalQueues.plural, error.message);
  };
  Follow(std::move(queues), default_queues_);
}

bool KubeBackend::KnowsQueues() const {
  std::set<std::string> failed;
  {
    MutexLock lock(mutex_);
    if (!kueue_) return false;
    if (!*kueue_) return true;
    failed = failed_lists_;
  }
  return (workloads_.synced() || failed.contains(kWorkloads.plural)) &&
         (default_queues_.synced() || failed.contains(kLocalQueues.plural));
}

bool KubeBackend::HasQueue(const JobRecord& job) const {
  if (!job.queue.empty()) return true;
  const auto workloads = workloads_.Group(job.key.ToString());
  return std::any_of(workloads.begin(), workloads.end(), [&](const auto& record) {
    return record->owner_uid == job.uid && !record->workload.finished;
  });
}

bool KubeBackend::WaitsForKueue() const {
  if (kueue_.value_or(false)) return false;
  const auto jobs = jobs_.All();
  return std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return !job->queue.empty(); });
}

void KubeBackend::NotifyQueued() {
  for (const Job& job : jobs_.All())
    if (HasQueue(*job)) Notify(job->key.ToString());
}

// ---- positions in the queues
//
// Kueue answers only who asks for the head of a queue. Each queue in which a job waits is asked for every
// kQueueRound; with many queues this takes longer, since at most one request is made each kAskEvery.

Time KubeBackend::AskForQueueHead(Time now) {
  if (now < ask_queue_at_) return ask_queue_at_;
  ask_queue_at_ = now + kAskEvery;
  bool asks = options_.may_write();
  {
    MutexLock lock(mutex_);
    asks = asks && kueue_.value_or(false);
  }
  if (!asks) queues_to_ask_.clear();
  if (queues_to_ask_.empty()) {
    if (now < queue_round_at_) return ask_queue_at_ = queue_round_at_;
    queue_round_at_ = now + kQueueRound;
    if (!asks) return ask_queue_at_ = queue_round_at_;
    std::map<std::pair<std::string, std::string>, Queue> queues;
    for (const Job& job : jobs_.All()) {
      for (const auto& record : workloads_.Group(job->key.ToString())) {
        const core::Workload& w = record->workload;
        if (record->owner_uid != job->uid || w.reserved || w.finished || w.deleting || !w.active) continue;
        Queue& queue = queues[{job->key.namespace_, w.queue}];
        queue.space = job->key.namespace_;
        queue.name = w.queue;
        queue.waiting.emplace_back(record->job, w.name);
      }
    }
    for (auto& [key, queue] : queues) queues_to_ask_.push_back(std::move(queue));
    MutexLock lock(mutex_);
    std::erase_if(queue_heads_, [&](const auto& head) { return !queues.contains(head.first); });
  }
  if (queues_to_ask_.empty()) return ask_queue_at_ = queue_round_at_;
  Queue queue = std::move(queues_to_ask_.back());
  queues_to_ask_.pop_back();
  const std::string target = fmt::format(
      "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues/{}/pendingworkloads?limit={}",
      queue.space, queue.name, core::kPositionsListed);
  client_.Raw(target, Guard([this, queue = std::move(queue)](const Result<Json>& result) {
                // A cluster may not serve this API, or may not let us read it.
                QueueHead head = result.ok() ? DecodeQueueHead(*result) : QueueHead{};
                std::vector<std::string> moved;
                {
                  MutexLock lock(mutex_);
                  QueueHead& known = queue_heads_[{queue.space, queue.name}];
                  for (const auto& [job, workload] : queue.waiting)
                    if (core::PositionText(known.PositionOf(workload)) !=
                        core::PositionText(head.PositionOf(workload)))
                      moved.push_back(job);
                  known = std::move(head);
                }
                for (const std::string& job : moved) Notify(job);
              }));
  return ask_queue_at_;
}

// ---- what a decision reads

wiring::WorkloadInputs KubeBackend::WorkloadInputsOf(const JobRecord& job) const {
  wiring::WorkloadInputs inputs;
  inputs.queue = job.queue;
  inputs.pod_sets = core::PodSetsOf(job.Job());
  inputs.maximum_seconds = wiring::MaximumSeconds(job.maximum_time).value_or(0);
  inputs.annotations = job.passed_on;
  if (!job.workload_priority.empty()) {
    const auto known = workload_priorities_.Get(job.workload_priority);
    inputs.priority = known ? known->value : 0;
    inputs.class_group = kWorkloadPriorityClasses.group;
    inputs.class_kind = "WorkloadPriorityClass";
    inputs.class_name = job.workload_priority;
  } else {
    inputs.priority = PriorityClassOf(job).value;
    inputs.class_name = job.spec->workers_priority;
    inputs.class_group = kPriorityClasses.group;
    inputs.class_kind = "PriorityClass";
  }
  return inputs;
}

std::string KubeBackend::RenderedFor(const JobRecord& job) const {
  const wiring::WorkloadInputs inputs = WorkloadInputsOf(job);
  // Labels and annotations change without a new generation.
  const std::string key =
      fmt::format("{}/{}/{}/{}/{}/{}", job.spec->job.spec_generation, inputs.priority, inputs.class_kind,
                  inputs.class_name, inputs.maximum_seconds, DumpJson(inputs.annotations));
  {
    MutexLock lock(mutex_);
    const JobState& state = StateOf(job);
    if (state.rendered_inputs == key) return state.rendered;
  }
  std::string text = wiring::RenderedText(wiring::WorkloadOf(job.ToApi(), job.uid, inputs));
  MutexLock lock(mutex_);
  JobState& state = StateOf(job);
  state.rendered_inputs = key;
  return state.rendered = std::move(text);
}

void KubeBackend::ReadQuota(const JobRecord& job, core::Observed& observed) const {
  core::Quota quota;
  quota.queue = job.queue;
  quota.prebuilt = job.prebuilt;
  const auto space = namespaces_.Get(job.key.namespace_);
  const bool managed = !space || space->managed;
  quota.required = options_.kueue_required && managed;
  bool served = false;
  {
    MutexLock lock(mutex_);
    quota.api = kueue_.has_value() ? core::Quota::Api::kAbsent : core::Quota::Api::kUnread;
    served = kueue_.value_or(false);
  }
  if (served)
    quota.api = workloads_.synced() && flavors_.synced() && workload_priorities_.synced()
                    ? core::Quota::Api::kRead
                    : core::Quota::Api::kUnread;
  for (const auto& record : workloads_.Group(job.key.ToString())) {
    if (record->owner_uid != job.uid) {
      if (record->owner_uid.empty() && record->workload.name == job.prebuilt)
        quota.offered = record->workload;
      else if (record->workload.held)
        observed.stray_workloads.push_back({record->workload.name, record->workload.uid});
      continue;
    }
    core::Workload& w = quota.workloads.emplace_back(record->workload);
    if (w.finished) continue;
    if (!w.reserved) {
      MutexLock lock(mutex_);
      const auto head = queue_heads_.find({job.key.namespace_, w.queue});
      if (head != queue_heads_.end()) w.position = head->second.PositionOf(w.name);
    }
    for (const auto& [name, set] : record->admitted)
      for (const std::string& flavor : set.flavors)
        if (!flavors_.Get(flavor)) w.missing_flavor = flavor;
  }
  observed.quota = std::move(quota);
  core::ChooseQueue(observed, managed && default_queues_.Get(job.key.namespace_ + "/" + core::kDefaultQueue));
  core::Quota& chosen = *observed.quota;
  if (chosen.queue.empty() && chosen.workloads.empty() && !chosen.required) return observed.quota.reset();
  for (core::Workload& w : chosen.workloads) {
    if (w.reserved || w.finished || chosen.queue.empty()) continue;
    const auto record = workloads_.Get(job.key.namespace_ + "/" + w.name);
    w.outdated = record && record->rendered_for != RenderedFor(job);
  }
  core::LimitToQuota(observed);
}

std::shared_ptr<const WorkloadRecord> KubeBackend::ReservedWorkload(const JobRecord& job) const {
  std::shared_ptr<const WorkloadRecord> live;
  for (const auto& record : workloads_.Group(job.key.ToString())) {
    const core::Workload& w = record->workload;
    if (record->owner_uid == job.uid && !w.finished && w.reserved && w.surplus == 0 &&
        (!live || core::DecidesBefore(w, live->workload)))
      live = record;
  }
  return live;
}

std::map<std::string, std::string> KubeBackend::LabelsOf(const WorkloadRecord::Set& set) const {
  std::map<std::string, std::string> labels;
  for (const std::string& flavor : set.flavors)
    if (const auto known = flavors_.Get(flavor))
      for (const auto& [key, value] : known->node_labels) labels[key] = value;
  return labels;
}

wiring::Admission KubeBackend::AdmissionOf(const JobRecord& job, int32_t rank) const {
  std::shared_ptr<const WorkloadRecord> live = ReservedWorkload(job);
  std::map<int32_t, std::shared_ptr<const WorkloadRecord>> surpluses;
  for (const auto& record : workloads_.Group(job.key.ToString())) {
    const core::Workload& w = record->workload;
    if (record->owner_uid == job.uid && !w.finished && w.surplus > 0 && w.admitted && !w.evicted)
      surpluses[w.surplus] = record;
  }
  // The workers of the surpluses are the last ones.
  if (const auto place = core::RolePlaceOf(rank); live && place && place->role.empty()) {
    int32_t before = core::WorkersGranted({}, live->workload);
    for (const auto& [number, surplus] : surpluses) {
      if (place->index < before) break;
      live = surplus;
      before += core::WorkersGranted({}, surplus->workload);
    }
  }
  const std::string name = core::PodSetOf(job.spec->job, rank);
  if (!live || !live->admitted.contains(name)) return {};
  const WorkloadRecord::Set& set = live->admitted.at(name);
  wiring::Admission admission = set.updates;
  for (const auto& [key, value] : LabelsOf(set)) admission.node_selector[key] = value;
  for (const std::string& flavor : set.flavors)
    if (const auto known = flavors_.Get(flavor))
      admission.tolerations.insert(admission.tolerations.end(), known->tolerations.begin(),
                                   known->tolerations.end());
  if (set.has_topology) admission.scheduling_gates.push_back(wiring::kTopologyGate);
  admission.labels["kueue.x-k8s.io/podset"] = name;
  admission.annotations["kueue.x-k8s.io/workload"] = live->workload.name;
  if (live->workload.slice) admission.annotations[wiring::kChainAnnotation] = live->workload.chain;
  return admission;
}

// ---- actions

// Reads the Workload, so that the change keeps what others have written, and changes it if it is still the
// one that the decision was made about. `revision` 0: any.
void KubeBackend::ChangeWorkload(const control::Write& write, const std::string& name, const std::string& uid,
                                 uint64_t revision, const std::string& subresource,
                                 std::function<std::optional<Json>(const Json&)> patch, Done done) {
  client_.Get(
      kWorkloads, write.key.namespace_, name,
      Guard([this, write, name, uid, revision, subresource, patch = std::move(patch),
             done = std::move(done)](const Result<Json>& found) {
        const std::string& space = write.key.namespace_;
        if (!found.ok()) return done(found.error());
        const Meta meta = ReadMeta(*found);
        if (meta.uid != uid || (revision != 0 && meta.revision != revision))
          return done(Error{Code::kConflict,
                            fmt::format("workload {}/{} has changed since it was read", space, name)});
        const std::optional<Json> body = patch(*found);
        if (!body) return done(meta.revision);
        if (!options_.may_write()) return done(NotLeading());
        client_.Patch(
            kWorkloads, space, name, subresource, ApiClient::PatchType::kMerge, *body,
            Guard([this, write, name, uid, revision, subresource, patch, done](const Result<Json>& result) {
              // Another client, such as the garbage collector, has changed it since it was read.
              if (!result.ok() && result.error().code == Code::kConflict && revision == 0)
                return ChangeWorkload(write, name, uid, revision, subresource, patch, done);
              if (!result.ok()) return done(result.error());
              done(RevisionOf(*result));
            }));
      }));
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::MakeWorkload& action,
                          Done done) {
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  wiring::WorkloadInputs inputs = WorkloadInputsOf(*job);
  inputs.queue = action.queue;
  inputs.pod_sets = action.pod_sets;
  inputs.slice = action.slice;
  inputs.replaces = action.replaces;
  inputs.chain = action.chain;
  inputs.surplus = action.surplus;
  // Kueue does not take flavors with other labels. The workers of one job must be alike: which of them leave
  // with a surplus depends on their number only, and the gate looks for places that suit all.
  if (const auto base = action.surplus > 0 ? ReservedWorkload(*job) : nullptr)
    if (const auto set = base->admitted.find(core::kWorkerSet); set != base->admitted.end())
      inputs.node_labels = LabelsOf(set->second);
  Json workload = wiring::WorkloadOf(job->ToApi(), job->uid, inputs);
  if (action.name.empty()) {
    client_.Create(kWorkloads, write.key.namespace_, workload,
                   Guard([done = std::move(done)](const Result<Json>& result) {
                     if (!result.ok()) return done(result.error());
                     done(RevisionOf(*result));
                   }),
                   ApiClient::Response::kMetadata);
    return;
  }
  ChangeWorkload(
      write, action.name, action.uid, action.revision, "",
      [workload = std::move(workload)](const Json& found) -> std::optional<Json> {
        Json spec = workload["spec"];
        // A merge keeps what the patch does not name.
        for (const char* name : {"priorityClassRef", "maximumExecutionTimeSeconds"})
          if (!spec.contains(name)) spec[name] = nullptr;
        Json annotations = workload["metadata"]["annotations"];
        for (const char* name :
             {wiring::kElasticAnnotation, wiring::kReplacesAnnotation, wiring::kChainAnnotation})
          if (!annotations.contains(name)) annotations[name] = nullptr;
        if (const Json& before = json::Child(json::Child(found, "metadata"), "annotations");
            before.is_object())
          for (const auto& [name, value] : before.items())
            if (wiring::IsPassedOn(name) && !annotations.contains(name)) annotations[name] = nullptr;
        Json changed = AsFound(found);
        changed["annotations"] = std::move(annotations);
        return Json{{"metadata", std::move(changed)}, {"spec", std::move(spec)}};
      },
      std::move(done));
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::AdoptWorkload& action,
                          Done done) {
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  ChangeWorkload(
      write, action.name, action.uid, action.revision, "",
      [job](const Json& found) -> std::optional<Json> {
        Json metadata = wiring::AdoptedMetadata(job->ToApi(), job->uid, found);
        metadata.update(AsFound(found));
        return Json{{"metadata", std::move(metadata)}};
      },
      std::move(done));
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::ResizeWorkload& action,
                          Done done) {
  ChangeWorkload(
      write, action.name, action.uid, action.revision, "",
      [action](const Json& found) -> std::optional<Json> {
        Json sets = json::Items(json::Child(found, "spec"), "podSets");
        for (Json& set : sets)
          for (const core::PodSet& wanted : action.pod_sets)
            if (json::Text(set, "name") == wanted.name) set["count"] = wanted.count;
        return Json{{"metadata", AsFound(found)}, {"spec", {{"podSets", std::move(sets)}}}};
      },
      std::move(done));
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::SetWorkloadStatus& action,
                          Done done) {
  ChangeWorkload(
      write, action.name, action.uid, action.revision, "status",
      [action](const Json& found) -> std::optional<Json> {
        return StatusPatch(found, action, WallSecondsText(WallNow()));
      },
      std::move(done));
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::DeleteWorkload& action,
                          Done done) {
  DeleteOptions options;
  options.uid = action.uid;
  options.revision = action.revision;
  options.propagation = "Background";
  client_.Delete(kWorkloads, write.key.namespace_, action.name, options,
                 Guard([done = std::move(done)](const Result<Json>& result) {
                   if (!result.ok()) return done(result.error());
                   done(RevisionOf(*result));
                 }));
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::ReleaseWorkload& action,
                          Done done) {
  auto deleting = std::make_shared<bool>(false);
  ChangeWorkload(
      write, action.name, action.uid, 0, "",
      [deleting](const Json& found) -> std::optional<Json> {
        const Json& metadata = json::Child(found, "metadata");
        *deleting = !json::Text(metadata, "deletionTimestamp").empty();
        Json kept = Json::array();
        for (const Json& finalizer : json::Items(metadata, "finalizers"))
          if (finalizer != wiring::kWorkloadFinalizer) kept.push_back(finalizer);
        if (kept.size() == json::Items(metadata, "finalizers").size()) return std::nullopt;
        Json changed = AsFound(found);
        changed["finalizers"] = std::move(kept);
        return Json{{"metadata", std::move(changed)}};
      },
      [done = std::move(done), deleting](const Result<Revision>& result) {
        if (!result.ok()) {
          if (result.error().code == Code::kNotFound) return done(Revision{0});
          return done(result.error());
        }
        // The answer of a Workload that only the finalizer held has the revision before its removal.
        done(*result + (*deleting ? 1 : 0));
      });
}

}  // namespace ringmaster::kube
