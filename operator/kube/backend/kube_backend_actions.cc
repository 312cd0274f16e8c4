// SPDX-License-Identifier: Apache-2.0

// KubeBackend: the actions that are one request.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/codec.h"
#include "api/fields_status.h"
#include "base/json.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/backend/status_codec.h"
#include "operator/wiring/pod_shape.h"

namespace ringmaster::kube {
namespace {

int64_t WholeSeconds(Duration grace) {
  return std::chrono::ceil<std::chrono::seconds>(std::max(grace, Duration{0})).count();
}

}  // namespace

void KubeBackend::Execute(control::Write write, std::function<void(Result<control::Revision>)> done) {
  const Job job = jobs_.Get(write.key.namespace_ + "/" + write.key.name);
  const bool of_stray =
      write.job_uid.empty() && (std::holds_alternative<core::DeletePod>(write.action) ||
                                std::holds_alternative<core::UntrackPod>(write.action) ||
                                std::holds_alternative<core::ReleaseWorkload>(write.action));
  if (!of_stray && (!job || job->uid != write.job_uid))
    return done(Error{Code::kNotFound, "no job " + write.key.ToString() + " with uid " + write.job_uid});
  if (!std::holds_alternative<core::SetGang>(write.action) && !options_.may_write())
    return done(NotLeading());
  std::visit([&](const auto& action) { Perform(job, write, action, std::move(done)); }, write.action);
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::SetStatus& action,
                          Done done) {
  if (!write.if_revision)
    return done(Error{Code::kConflict, "job " + write.key.ToString() + ": a status write needs a revision"});
  Count(job, action.status);
  JudgeNative(job, action.status);
  ReportUnknown(*job);
  Json status = api::WriteValue(EncodeStatus(action.status, job->ToApi(), options_.clock));
  if (job->unknown_status) KeepUnknownStatus(*job->unknown_status, status);
  // The server takes everything except the status from the stored object. A patch costs it more: it encodes
  // and decodes the whole job first.
  const Json object = {{"apiVersion", kJobs.ApiVersion()},
                       {"kind", "TrainingJob"},
                       {"metadata",
                        {{"name", write.key.name},
                         {"namespace", write.key.namespace_},
                         {"uid", job->uid},
                         {"resourceVersion", std::to_string(*write.if_revision)}}},
                       {"status", std::move(status)}};
  client_.Update(kJobs, write.key.namespace_, write.key.name, "status", object,
                 Guard([done = std::move(done)](Result<Json> result) {
                   if (!result.ok()) return done(result.error());
                   done(RevisionOf(*result));
                 }),
                 ApiClient::Response::kMetadata);
}

// Once per spec and process.
void KubeBackend::ReportUnknown(const JobRecord& job) {
  if (job.spec->unknown.empty()) return;
  {
    MutexLock lock(mutex_);
    JobState& state = StateOf(job);
    if (std::exchange(state.reported_unknown, job.spec->job.spec_generation) == job.spec->job.spec_generation)
      return;
  }
  Record(job.key,
         {true, "UnknownFields",
          fmt::format("this version of the operator ignores {}: the CustomResourceDefinition is newer; "
                      "upgrade the operator",
                      job.spec->unknown)});
}

// The view learns of the write after clients of the API server do, so it cannot be what is counted.
void KubeBackend::Count(const Job& job, const core::Status& status) {
  if (!options_.on_counts) return;
  core::JobCounts before;
  core::JobCounts after;
  {
    MutexLock lock(mutex_);
    core::JobCounts& counted = StateOf(*job).counted;
    counted.Raise(core::JobCountsOf(job->spec->job, job->status));  // counted by the process that wrote it
    before = counted;
    counted.Raise(core::JobCountsOf(job->spec->job, status));
    after = counted;
  }
  if (after != before) options_.on_counts(*job, before, status);
}

Json KubeBackend::PodFor(const JobRecord& job, const core::CreatePod& action) const {
  wiring::Context context = ContextOf(job);
  if (action.gated) context.gang = wiring::Gang::kGate;
  if (context.gang == wiring::Gang::kGate && !action.gated) context.gang = wiring::Gang::kNone;
  context.attempt = action.attempt;
  context.size = action.size;
  context.excluded_nodes = action.excluded_nodes;
  context.avoided_nodes = action.avoided_nodes;
  context.admission = AdmissionOf(job, action.rank);
  const auto render = [&](wiring::Context with) {
    ChooseDomain(job, action, with);
    return wiring::PodOf(job.ToApi(), job.uid, action.rank, with);
  };
  if (action.avoided_nodes.empty()) return render(context);
  // To a scheduler, a preference is one score among many. If other nodes have capacity, make it a
  // requirement.
  wiring::Context strict = context;
  auto& excluded = strict.excluded_nodes;
  excluded.insert(excluded.end(), action.avoided_nodes.begin(), action.avoided_nodes.end());
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  strict.avoided_nodes.clear();
  const core::Capacity::Shape shape =
      interners_.shapes.Intern(wiring::ShapeOf(wiring::PodOf(job.ToApi(), job.uid, action.rank, strict)));
  const std::vector<std::string> peers = PeersOf(job, action.attempt, *shape);
  bool elsewhere = false;
  {
    MutexLock lock(mutex_);
    const core::Capacity::Shape held =
        planner_.capacity().ReservedFor(job.key.namespace_ + "/" + action.name);
    elsewhere = held ? held == shape : planner_.RoomFor(shape, 1, peers) > 0;
  }
  return render(elsewhere ? strict : context);
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::CreatePod& action,
                          Done done) {
  const std::string& space = write.key.namespace_;
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  // Its place decides its domain, and without a gate it needs it at once. The place may be lost since it was
  // reserved.
  const bool needs_place = !action.gated || !job->spec->job.TopologyKey().empty();
  if (needs_place && !job->spec->job.autoscaler && GangOf(*job) == wiring::Gang::kGate) {
    bool has_place = false;
    {
      MutexLock lock(mutex_);
      has_place = planner_.capacity().ReservedFor(space + "/" + action.name) != nullptr;
    }
    if (!has_place) return done(Error{Code::kConflict, "no place is reserved for " + action.name});
  }
  Json pod = PodFor(*job, action);
  pod["metadata"]["finalizers"] = Json::array({kTrackingFinalizer});
  client_.Create(
      kPods, space, pod,
      Guard([this, space, name = action.name, uid = job->uid, done = std::move(done)](Result<Json> result) {
        if (result.ok()) return done(RevisionOf(*result));
        if (result.error().code != Code::kAlreadyExists) return done(result.error());
        const auto known = pods_.Get(space + "/" + name);
        if (known && known->own && known->own->owner->uid == uid) return done(result.error());
        // Report who owns the other pod.
        client_.Get(kPods, space, name,
                    Guard([space, name, uid, done, error = result.error()](Result<Json> found) {
                      if (!found.ok() || ControllerUid(*found) == uid) return done(error);
                      done(Error{Code::kAlreadyExists, "pod " + space + "/" + name + " exists and " +
                                                           DescribeController(*found) +
                                                           ": delete it, or give the job another name"});
                    }));
      }),
      ApiClient::Response::kMetadata);
}

void KubeBackend::Untrack(const std::string& space, const std::string& name, const std::string& uid,
                          ApiClient::Done done) {
  const Json patch = {
      {"metadata",
       {{"uid", uid}, {"$deleteFromPrimitiveList/finalizers", Json::array({kTrackingFinalizer})}}}};
  client_.Patch(kPods, space, name, "", ApiClient::PatchType::kStrategic, patch,
                [space, name, done = std::move(done)](Result<Json> result) {
                  // The server calls another uid an attempt to change it.
                  if (!result.ok() && result.error().code == Code::kInvalid)
                    return done(Error{Code::kConflict, "pod " + space + "/" + name +
                                                           " has been replaced: " + result.error().message});
                  done(std::move(result));
                });
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::UntrackPod& action,
                          Done done) {
  Untrack(write.key.namespace_, action.name, action.uid, Guard([done = std::move(done)](Result<Json> result) {
            if (!result.ok()) {
              if (result.error().code == Code::kNotFound) return done(Revision{0});
              return done(result.error());
            }
            // A pod that only the finalizer held is gone, and the answer has a revision before that. The next
            // one may belong to another pod, or to an event of this pod: until the view shows the removal,
            // the finalizer is removed again, which changes nothing.
            const Json& metadata = json::Child(*result, "metadata");
            const bool gone = !json::Text(metadata, "deletionTimestamp").empty() &&
                              json::Integer(metadata, "deletionGracePeriodSeconds") == 0 &&
                              json::Items(metadata, "finalizers").empty();
            done(RevisionOf(*result) + (gone ? 1 : 0));
          }));
}

void KubeBackend::Perform(const Job&, const control::Write& write, const core::DeletePod& action, Done done) {
  auto remove = [this, space = write.key.namespace_, action, done] {
    DeleteOptions options;
    options.uid = action.uid;
    options.grace_seconds = WholeSeconds(action.grace);
    options.propagation = "Background";
    client_.Delete(kPods, space, action.name, options, Guard([done](Result<Json> result) {
                     if (!result.ok()) return done(result.error());
                     done(RevisionOf(*result));
                   }));
  };
  const auto known = pods_.Get(write.key.namespace_ + "/" + action.name);
  if (!known || !known->own || known->uid() != action.uid || !known->own->pod.tracked) return remove();
  Untrack(write.key.namespace_, action.name, action.uid,
          Guard([this, done, remove = std::move(remove)](const Result<Json>& result) {
            if (!result.ok()) return done(result.error());
            if (!options_.may_write()) return done(NotLeading());
            remove();
          }));
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::SetGang& action,
                          Done done) {
  {
    MutexLock lock(mutex_);
    StateOf(*job).order = action;
  }
  // Before the acknowledgement: the next decision may rely on the coordinator having the order.
  if (options_.on_gang) options_.on_gang(*job, action);
  Notify(write.key.ToString());
  done(Revision{0});
}

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::DeleteJob&, Done done) {
  DeleteOptions options;
  options.uid = job->uid;
  options.propagation = "Background";
  client_.Delete(kJobs, write.key.namespace_, write.key.name, options,
                 Guard([done = std::move(done)](Result<Json> result) {
                   if (!result.ok()) return done(result.error());
                   done(Revision{0});
                 }));
}

}  // namespace ringmaster::kube
