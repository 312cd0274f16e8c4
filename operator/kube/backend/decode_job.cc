#include "operator/kube/backend/decode_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/codec.h"
#include "api/fields_status.h"
#include "operator/control/convert.h"
#include "operator/kube/backend/status_codec.h"

namespace ringmaster::kube {

namespace {

constexpr size_t kMaxProblems = 5;
constexpr size_t kMaxProblemBytes = 500;

// Bounded, so that it comes back from a condition as it was.
std::string TextOf(const std::vector<api::Problem>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    std::string one = problems[i].ToString();
    if (one.size() > kMaxProblemBytes) {
      size_t end = kMaxProblemBytes;
      while (end > 0 && (static_cast<unsigned char>(one[end]) & 0xC0) == 0x80) --end;
      one.resize(end);
      one += "...";
    }
    text += (i == 0 ? "" : "; ") + one;
  }
  if (problems.size() > kMaxProblems) text += fmt::format("; and {} more", problems.size() - kMaxProblems);
  return text;
}

}  // namespace

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
  const Json& metadata = Child(object, "metadata");
  const int64_t generation = Integer(metadata, "generation", 1);
  record->problem = TextOf(loaded.problems);
  if (record->problem.empty()) {
    record->api = std::move(loaded.job);
    record->job = control::FromApi(record->api, meta.uid, generation);
  } else {
    record->api.metadata.name = meta.name;
    record->api.metadata.namespace_ = meta.namespace_;
    record->job.name = meta.name;
    record->job.uid = meta.uid;
    record->job.spec_generation = generation;
    record->job.native = false;  // a stop by SIGTERM: the coordinator needs to know more
    record->job.suspend = Flag(Child(object, "spec"), "suspend");
  }
  record->job.deleted = !Text(metadata, "deletionTimestamp").empty();
  const auto created = ParseWallTime(Text(metadata, "creationTimestamp"));
  record->created = created.ok() ? std::min(clock.ToSteady(*created), now) : now;
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
