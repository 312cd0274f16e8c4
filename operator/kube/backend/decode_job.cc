#include "operator/kube/backend/decode_job.h"

#include <utility>

#include "api/codec.h"
#include "api/fields_status.h"
#include "operator/control/convert.h"
#include "operator/kube/backend/status_codec.h"

namespace ringmaster::kube {

api::TrainingJob JobRecord::Whole() const {
  api::TrainingJob whole = api;
  // It was a tree when the text was made of it.
  if (!template_text.empty()) whole.spec.workers.template_ = Json::parse(template_text, nullptr, false);
  return whole;
}

std::shared_ptr<const JobRecord> DecodeJob(const Json& object, const Meta& meta, const WallClock& clock,
                                           Time now) {
  const std::string_view manager = Text(Child(object, "spec"), "managedBy");
  if (!manager.empty() && manager != kManager) return nullptr;
  auto record = std::make_shared<JobRecord>();
  record->key = {meta.namespace_, meta.name};
  record->revision = meta.revision;
  record->uid = meta.uid;

  // The status is read apart: what is wrong with it, which only somebody else can have done, must not stop
  // the job.
  Json wish = Json::object();
  for (const auto& [name, value] : object.items())
    if (name != "status") wish[name] = value;
  // Lists leave these out.
  wish["apiVersion"] = "ringmaster.dev/v1alpha1";
  wish["kind"] = "TrainingJob";
  api::Loaded loaded = api::FromJson(wish);
  record->problems = std::move(loaded.problems);
  if (!record->problems.empty()) {
    record->job.name = meta.name;
    record->job.uid = meta.uid;
    return record;
  }
  record->api = std::move(loaded.job);
  record->job = control::FromApi(record->api, meta.uid, Integer(Child(object, "metadata"), "generation", 1));
  record->job.deleted = !Text(Child(object, "metadata"), "deletionTimestamp").empty();
  api::Status status;
  if (auto node = api::NodeFromJson(Child(object, "status")); node.ok()) api::ReadValue(*node, status);
  record->status = DecodeStatus(status, clock);
  ClampTimes(record->status, record->job, now);
  if (!record->api.spec.workers.template_.is_null()) {
    record->template_text = DumpJson(record->api.spec.workers.template_);
    record->api.spec.workers.template_ = Json();
  }
  return record;
}

}  // namespace ringmaster::kube
