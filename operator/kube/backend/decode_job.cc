// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/decode_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/codec.h"
#include "api/fields_status.h"
#include "api/launch.h"
#include "api/pod_template.h"
#include "base/check.h"
#include "base/json.h"
#include "operator/control/convert.h"
#include "operator/kube/backend/status_codec.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {
namespace {

constexpr const char* kLastApplied = "kubectl.kubernetes.io/last-applied-configuration";  // a copy of the job
constexpr size_t kMaxProblems = 5;
constexpr size_t kMaxProblemBytes = 500;

std::string Shorten(std::string text) {
  if (text.size() <= kMaxProblemBytes) return text;
  size_t end = kMaxProblemBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

// Bounded, so that the condition that reports it does not truncate it.
std::string TextOf(const std::vector<api::Problem>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    text += (i == 0 ? "" : "; ") + Shorten(problems[i].ToString());
  }
  if (problems.size() > kMaxProblems) text += fmt::format("; and {} more", problems.size() - kMaxProblems);
  return text;
}

void AddScheduler(std::string path, const Json& pod_template, JobSpec& spec) {
  const std::string_view name = json::Text(json::Child(pod_template, "spec"), "schedulerName");
  if (!name.empty()) spec.schedulers.emplace_back(std::move(path), name);
}

std::shared_ptr<const JobSpec> DecodeSpec(const Json& object, const Meta& meta, bool autoscaler) {
  // The status is decoded separately: errors in it, which only another writer can have made, must not stop
  // the job.
  Json tree = Json::object();
  for (const auto& [name, value] : object.items())
    if (name != "status") tree[name] = value;
  // Items of lists do not have these.
  tree["apiVersion"] = "ringmaster.dev/v1alpha1";
  tree["kind"] = "TrainingJob";
  api::Loaded loaded = api::FromStored(tree);
  auto spec = std::make_shared<JobSpec>();
  const int64_t generation = json::Integer(json::Child(object, "metadata"), "generation", 1);
  spec->problem = TextOf(loaded.problems);
  for (size_t i = 0; i < std::min(loaded.unknown.size(), kMaxProblems); ++i)
    spec->unknown += (i == 0 ? "" : ", ") + Shorten(loaded.unknown[i]);
  if (loaded.unknown.size() > kMaxProblems)
    spec->unknown += fmt::format(", and {} more", loaded.unknown.size() - kMaxProblems);
  if (spec->problem.empty()) {
    spec->job = control::FromApi(loaded.job, meta.uid, generation);
    spec->job.autoscaler |= autoscaler && !spec->job.preempt;
    spec->host_network = loaded.job.spec.network.hostNetwork;
    const api::Spec& from = loaded.job.spec;
    spec->workers_priority = api::PriorityClassOf(from, from.workers.template_);
    for (const api::Role& role : from.roles)
      spec->other_priorities.push_back(api::PriorityClassOf(from, api::TemplateOf(from, role.name, 0)));
    spec->kueue_topology = api::KueueTopologyOf(from.workers.template_);
    AddScheduler("spec.workers.template", from.workers.template_, *spec);
    for (const api::Role& role : from.roles)
      AddScheduler(fmt::format("spec.roles[{}].template", role.name), role.template_, *spec);
  } else {
    // An earlier version may have started the job, or have ended it.
    const core::Job read = control::LifecycleOf(loaded.job.spec.lifecycle);
    spec->job.clean_pods = read.clean_pods;
    spec->job.ttl = read.ttl;
    spec->job.active_deadline = read.active_deadline;
    loaded.job = {};
    loaded.job.metadata.name = meta.name;
    loaded.job.metadata.namespace_ = meta.namespace_;
    spec->job.name = meta.name;
    spec->job.uid = meta.uid;
    spec->job.spec_generation = generation;
    spec->job.in_place = false;  // it is stopped by SIGTERM; the coordinator would need the whole spec
    spec->job.suspend = json::Flag(json::Child(object, "spec"), "suspend");
  }
  loaded.job.metadata.annotations.erase(kLastApplied);
  spec->text = DumpJson(api::ToJson(loaded.job));
  return spec;
}

// The server raises the generation with every change of the spec, and only then.
bool SameGeneration(const JobRecord* before, const Json& object, const Meta& meta) {
  const int64_t generation = json::Integer(json::Child(object, "metadata"), "generation");
  return before != nullptr && generation > 0 && before->uid == meta.uid &&
         before->spec->job.spec_generation == generation;
}

}  // namespace

api::TrainingJob JobRecord::ToApi() const {
  api::TrainingJob whole;
  // The text was written from a valid tree.
  const auto node = api::NodeFromJson(Json::parse(spec->text, nullptr, false));
  CHECK(node.ok(), "{}: {}", key.ToString(), node.error().message);
  api::ReadValue(*node, whole);
  return whole;
}

std::shared_ptr<const JobRecord> DecodeJob(const Json& object, const Meta& meta,
                                           const std::shared_ptr<const JobRecord>& before,
                                           const WallClock& clock, Time now, bool autoscaler) {
  const std::string_view manager = json::Text(json::Child(object, "spec"), "managedBy");
  const Json& metadata = json::Child(object, "metadata");
  const Json& labels = json::Child(metadata, "labels");
  const Json& annotations = json::Child(metadata, "annotations");
  // MultiKueue leaves to us to ask for the quota.
  const bool remote = manager == wiring::kMultiKueue && !json::Text(labels, wiring::kQueueNameLabel).empty();
  if (!manager.empty() && manager != kManager && !remote) return nullptr;
  auto record = std::make_shared<JobRecord>();
  record->key = {meta.namespace_, meta.name};
  record->revision = meta.revision;
  record->uid = meta.uid;
  record->spec =
      SameGeneration(before.get(), object, meta) ? before->spec : DecodeSpec(object, meta, autoscaler);
  record->remote = remote;
  record->deleted = !json::Text(metadata, "deletionTimestamp").empty();
  record->queue = json::Text(labels, wiring::kQueueNameLabel);
  record->workload_priority = json::Text(labels, wiring::kWorkloadPriorityLabel);
  record->maximum_time = json::Text(labels, wiring::kMaximumTimeLabel);
  if (annotations.is_object())
    for (const auto& [key, value] : annotations.items())
      if (wiring::IsPassedOn(key) && value.is_string() && value != "") record->passed_on[key] = value;
  record->slices = json::Text(annotations, wiring::kElasticAnnotation) == "true";
  record->prebuilt = json::Text(annotations, wiring::kPrebuiltWorkload);
  if (record->prebuilt.empty()) record->prebuilt = json::Text(labels, wiring::kPrebuiltWorkload);
  for (const Json& finalizer : json::Items(metadata, "finalizers"))
    record->orphans |= record->deleted && finalizer == "orphan";
  const auto created = ParseWallTime(json::Text(metadata, "creationTimestamp"));
  record->created = created.ok() ? std::min(clock.ToSteady(*created), now) : now;
  api::Status status;
  if (auto node = api::NodeFromJson(json::Child(object, "status")); node.ok()) api::ReadValue(*node, status);
  record->status = DecodeStatus(status, clock);
  if (Json unknown = UnknownStatus(json::Child(object, "status")); !unknown.is_null())
    record->unknown_status = std::make_shared<const Json>(std::move(unknown));
  if (record->spec->job.programs) record->status.display.progress.seconds_left = status.progress.etaSeconds;
  ClampTimes(record->status, record->spec->job, now);
  return record;
}

}  // namespace ringmaster::kube
