// SPDX-License-Identifier: Apache-2.0

// The Backend on a Kubernetes API: jobs, pods, nodes and the rest are watched into stores; a decision sees a
// snapshot of them; its actions become requests.
//
//   kube::CprestHttp http(...); kube::ApiClient client(http);
//   kube::KubeBackend backend(client, std::move(options));
//   backend.Start();                  // begins to watch; standby replicas stop here, with warm stores
//   ... synced, and we lead: control::Loop loop(backend, {...}); loop.Start();
//   coordinator callback: backend.SetReport(key, report);
//   loop.Stop(); backend.Stop();
//
// How the contract of control/backend.h is kept here:
//  - Revisions are resourceVersions. A watch that has passed the one of a write has brought the write.
//  - "The job exists with this uid" is checked against the view, and by the server where it can: uid and
//    resourceVersion travel with every patch and deletion. A pod that is made for a job that is gone already
//    has an owner that does not exist, and is collected by the server.
//  - ReadThrough lists the job and its pods at the newest revision and leaves a floor in the stores, so that
//    older news does not undo it.
//  - PrepareGang marks each object with what it was made for (kPreparedAnnotation); Observed::prepared is set
//    as long as all of them are there with that mark, also for the next process. Another authority makes all
//    marks outdated. The ports of a job on hostNetwork are part of its marks.
//  - ReleaseGang: room is reckoned from nodes and bound pods of everybody (core/capacity.h).
// Jobs that do not decode are observed as invalid (core/model.h). Jobs with another spec.managedBy are not
// seen at all.
//
// Threads: every function from any thread. Callbacks run without any lock held: on_gang on the thread that
// calls Execute, the others on threads of the transport or of the reflectors; none may block.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/control/backend.h"
#include "operator/core/capacity.h"
#include "operator/kube/api_client.h"
#include "operator/kube/backend/gang_apis.h"
#include "operator/kube/backend/host_ports.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/reflector.h"
#include "operator/kube/watch/store.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {

class KubeBackend final : public control::Backend {
 public:
  struct Options {
    WallClock clock;
    std::vector<std::string> namespaces{};  // where jobs are looked after; empty: everywhere
    // What wiring needs to know of the cluster and the operator; the backend fills in gang, attempt, size,
    // excluded nodes, ports and the coordinator's authority.
    std::function<wiring::Context(const control::Key&)> context;
    // Asked before each request that changes something: whether we lead, with time to spare.
    std::function<bool()> may_write = [] { return true; };
    std::function<void(const control::Key&, const core::SetGang&)> on_gang;
    std::function<void(const control::Key&, const std::string& uid, const core::Event&)> on_event;
    // The same job as it was and as it is, when either its wish or its status is another.
    std::function<void(const JobRecord& before, const JobRecord& after)> on_job;
    std::function<void(const Resource&, const Error&)> on_watch_failure;
    PortRange host_ports{20000, 10000};  // for all jobs on hostNetwork together
    Watcher::Options watch;
  };

  // `client` must outlive the backend.
  KubeBackend(ApiClient& client, Options options);
  ~KubeBackend() override;

  void Start();
  void Stop();
  // Everything was listed once: only then may a controller decide.
  bool Synced() const;
  // Why the view is not being kept up to date, one sentence each: for /readyz.
  std::vector<std::string> Problems() const;

  // How many objects of each kind are held: for metrics.
  std::vector<std::pair<std::string, int64_t>> ObjectCounts() const;

  // Whom workers are to trust as the signer of the coordinator's certificate: goes into every job's
  // ConfigMap, also of those that run.
  void SetAuthority(std::string pem);

  // This worker of this job, as far as is known.
  std::optional<core::Pod> FindPod(const control::Key& key, const std::string& name) const;

  // The coordinator's side: the newest report replaces the one before.
  void SetReport(const control::Key& key, rendezvous::Report report);

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  control::Revision Seen(control::Kind kind, const control::Key& key) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key& key, const core::Event& event) override;
  void Subscribe(std::function<void(const control::Key&)> changed) override;

 private:
  using Done = std::function<void(Result<control::Revision>)>;
  using Job = std::shared_ptr<const JobRecord>;

  // What stands beside the pods, as just made by us: counts until the watch has brought it.
  struct CreatedObject {
    const Store<ObjectRecord>* store = nullptr;
    std::string name;
    Revision revision = 0;
    std::string mark;
  };
  // What this process knows of a job beside what the API says.
  struct JobState {
    std::string uid;
    std::unique_ptr<const rendezvous::Report> report;  // null: none, as for all but native jobs
    std::optional<core::SetGang> order;
    std::vector<CreatedObject> made;
    PortRange ports;  // as allotted by this process
    std::optional<core::Refusal> preflight;
    std::string preflight_for;  // what it was computed from
  };

  // Hooks of the stores.
  void OnJob(const Job& before, const Job& after);
  void OnPod(const std::shared_ptr<const PodRecord>& before, const std::shared_ptr<const PodRecord>& after);
  void OnNode(const std::string& name, const std::shared_ptr<const NodeRecord>& before,
              const std::shared_ptr<const NodeRecord>& after);
  void OnNamespace(const std::string& name, const std::shared_ptr<const NamespaceRecord>& before,
                   const std::shared_ptr<const NamespaceRecord>& after);

  // Parts of a snapshot.
  std::vector<core::Pod> PodsOf(const JobRecord& job) const;
  // Nodes of its unfinished pods of this attempt: for the topology key.
  std::vector<std::string> NodesOf(const JobRecord& job, int64_t attempt) const;
  std::vector<std::string> NotReadyNodesOf(const core::Observed& observed) const;
  core::GangProvider ProviderOf(const JobRecord& job) const;
  wiring::Gang GangOf(const JobRecord& job) const;
  core::Fit FitOf(const JobRecord& job) const;
  std::optional<core::PrepareGang> PreparedOf(const JobRecord& job) const;
  PortRange PortsOf(const JobRecord& job) const;
  std::optional<core::Refusal> PreflightOf(const JobRecord& job) const;
  std::optional<std::string> RefusalOf(const JobRecord& job, core::RefusalKind& kind) const;

  // Actions. `done` is called exactly once.
  void Perform(const Job& job, const control::Write& write, const core::SetStatus& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::CreatePod& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DeletePod& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::SetGang& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DeleteJob& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::PrepareGang& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::ReleaseGang& action, Done done);
  class Preparation;
  class Release;
  class ReadThroughRequest;
  // With what the pod is to be made: kept off the avoided nodes where others have room.
  Json PodFor(const JobRecord& job, const core::CreatePod& action) const;
  Result<PortRange> AllotPorts(const JobRecord& job);
  wiring::Context ContextOf(const JobRecord& job) const;
  void OnPrepared(const Job& job, const core::PrepareGang& action, std::vector<CreatedObject> made);
  Store<ObjectRecord>* StoreOf(const std::string& kind, const std::string& api_version);

  // The entry of this very job, new when there is none. With mutex_ held.
  JobState& StateOf(const JobRecord& job) const;
  void Notify(const std::string& job) const;
  void CapacityChanged();
  Time Housekeeping(Time now);
  void Discover();
  Collection Watched(Resource resource, std::string label_selector = {}, bool metadata_only = false) const;
  // In the namespaces that we look after.
  template <class T>
  void Follow(Collection collection, Store<T>& store) {
    if (options_.namespaces.empty()) return reflectors_.Add(std::move(collection), store.In({}));
    for (const std::string& name : options_.namespaces) {
      collection.namespace_ = name;
      reflectors_.Add(collection, store.In(name));
    }
  }

  ApiClient& client_;
  const Options options_;

  Interners interners_;  // before the stores, whose records share it
  Store<JobRecord> jobs_;
  Store<PodRecord> pods_;
  Store<NodeRecord> nodes_;
  Store<NamespaceRecord> namespaces_;
  Store<ObjectRecord> services_;
  Store<ObjectRecord> config_maps_;
  std::map<GangApi, std::unique_ptr<Store<ObjectRecord>>> groups_;  // one for each, watched when served

  mutable std::mutex mutex_;
  mutable std::map<std::string, JobState> job_states_;  // by namespace/name
  mutable std::map<std::string, Time> missing_nodes_;
  std::string authority_pem_;
  uint64_t authority_ = 0;  // its hash
  core::Capacity capacity_;
  bool capacity_changed_ = false;
  Time last_sweep_ = Time::min();
  bool changed_ = false;  // pods have, since the last trim
  Time last_trim_{};
  GangApis gang_apis_;
  Time discover_at_ = Time::min();
  std::vector<std::function<void(const control::Key&)>> subscribers_;

  // Answers that come after Stop find it closed, and are dropped.
  struct Gate {
    std::shared_mutex mutex;
    bool closed = false;
  };
  template <class F>
  ApiClient::Done Guard(F f) {
    return [gate = gate_, f = std::move(f)](Result<Json> result) mutable {
      std::shared_lock lock(gate->mutex);
      if (!gate->closed) f(std::move(result));
    };
  }
  const std::shared_ptr<Gate> gate_;
  Reflectors reflectors_;  // last: it calls into all of the above
};

}  // namespace ringmaster::kube
