// SPDX-License-Identifier: Apache-2.0

// KubeBackend: TryPods asks whether the pods of an attempt would be admitted. PrepareGang creates and updates
// the objects of an attempt other than its pods. DropGroups deletes the PodGroups of a job without pods.
// ReleaseGang removes the scheduling gates of the pods once there is capacity for all of them.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/mutex.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {
namespace {

constexpr size_t kMaxInFlight = 32;  // requests of one ReleaseGang

Resource ResourceOfObject(const Json& object) {
  const std::string_view version = json::Text(object, "apiVersion");
  const size_t slash = version.find('/');
  Resource resource;
  if (slash != std::string_view::npos) resource.group = version.substr(0, slash);
  resource.version = slash == std::string_view::npos ? version : version.substr(slash + 1);
  const std::string_view kind = json::Text(object, "kind");
  resource.plural = kind == "Service"     ? "services"
                    : kind == "ConfigMap" ? "configmaps"
                    : kind == "Workload"  ? "workloads"
                                          : "podgroups";
  return resource;
}

}  // namespace

// ---- what wiring needs: the gang provider, host ports and the authority

wiring::Context KubeBackend::ContextOf(const JobRecord& job) const {
  wiring::Context context = options_.context(job.key);
  context.gang = GangOf(job);
  context.schedulers = options_.schedulers;
  context.host_port_base = PortsOf(job).first;
  MutexLock lock(mutex_);
  if (const auto* native = wiring::FindNativeApi(ServedVersion(gang_apis_, GangApi::kNative)))
    context.native = native;
  context.coordinator_ca_pem = authority_pem_;
  return context;
}

PortRange KubeBackend::PortsOf(const JobRecord& job) const {
  if (!job.spec->host_network) return {};
  {
    MutexLock lock(mutex_);
    if (const JobState& state = StateOf(job); state.ports.count > 0) return state.ports;
  }
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->Group(job.key.ToString()))
      if (const auto mark = ParseMark(*record->prepared_for); mark && record->owner->uid == job.uid)
        return mark->ports;
  return {};
}

bool KubeBackend::UsesPorts(const std::string& name) const {
  const auto pods = pods_.Group(name);
  if (std::any_of(pods.begin(), pods.end(), [](const auto& record) { return !record->ended; })) return true;
  const Job job = jobs_.Get(name);
  if (!job || job->status.ended() || job->status.ledger.suspended) return false;
  // An attempt that has begun will have pods.
  const int64_t attempt = job->status.ledger.attempt;
  if (const auto state = job_states_.find(name);
      state != job_states_.end() && state->second.uid == job->uid) {
    if (state->second.refused_attempt > 0 && state->second.refused_attempt >= attempt) return false;
    if (state->second.ports_attempt > 0 && state->second.ports_attempt >= attempt) return true;
  }
  const auto marked = [&](const Store<ObjectRecord>& store) {
    const auto records = store.Group(name);
    return std::any_of(records.begin(), records.end(), [&](const auto& record) {
      const auto mark = record->owner->uid == job->uid ? ParseMark(*record->prepared_for) : std::nullopt;
      return mark && mark->action.attempt >= attempt;
    });
  };
  return marked(services_) || marked(config_maps_);
}

Result<PortRange> KubeBackend::FindPorts(const JobRecord& job, int32_t size, const PortRange& held) {
  if (!job.spec->host_network) return PortRange{};
  // The workers of a gang that restarts in place may become more during the attempt.
  const core::Job& spec = job.spec->job;
  const int32_t workers = spec.in_place ? std::max(spec.max, spec.replicas) : size;
  const int64_t wanted = int64_t{workers} * spec.slots * wiring::kHostPortsPerRank;
  const PortRange all = options_.host_ports;
  if (wanted <= all.count) {
    const auto uses = [this](const std::string& name) RM_REQUIRES(mutex_) { return UsesPorts(name); };
    const auto waits = [this](const std::string& name) {
      const Job other = jobs_.Get(name);
      return other && !other->status.ended() && !other->deleted && !other->spec->job.suspend;
    };
    const auto found =
        host_ports_.Find(all, job.key.ToString(), static_cast<int32_t>(wanted), held, uses, waits);
    if (found) return *found;
  }
  return Error{Code::kExhausted,
               fmt::format("needs {} ports on hostNetwork: no {} ports in a row are free in {}-{}, or the "
                           "namespace has its share while others wait",
                           wanted, wanted, all.first, all.first + all.count - 1)};
}

Result<PortRange> KubeBackend::AllocatePorts(const JobRecord& job, const core::PrepareGang& action) {
  const PortRange held = PortsOf(job);
  MutexLock lock(mutex_);
  RM_ASSIGN(const PortRange found, FindPorts(job, action.size, held));
  if (found.count == 0) return found;
  JobState& state = StateOf(job);
  state.ports = found;
  state.ports_attempt = action.attempt;
  CountPorts(job.key.ToString());
  return found;
}

void KubeBackend::CountPorts(const std::string& job) {
  std::vector<PortRange> held;
  if (const auto state = job_states_.find(job); state != job_states_.end())
    held.push_back(state->second.ports);
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->Group(job))
      if (const auto mark = ParseMark(*record->prepared_for)) held.push_back(mark->ports);
  // The objects of a deleted job may be gone before its pods have ended.
  if (held.empty() && !jobs_.Get(job) && UsesPorts(job)) return;
  host_ports_.Set(job, std::move(held));
}

// ---- PrepareGang

Store<ObjectRecord>* KubeBackend::StoreOf(const Resource& resource) {
  if (resource.plural == "services") return &services_;
  if (resource.plural == "configmaps") return &config_maps_;
  const auto api = GangApiOf(resource.group, resource.plural);
  return api ? groups_.at(*api).get() : nullptr;
}

// Whether pods of this attempt exist that have not ended.
bool KubeBackend::HasLivePods(const JobRecord& job, int64_t attempt) const {
  const auto pods = pods_.Group(job.key.ToString());
  return std::any_of(pods.begin(), pods.end(), [&](const auto& record) {
    return record->own->owner->uid == job.uid && record->own->pod.attempt == attempt && !record->ended;
  });
}

// Writes all objects at the same time, since none needs another. Creates an object that does not exist,
// updates one that this job owns, and fails for one with another owner. `samples` are pods that the API
// server is asked to admit, without creating them.
class KubeBackend::Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  Preparation(KubeBackend& backend, Job job, core::PrepareGang action, std::vector<Json> objects,
              std::vector<Json> samples, Done done)
      : backend_(backend),
        job_(std::move(job)),
        action_(action),
        objects_(std::move(objects)),
        samples_(std::move(samples)),
        done_(std::move(done)),
        left_(objects_.size() + (samples_.empty() ? 0 : 1)) {}

  void Begin() {
    if (objects_.empty() && samples_.empty()) return End();
    if (!samples_.empty()) Try();
    for (const Json& object : objects_) Make(object);
  }

 private:
  void Try() {
    backend_.TrySamples(job_->key.namespace_, samples_, [self = shared_from_this()](const Status& status) {
      if (status.ok() || status.error().code == Code::kForbidden)
        self->backend_.SetAdmitted(*self->job_, self->action_.attempt, status.ok());
      self->Answer(status);
    });
  }
  void Answer(const Status& status) {
    bool last = false;
    {
      MutexLock lock(mutex_);
      if (!status.ok() && !error_) error_ = status.error();
      last = --left_ == 0;
    }
    if (last) End();
  }
  struct Part {
    const Json& object;
    Store<ObjectRecord>* store = nullptr;
    Resource resource;
    std::string name;
  };

  void Make(const Json& object) {
    Part part{object, nullptr, ResourceOfObject(object), object["metadata"]["name"].get<std::string>()};
    part.store = backend_.StoreOf(part.resource);
    CHECK(part.store != nullptr, "no store for {}", object["kind"].get<std::string>());
    if (!backend_.options_.may_write()) return Take(part, NotLeading());
    const auto known = part.store->Get(job_->key.namespace_ + "/" + part.name);
    if (known && known->owner->uid == job_->uid) return Apply(part);
    backend_.client_.Create(part.resource, job_->key.namespace_, object,
                            backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
                              if (!result.ok() && result.error().code == Code::kAlreadyExists)
                                return self->Identify(part);
                              self->Take(part, result);
                            }),
                            ApiClient::Response::kMetadata);
  }
  void Apply(const Part& part) {
    backend_.client_.Apply(part.resource, job_->key.namespace_, part.name, "", part.object, true,
                           backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
                             const bool refused = !result.ok() && result.error().code == Code::kInvalid;
                             if (refused && part.resource.group == wiring::kNativeGroup)
                               return self->ChangeImmutable(part);
                             self->Take(part, result);
                           }));
  }
  // A native gang whose size cannot be changed, in some versions of the API, is replaced. But Kubernetes
  // keeps a group while its pods live, and they cannot join another one. Then the gang keeps its size until
  // the next attempt, and only the mark of what it was prepared for changes.
  void ChangeImmutable(const Part& part) {
    if (backend_.HasLivePods(*job_, action_.attempt)) {
      const Json mark = {
          {"metadata",
           {{"annotations",
             {{kPreparedAnnotation, part.object["metadata"]["annotations"][kPreparedAnnotation]}}}}}};
      return backend_.client_.Patch(
          part.resource, job_->key.namespace_, part.name, "", ApiClient::PatchType::kMerge, mark,
          backend_.Guard(
              [self = shared_from_this(), part](const Result<Json>& result) { self->Take(part, result); }));
    }
    DeleteOptions options;
    if (const auto known = part.store->Get(job_->key.namespace_ + "/" + part.name); known != nullptr)
      options.uid = known->uid;
    backend_.client_.Delete(part.resource, job_->key.namespace_, part.name, options,
                            backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
                              if (!result.ok() && result.error().code != Code::kNotFound)
                                return self->Take(part, result);
                              self->Recreate(part);
                            }));
  }
  void Recreate(const Part& part) {
    backend_.client_.Create(
        part.resource, job_->key.namespace_, part.object,
        backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
          if (!result.ok() && result.error().code == Code::kAlreadyExists)
            return self->Take(
                part, Error{Code::kUnavailable,
                            fmt::format("{} {}/{} of another size is being deleted", part.resource.plural,
                                        self->job_->key.namespace_, part.name)});
          self->Take(part, result);
        }),
        ApiClient::Response::kMetadata);
  }
  void Identify(const Part& part) {
    backend_.client_.Get(
        part.resource, job_->key.namespace_, part.name,
        backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
          if (!result.ok()) return self->Take(part, result);
          if (ControllerUid(*result) == self->job_->uid) return self->Apply(part);
          self->Take(part,
                     Error{Code::kForbidden,
                           fmt::format("{} {}/{} exists and {}: delete it, or give the job another name",
                                       part.resource.plural, self->job_->key.namespace_, part.name,
                                       DescribeController(*result))});
        }));
  }
  void Take(const Part& part, const Result<Json>& result) {
    if (result.ok()) {
      MutexLock lock(mutex_);
      created_.push_back({part.store, part.name, RevisionOf(*result),
                          part.object["metadata"]["annotations"][kPreparedAnnotation].get<std::string>()});
    }
    Answer(result.ok() ? Ok() : Status(result.error()));
  }
  void End() {
    MutexLock lock(mutex_);
    const std::optional<Error> error = error_;
    std::vector<CreatedObject> created = std::move(created_);
    lock.Unlock();
    if (error) return done_(*error);
    backend_.OnPrepared(job_, action_, std::move(created));
    done_(Revision{0});
  }

  KubeBackend& backend_;
  const Job job_;
  const core::PrepareGang action_;
  const std::vector<Json> objects_;
  const std::vector<Json> samples_;
  const Done done_;
  Mutex mutex_;
  size_t left_ RM_GUARDED_BY(mutex_) = 0;
  std::vector<CreatedObject> created_ RM_GUARDED_BY(mutex_);
  std::optional<Error> error_ RM_GUARDED_BY(mutex_);  // the first
};

// Whether to ask the API server if it admits the pods: before the first of them, where the namespace enforces
// a Pod Security level. Otherwise the refusal would come only when the nodes have room. Only the server knows
// its exemptions.
bool KubeBackend::NeedsAdmission(const JobRecord& job, int64_t attempt) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  if (!space || space->pod_security.empty() || space->pod_security == "privileged") return false;
  return !HasPods(job, attempt);
}

bool KubeBackend::HasPods(const JobRecord& job, int64_t attempt) const {
  const auto pods = pods_.Group(job.key.ToString());
  return std::any_of(pods.begin(), pods.end(), [&](const auto& record) {
    return record->own->owner->uid == job.uid && record->own->pod.attempt == attempt;
  });
}

void KubeBackend::SetAdmitted(const JobRecord& job, int64_t attempt, bool admitted) {
  MutexLock lock(mutex_);
  StateOf(job).refused_attempt = admitted ? 0 : attempt;
}

bool KubeBackend::IsUntried(const JobRecord& job, int64_t attempt) const {
  const bool needs_ports = job.spec->host_network && !HasPods(job, attempt);
  const bool needs_admission = NeedsAdmission(job, attempt);
  if (!needs_ports && !needs_admission) return false;
  MutexLock lock(mutex_);
  const JobState& state = StateOf(job);
  return (needs_ports && state.ports_tried_attempt != attempt) ||
         (needs_admission && state.tried_attempt != attempt);
}

std::vector<Json> KubeBackend::SamplesOf(const JobRecord& job, int64_t attempt, int32_t size) const {
  wiring::Context context = ContextOf(job);
  context.attempt = attempt;
  context.size = size;
  const core::Job spec = job.Job();
  std::set<int32_t> kinds;
  std::vector<Json> samples;
  for (const int32_t rank : spec.RanksOf(spec.Target()))
    if (kinds.insert(spec.KindOf(rank)).second)
      samples.push_back(wiring::PodOf(job.ToApi(), job.uid, rank, context));
  return samples;
}

void KubeBackend::TrySamples(const std::string& space, std::vector<Json> samples,
                             std::function<void(Status)> done) {
  if (samples.empty()) return done(Ok());
  if (!options_.may_write()) return done(NotLeading());
  const Json sample = std::move(samples.front());
  samples.erase(samples.begin());
  client_.TryCreate(kPods, space, sample,
                    Guard([this, space, samples = std::move(samples),
                           done = std::move(done)](const Result<Json>& result) mutable {
                      // Anything else, such as a webhook that supports no dry run, is left to the creation.
                      if (!result.ok() && result.error().code == Code::kForbidden)
                        return done(result.error());
                      TrySamples(space, std::move(samples), std::move(done));
                    }));
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::TryPods& action,
                          Done done) {
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  // PrepareGang takes them, once the attempt has its nodes: a job that waits keeps none from others.
  const PortRange held = PortsOf(*job);
  Result<PortRange> ports = PortRange{};
  {
    MutexLock lock(mutex_);
    ports = FindPorts(*job, action.size, held);
    if (ports.ok()) StateOf(*job).ports_tried_attempt = action.attempt;
  }
  if (!ports.ok()) return done(ports.error());
  if (!NeedsAdmission(*job, action.attempt)) {
    Notify(job->key.ToString());
    return done(Revision{0});
  }
  TrySamples(job->key.namespace_, SamplesOf(*job, action.attempt, action.size),
             [this, job, action, done = std::move(done)](const Status& status) {
               if (!status.ok()) return done(status.error());
               {
                 MutexLock lock(mutex_);
                 StateOf(*job).tried_attempt = action.attempt;
               }
               Notify(job->key.ToString());
               done(Revision{0});
             });
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::PrepareGang& action,
                          Done done) {
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  const std::string& queue = job->spec->job.gang_queue;
  if (queue.empty() || GangOf(*job) != wiring::Gang::kVolcano) return Prepare(job, action, std::move(done));
  ReadVolcanoQueue(queue, [this, job, action, done = std::move(done)](bool exists) {
    if (exists) return Prepare(job, action, done);
    // The next decision sees the refusal (MissingQueue).
    done(Error{Code::kConflict, "Volcano has no queue " + job->spec->job.gang_queue});
  });
}

void KubeBackend::Prepare(const Job& job, const core::PrepareGang& action, Done done) {
  const Result<PortRange> ports = AllocatePorts(*job, action);
  if (!ports.ok()) return done(ports.error());
  wiring::Context context = ContextOf(*job);
  context.attempt = action.attempt;
  context.size = action.min;  // the PodGroup's minimum; no other object here depends on the size
  std::vector<Json> objects = wiring::ObjectsOf(job->ToApi(), job->uid, context);
  const uint64_t authority = job->spec->job.in_place ? AuthorityHash(context.coordinator_ca_pem) : 0;
  const std::string mark =
      MarkText({action, context.gang, static_cast<int64_t>(objects.size()), authority, *ports});
  for (Json& object : objects) object["metadata"]["annotations"][kPreparedAnnotation] = mark;
  std::vector<Json> samples;
  if (NeedsAdmission(*job, action.attempt) && IsUntried(*job, action.attempt))
    samples = SamplesOf(*job, action.attempt, action.size);
  else
    SetAdmitted(*job, action.attempt, true);
  std::make_shared<Preparation>(*this, job, action, std::move(objects), std::move(samples), std::move(done))
      ->Begin();
}

void KubeBackend::OnPrepared(const Job& job, const core::PrepareGang& action,
                             std::vector<CreatedObject> created) {
  {
    MutexLock lock(mutex_);
    JobState& state = StateOf(*job);
    state.created = std::move(created);
    state.groups_dropped = false;
  }
  // Delete the PodGroups of older attempts. Best effort: the garbage collector deletes them with the job.
  for (const auto& [resource, record] : GroupsOf(*job)) {
    if (record->name == wiring::GroupName(job->key.name, action.attempt)) continue;
    DeleteOptions options;
    options.uid = record->uid;
    client_.Delete(resource, job->key.namespace_, record->name, options, [](const Result<Json>&) {});
  }
  Notify(job->key.ToString());
}

// ---- DropGroups

// Returns the PodGroups of the job whose deletion nothing has requested.
KubeBackend::Groups KubeBackend::GroupsOf(const JobRecord& job) const {
  GangApis apis;
  {
    MutexLock lock(mutex_);
    apis = gang_apis_;
  }
  Groups groups;
  for (const auto& [api, store] : groups_) {
    const std::string version = ServedVersion(apis, api);
    if (version.empty()) continue;
    for (const auto& record : store->Group(job.key.ToString()))
      if (record->owner->uid == job.uid && !record->deleting)
        groups.emplace_back(ResourceOf(api, version), record);
  }
  return groups;
}

bool KubeBackend::HoldsGroups(const JobRecord& job) const {
  {
    MutexLock lock(mutex_);
    if (StateOf(job).groups_dropped) return false;
  }
  return !GroupsOf(job).empty();
}

// One after the other: a job has one, or two when the kind of its gang has changed.
void KubeBackend::DeleteGroups(const Job& job, Groups groups, Done done) {
  if (groups.empty()) {
    {
      MutexLock lock(mutex_);
      StateOf(*job).groups_dropped = true;
    }
    Notify(job->key.ToString());
    return done(Revision{0});
  }
  if (!options_.may_write()) return done(NotLeading());
  const auto [resource, record] = std::move(groups.back());
  groups.pop_back();
  DeleteOptions options;
  options.uid = record->uid;
  client_.Delete(resource, job->key.namespace_, record->name, options,
                 Guard([this, job, groups = std::move(groups), done](const Result<Json>& result) {
                   if (!result.ok() && result.error().code != Code::kNotFound) return done(result.error());
                   DeleteGroups(job, groups, done);
                 }));
}

void KubeBackend::Perform(const Job& job, const control::Write&, const core::DropGroups&, Done done) {
  DeleteGroups(job, GroupsOf(*job), std::move(done));
}

// ---- ReleaseGang

class KubeBackend::Release : public std::enable_shared_from_this<Release> {
 public:
  Release(KubeBackend& backend, std::string space, std::deque<core::PodRef> pods, Done done)
      : backend_(backend),
        space_(std::move(space)),
        done_(std::move(done)),
        pods_(std::move(pods)),
        left_(pods_.size()) {}

  void Begin() {
    size_t first = 0;
    {
      MutexLock lock(mutex_);
      first = std::min(pods_.size(), kMaxInFlight);
    }
    if (first == 0) return done_(Revision{0});
    for (size_t i = 0; i < first; ++i) ReleaseNext();
  }

 private:
  void ReleaseNext() {
    core::PodRef pod;
    {
      MutexLock lock(mutex_);
      if (pods_.empty()) return;
      pod = std::move(pods_.front());
      pods_.pop_front();
    }
    if (!backend_.options_.may_write()) return Answer(NotLeading());
    const Json patch = {
        {"metadata", {{"uid", pod.uid}}},
        {"spec", {{"schedulingGates", Json::array({{{"$patch", "delete"}, {"name", wiring::kGangGate}}})}}}};
    backend_.client_.Patch(kPods, space_, pod.name, "", ApiClient::PatchType::kStrategic, patch,
                           backend_.Guard([self = shared_from_this()](const Result<Json>& result) {
                             self->Answer(result.ok() ? Result<Revision>(RevisionOf(*result))
                                                      : Result<Revision>(result.error()));
                           }));
  }
  void Answer(const Result<Revision>& result) {
    bool last = false;
    Result<Revision> outcome = Revision{0};
    {
      MutexLock lock(mutex_);
      if (result.ok())
        newest_ = std::max(newest_, result.value());
      else if (!error_)
        error_ = result.error();
      last = --left_ == 0;
      outcome = error_ ? Result<Revision>(*error_) : Result<Revision>(newest_);
    }
    if (!last) return ReleaseNext();
    done_(std::move(outcome));
  }

  KubeBackend& backend_;
  const std::string space_;
  const Done done_;
  Mutex mutex_;
  std::deque<core::PodRef> pods_ RM_GUARDED_BY(mutex_);
  size_t left_ RM_GUARDED_BY(mutex_);
  Revision newest_ RM_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ RM_GUARDED_BY(mutex_);
};

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::ReleaseGang& action,
                          Done done) {
  std::deque<core::PodRef> gated;
  for (const core::PodRef& ref : action.pods) {
    const auto record = pods_.Get(write.key.namespace_ + "/" + ref.name);
    if (!record || !record->own) return done(Error{Code::kNotFound, "no pod " + ref.name});
    if (record->uid() != ref.uid)
      return done(Error{Code::kConflict, "pod " + ref.name + " has been replaced"});
    if (!record->own->pod.gated) continue;
    gated.push_back(ref);
  }
  // The places stay reserved whatever the answers say: a patch may be done although its response is lost, and
  // the next decision repeats one that is not.
  if (!job->spec->job.autoscaler) {
    MutexLock lock(mutex_);
    for (const core::PodRef& ref : gated)
      if (!planner_.capacity().ReservedFor(write.key.namespace_ + "/" + ref.name))
        return done(Error{Code::kConflict, "no place is reserved for " + ref.name});
  }
  std::make_shared<Release>(*this, write.key.namespace_, std::move(gated), std::move(done))->Begin();
}

}  // namespace ringmaster::kube
