// SPDX-License-Identifier: Apache-2.0

// KubeBackend: which gang schedulers the cluster has. Their APIs, whether Volcano's scheduler runs, and the
// groups of coscheduling, which do not notice room that appears.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "operator/control/job_tag.h"
#include "operator/core/decide/decide.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {
namespace {

constexpr const char* kWokenAnnotation = "ringmaster.dev/woken-at";

}  // namespace

// ---- APIs

void KubeBackend::DiscoverBy(Time at) {
  {
    MutexLock lock(mutex_);
    discover_at_ = std::min(discover_at_, at);
  }
  reflectors_.Wake();
}

void KubeBackend::Discover() {
  AskWhetherServed(kWorkloads, [this](bool served) { OnKueue(served); });
  AskWhetherServed(kResourceSlices, [this](bool served) { OnDra(served); });
  for (const GangApi api : {GangApi::kVolcano, GangApi::kCoscheduling}) {
    const std::string version = NewestVersion(api);
    AskWhetherServed(ResourceOf(api, version), [this, api, version](bool served) {
      OnDiscovered(api, served ? version : std::string());
    });
  }
  DiscoverNative();
  ReadMissingQueues();
}

void KubeBackend::DiscoverNative() {
  client_.Raw(std::string("/apis/") + wiring::kNativeGroup, Guard([this](const Result<Json>& result) {
                if (!result.ok() && result.error().code != Code::kNotFound)
                  return DiscoverBy(Now() + kDiscoverSoon);
                NativeVersions versions = result.ok() ? ReadNativeVersions(*result) : NativeVersions();
                bool news = false;
                {
                  MutexLock lock(mutex_);
                  news = unknown_native_ != versions.unknown;
                  unknown_native_ = versions.unknown;
                }
                if (news && !versions.unknown.empty())
                  log::Warn("gang=native version={}: not used, since this operator does not know it",
                            versions.unknown);
                ChooseNative(std::move(versions.usable));
                if (!news) return;
                for (const std::string& job : jobs_.Keys()) Notify(job);
              }));
}

void KubeBackend::ChooseNative(std::vector<const wiring::NativeApi*> versions) {
  if (versions.empty()) return OnDiscovered(GangApi::kNative, {});
  const std::string version = versions.front()->version;
  versions.erase(versions.begin());
  AskWhetherServed(ResourceOf(GangApi::kNative, version),
                   [this, version, others = std::move(versions)](bool served) {
                     if (!served) return ChooseNative(others);
                     OnDiscovered(GangApi::kNative, version);
                   });
}

void KubeBackend::AskWhetherServed(const Resource& resource, std::function<void(bool served)> done) {
  client_.Raw("/apis/" + resource.ApiVersion(),
              Guard([this, resource, done = std::move(done)](const Result<Json>& result) {
                bool served = false;
                if (result.ok()) {
                  for (const Json& item : json::Items(*result, "resources"))
                    served |= json::Text(item, "name") == resource.plural;
                } else if (result.error().code != Code::kNotFound) {
                  return DiscoverBy(Now() + kDiscoverSoon);
                }
                done(served);
              }));
}

// A server that starts may not know all definitions yet, so an answer that takes one back must come twice.
bool KubeBackend::MustAskAgain(bool takes_back, bool& doubtful) {
  doubtful = takes_back && !doubtful;
  if (!doubtful) return false;
  discover_at_ = std::min(discover_at_, Now() + kDiscoverSoon);
  reflectors_.Wake();
  return true;
}

void KubeBackend::OnDiscovered(GangApi api, const std::string& version) {
  std::string before;
  {
    MutexLock lock(mutex_);
    before = ServedVersion(gang_apis_, api);
    if (MustAskAgain(!before.empty() && before != version, doubtful_[api])) return;
    gang_apis_[api] = version;
    if (before == version) return;
    if (api == GangApi::kNative) native_tears_ = false;  // other servers
  }
  if (!before.empty()) {
    reflectors_.Retire(ResourceOf(api, before));
    groups_.at(api)->Clear();
  }
  if (!version.empty()) Follow(Watched(ResourceOf(api, version), wiring::kJobLabel, true), *groups_.at(api));
  // Jobs may wait for the API from now on, and whether Volcano runs may matter.
  DiscoverBy(Now() + kDiscoverWanted);
  for (const std::string& job : jobs_.Keys()) Notify(job);
}

bool KubeBackend::WaitsForGangApi(const JobRecord& job) const {
  return gang_apis_.size() == std::size(kGangApis) && !job.remote && !job.status.ended() &&
         job.spec->problem.empty() && !ChosenGang(job);
}

bool KubeBackend::WaitsForApi() const {
  if (WaitsForKueue() || !missing_queues_.empty()) return true;
  const auto jobs = jobs_.All();
  return std::any_of(jobs.begin(), jobs.end(),
                     [this](const Job& job) RM_REQUIRES(mutex_) { return WaitsForGangApi(*job); });
}

// ---- Kubernetes' scheduler
//
// An API server that serves gangs does not show whether the scheduler knows them. A scheduler that does not
// places each pod alone, and the first gang that it leaves in part shows it.

void KubeBackend::JudgeNative(const Job& job, const core::Status& status) {
  if (status.ledger.withdrawals <= job->status.ledger.withdrawals) return;
  const auto seen = Observe(job->key);
  if (!seen || !seen->observed.native_on_trial || !core::IsTorn(seen->observed, Now())) return;
  {
    MutexLock lock(mutex_);
    if (std::exchange(native_tears_, true)) return;
  }
  log::Warn("{} gang=native: placed in part, so auto does not choose it any more",
            control::JobTag(job->key, status));
  reflectors_.Wake();  // whether Volcano runs matters now
  for (const std::string& name : jobs_.Keys()) Notify(name);
}

// ---- Volcano's scheduler
//
// Nothing in the API says whether a scheduler runs. Volcano's elects a leader with a Lease of its own name.

bool KubeBackend::AsksForVolcano() const {
  return options_.gang == core::GangMode::kAuto && !ServedVersion(gang_apis_, GangApi::kVolcano).empty() &&
         (!TakesNative(gang_apis_) || native_tears_);
}

void KubeBackend::ReadVolcanoLease() {
  client_.Get(kLeases, options_.volcano_namespace, options_.schedulers.volcano,
              Guard([this](const Result<Json>& found) {
                bool runs = false;
                {
                  MutexLock lock(mutex_);
                  if (found.ok())
                    runs = volcano_lease_.Look(*found, Now(), WallNow());
                  else if (found.error().code != Code::kNotFound && found.error().code != Code::kForbidden)
                    return;  // the next one may be answered
                  if (volcano_runs_ == runs) return;
                  volcano_runs_ = runs;
                }
                log::Info("scheduler={} runs={}", options_.schedulers.volcano, runs);
                for (const std::string& job : jobs_.Keys()) Notify(job);
              }));
}

// A pod of a queue that does not exist waits without a word from Volcano, so nothing is created for it. The
// operator reads the queue before it creates the gang, and reads a missing one again until it exists.

void KubeBackend::ReadVolcanoQueue(const std::string& queue, std::function<void(bool exists)> done) {
  client_.Get(kVolcanoQueues, "", queue,
              Guard([this, queue, done = std::move(done)](const Result<Json>& found) {
                const bool missing = !found.ok() && found.error().code == Code::kNotFound;
                if (!missing) {
                  NoteVolcanoQueue(queue, true);
                  return done(true);
                }
                // The server also says so of a collection that it does not serve.
                client_.Raw("/apis/" + kVolcanoQueues.ApiVersion(),
                            Guard([this, queue, done](const Result<Json>& api) {
                              bool served = false;
                              if (api.ok())
                                for (const Json& item : json::Items(*api, "resources"))
                                  served |= json::Text(item, "name") == kVolcanoQueues.plural;
                              NoteVolcanoQueue(queue, !served);
                              done(!served);
                            }));
              }));
}

void KubeBackend::NoteVolcanoQueue(const std::string& queue, bool exists) {
  bool news = false;
  {
    MutexLock lock(mutex_);
    news = exists ? missing_queues_.erase(queue) > 0 : missing_queues_.insert(queue).second;
  }
  if (!news) return;
  if (!exists) DiscoverBy(Now() + kDiscoverWanted);
  for (const Job& job : jobs_.All())
    if (job->spec->job.gang_queue == queue) Notify(job->key.ToString());
}

void KubeBackend::ReadMissingQueues() {
  std::set<std::string> named;
  for (const Job& job : jobs_.All())
    if (!job->status.ended()) named.insert(job->spec->job.gang_queue);
  std::set<std::string> missing;
  {
    MutexLock lock(mutex_);
    std::erase_if(missing_queues_, [&](const std::string& queue) { return !named.contains(queue); });
    missing = missing_queues_;
  }
  for (const std::string& queue : missing) ReadVolcanoQueue(queue, [](bool) {});
}

// ---- coscheduling
//
// Housekeeping runs soon after the pods of a gang have changed, and from then on when the gang is due.

void KubeBackend::NoteSleeper(const JobRecord& job, wiring::Gang gang, const core::Observed& observed) {
  const bool waits =
      gang == wiring::Gang::kCoscheduling &&
      std::any_of(observed.pods.begin(), observed.pods.end(), [&](const core::Pod& pod) {
        return pod.attempt == job.status.ledger.attempt && pod.alive() && !pod.deleting() && !pod.bound();
      });
  sleeping_.Set(job.key.ToString(), waits && IsStored(job), Now());
}

void KubeBackend::WakeGroup(const std::string& name) {
  const Job job = jobs_.Get(name);
  if (!job || !options_.may_write()) return;
  const Json patch = {{"metadata", {{"annotations", {{kWokenAnnotation, WallSecondsText(WallNow())}}}}}};
  client_.Patch(ResourceOf(GangApi::kCoscheduling, NewestVersion(GangApi::kCoscheduling)),
                job->key.namespace_, wiring::GroupName(job->key.name, job->status.ledger.attempt), "",
                ApiClient::PatchType::kMerge, patch, [](const Result<Json>&) {});
}

}  // namespace ringmaster::kube
