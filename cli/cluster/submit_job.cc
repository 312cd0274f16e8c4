// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/submit_job.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/write_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Text;

std::string NameOf(const Json& object) { return std::string(Text(Child(object, "metadata"), "name")); }

// Returns the ConfigMap as created; null if it was there already.
Result<Json> EnsureCode(Cluster& cluster, const Json& code) {
  const Result<Json> created = cluster.Create(kube::kConfigMaps, code);
  if (created.ok()) return created;
  if (created.error().code != Code::kAlreadyExists) return created.error();
  RM_ASSIGN(const Json found, cluster.Get(kube::kConfigMaps, cluster.space(), NameOf(code)));
  if (Child(found, "binaryData") != Child(code, "binaryData"))
    return Error{Code::kInvalid,
                 fmt::format("ConfigMap {}/{} has other content than the code that it is named after; delete "
                             "it if no job uses it",
                             cluster.space(), NameOf(code))};
  return Json();
}

// Deletes code that no job came to own, unless another job has begun to use it. A job that finds it and does
// not own it yet creates it again (OwnCode).
void DropCode(Cluster& cluster, const Json& created) {
  const Json& meta = Child(created, "metadata");
  kube::DeleteOptions options;
  options.uid = Text(meta, "uid");
  const std::string_view revision = Text(meta, "resourceVersion");
  std::from_chars(revision.data(), revision.data() + revision.size(), options.revision);
  const Status deleted = cluster.Delete(kube::kConfigMaps, NameOf(created), options);
  if (deleted.ok() || deleted.error().code == Code::kConflict || deleted.error().code == Code::kNotFound)
    return;
  Print(stderr, "ringmaster: the ConfigMap {}/{} stays, and no job uses it: {}\n", cluster.space(),
        NameOf(created), deleted.error().message);
}

Error Exists(const Cluster& cluster, const Json& job) {
  return {Code::kAlreadyExists,
          fmt::format("{0}/{1} exists: give another --name, follow it (`ringmaster attach {1} -n {0}`), "
                      "or delete it (`ringmaster cancel {1} -n {0}`)",
                      cluster.space(), NameOf(job))};
}

// The garbage collector deletes the code with the last job that owns it. One that it deletes before this job
// owns it, because the job before has ended, is created again.
Status OwnCode(Cluster& cluster, const Json& job, const std::string& uid, Json code) {
  const Json owners = Json::array({{{"apiVersion", Text(job, "apiVersion")},
                                    {"kind", Text(job, "kind")},
                                    {"name", NameOf(job)},
                                    {"uid", uid}}});
  code["metadata"]["ownerReferences"] = owners;
  const Json patch = {{"metadata", {{"ownerReferences", owners}}}};
  for (int attempt = 0;; ++attempt) {
    const auto patched = cluster.StrategicPatch(kube::kConfigMaps, NameOf(code), patch);
    if (patched.ok()) return Ok();
    if (patched.error().code != Code::kNotFound || attempt == 3) return patched.error();
    const auto created = cluster.Create(kube::kConfigMaps, code);
    if (created.ok()) return Ok();
    if (created.error().code != Code::kAlreadyExists) return created.error();
  }
}

}  // namespace

Result<Submitted> SubmitJob(Cluster& cluster, const Json& job, const Json& code) {
  RM_TRY(cluster.CheckJobs(cluster.space()));
  if (cluster.Get(kube::kJobs, cluster.space(), NameOf(job)).ok()) return Exists(cluster, job);
  Submitted submitted;
  Json sent;
  if (!code.is_null()) {
    RM_ASSIGN(sent, EnsureCode(cluster, code));
    submitted.code_was_there = sent.is_null();
  }
  const Result<Json> created = cluster.Create(kube::kJobs, job);
  if (!created.ok()) {
    const Code why = created.error().code;
    // After an ambiguous error the job may exist and need the code.
    if (!sent.is_null() && why != Code::kAmbiguous) DropCode(cluster, sent);
    return why == Code::kAlreadyExists ? Exists(cluster, job) : created.error();
  }
  submitted.uid = Text(Child(*created, "metadata"), "uid");
  if (code.is_null()) return submitted;
  if (const Status owned = OwnCode(cluster, job, submitted.uid, code); !owned.ok())
    Print(stderr, "ringmaster: the ConfigMap {} stays when the job is deleted: {}\n", NameOf(code),
          owned.error().message);
  return submitted;
}

}  // namespace ringmaster::cli
