// SPDX-License-Identifier: Apache-2.0

// The Backend for a Kubernetes cluster: it watches jobs, pods, nodes and related objects into stores, a
// decision sees a snapshot of them, and its actions become requests.
//
//   kube::CprestHttp http(...); kube::ApiClient client(http); kube::KubeBackend backend(client,
//   std::move(options));
//   backend.Start();                  // starts to watch; standby replicas stop here, with warm stores ...
//   once synced and leading: control::Loop loop(backend, {...}); loop.Start(); coordinator callback:
//   backend.SetReport(key, uid, report); loop.Stop(); backend.Stop();
//
// How it meets the contract of control/backend.h:
//  - Revisions are resourceVersions. A watch that has passed the revision of a write contains the write.
//  - "The job exists with this uid" is checked against the view, and by the server where possible: patches
//    and deletions carry uid and resourceVersion. A pod created for a job that no longer exists has a missing
//    owner, so the server's garbage collector deletes it.
//  - ReadThrough lists the job and its pods at the newest revision and leaves a floor in the stores, so that
//    older events do not undo it.
//  - PrepareGang annotates each object with a mark (prepared_mark.h). Observed::prepared is set while all
//    objects exist with that mark, also for the next process. A change of the certificate authority makes all
//    marks outdated. The ports of a job on hostNetwork are part of its marks, and so is the attempt's gang
//    provider.
//  - ReserveRoom and Observed::fit know the free capacity from all nodes and all pods
//  (core/planner/room_planner.h).
//    Each TakeTurn also notes whether the job waits for room; when capacity becomes free, the jobs that would
//    find room are notified.
// Jobs that cannot be decoded are observed as invalid (core/model.h). Jobs with another spec.managedBy are
// ignored.
//
// Files: kube_backend.cc has construction, watches and housekeeping; kube_backend_changes.cc the stores'
// callbacks; kube_backend_snapshot.cc all that a decision reads; kube_backend_actions.cc the actions that are
// one request; kube_backend_gang.cc PrepareGang and ReleaseGang, which are several;
// kube_backend_discovery.cc which gang schedulers there are, and what wakes them; kube_backend_room.cc the
// free capacity and its reservations; kube_backend_devices.cc the devices that pods claim;
// kube_backend_topology.cc the domains of the pods;
// kube_backend_preemption.cc who makes room for whom; kube_backend_kueue.cc the Workloads of jobs in a queue
// of Kueue.
//
// Thread-safe. Callbacks run without a lock held: on_gang on the thread that calls Execute, the others on
// threads of the transport or of the reflectors. None may block.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "operator/control/backend.h"
#include "operator/core/capacity/capacity.h"
#include "operator/core/capacity/device_room.h"
#include "operator/core/capacity/label_selector.h"
#include "operator/core/goodput_meter.h"
#include "operator/core/job_counts.h"
#include "operator/core/planner/room_planner.h"
#include "operator/kube/api_client.h"
#include "operator/kube/backend/decode_workload.h"
#include "operator/kube/backend/gang_apis.h"
#include "operator/kube/backend/host_ports.h"
#include "operator/kube/backend/lease_view.h"
#include "operator/kube/backend/missing_nodes.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/backend/sleeping_groups.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/reflector.h"
#include "operator/kube/watch/store.h"
#include "operator/wiring/wiring.h"
#include "operator/wiring/workload.h"

namespace ringmaster::kube {

class KubeBackend final : public control::Backend {
 public:
  struct Options {
    WallClock clock;
    std::vector<std::string> namespaces{};  // namespaces of the jobs; empty: all
    // Returns what wiring needs from the operator. The backend sets gang, attempt, size, excluded nodes,
    // ports and the coordinator's authority.
    std::function<wiring::Context(const control::Key&)> context;
    // Called before each write: returns true if this process leads, and for long enough.
    std::function<bool()> may_write = [] { return true; };
    std::function<void(const JobRecord& job, const core::SetGang&)> on_gang;
    std::function<void(const control::Key&, const std::string& uid, const core::Event&)> on_event;
    // Called before a status is written that raises the counts of the job: a client that can read the status
    // can read what was counted of it. A write that is repeated is counted once.
    std::function<void(const JobRecord& job, const core::JobCounts& before, const core::Status& status)>
        on_counts;
    std::function<void(const Resource&, const Error&)> on_watch_failure;
    PortRange host_ports{20000, 10000};           // shared by all jobs on hostNetwork
    core::GangMode gang = core::GangMode::kAuto;  // what spec.scheduling.gang `auto` means
    wiring::SchedulerNames schedulers;
    std::string volcano_namespace = "volcano-system";    // of the Lease that has the name of its scheduler
    std::map<std::string, int32_t> namespace_weights{};  // in the queue for room; 1 for others
    bool kueue_required = false;                         // jobs without a queue of Kueue do not start
    core::LabelSelector kueue_namespaces{};  // outside of these they do, and no queue is the default one
    bool autoscaler = false;                 // jobs that preempt nothing have spec.scheduling.autoscaler
    Duration progress_every = seconds(5);
    Watcher::Options watch;
  };

  // REQUIRES: `client` outlives the backend.
  KubeBackend(ApiClient& client, Options options);
  ~KubeBackend() override;

  void Start();
  void Stop();
  // Returns true once everything has been listed, except in namespaces that the API server denies. A
  // controller must not decide before that.
  bool Synced() const;
  // Why the view is not up to date, one sentence each, for /readyz.
  std::vector<std::string> Problems() const;

  // What the view holds, for metrics. Its cost grows with the jobs, not with their pods.
  struct Census {
    std::array<int64_t, static_cast<size_t>(core::kLastPhase) + 1> jobs{};  // by phase
    int64_t pods = 0;                                                       // of jobs
    int64_t gangs_waiting = 0;                                              // jobs that wait for capacity
    int64_t namespaces_denied = 0;                                          // of those that it watches
    std::map<std::string, int64_t> queue_lengths;  // the same by namespace, of each one that has jobs
    std::map<std::pair<std::string, std::string>, int64_t> workers_by_gpu;  // by model and driver
    int64_t workers_with_device_fault = 0;
    int64_t stragglers = 0;
    std::map<std::pair<std::string, std::string>, double> samples_per_second;  // by namespace and job
    std::map<std::pair<std::string, std::string>, double> goodput;             // core::GoodputMeter; the same
  };
  Census TakeCensus(Time now = Now()) const;
  // The number of stored objects by kind, for metrics.
  std::vector<std::pair<std::string, int64_t>> ObjectCounts() const;

  // Sets the authorities that workers trust for the coordinator's certificate. They go into the ConfigMap of
  // every job, including running ones.
  void SetAuthority(std::string pem);

  // Returns this worker of this job if the view has it.
  std::optional<core::Pod> FindPod(const control::Key& key, const std::string& name) const;

  // Whether the job of this pod, which exists, is gone: there is none of this name, or it was replaced.
  bool IsLeftBehind(const control::Key& key, const std::string& pod, const std::string& uid) const;

  // Returns the domain of the node, by the topology of the job; empty: there is none, or it is unknown.
  std::string DomainOf(const control::Key& key, const std::string& node) const;

  // The members of a log line about this job (control/job_tag.h).
  std::string JobTag(const control::Key& key) const;

  // The coordinator's side. A report replaces the one before. One that reports only progress notifies at most
  // once per options.progress_every. `uid`: of the job that it is about; it is dropped when that job is gone.
  void SetReport(const control::Key& key, const std::string& uid, rendezvous::Report report);

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  std::optional<control::Snapshot> TakeTurn(const control::Key& key) override;
  control::Revision Seen(control::Kind kind, const control::Key& key) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key& key, const core::Event& event) override;
  void Subscribe(std::function<void(const control::Key&)> changed) override;

 private:
  static constexpr Duration kDiscoverWanted = seconds(10);  // while a job waits for an API
  static constexpr Duration kDiscoverSoon = seconds(1);  // after a failure, or when an API seems to be gone

  using Done = std::function<void(Result<control::Revision>)>;
  using Job = std::shared_ptr<const JobRecord>;

  // An object of a gang other than its pods that this process has just written. It counts until the watch
  // delivers it.
  struct CreatedObject {
    const Store<ObjectRecord>* store = nullptr;
    std::string name;
    Revision revision = 0;
    std::string mark;
  };
  // What this process knows about a job in addition to the API's objects.
  struct JobState {
    std::string uid;
    std::unique_ptr<rendezvous::Report> report;  // null: none; only native jobs have one
    bool progress_due = false;                   // it is in progress_due_
    core::GoodputMeter goodput;                  // of its reports
    std::optional<core::SetGang> order;
    std::vector<CreatedObject> created;
    bool groups_dropped = false;  // those of the last PrepareGang
    PortRange ports;              // allocated by this process
    int64_t ports_attempt = 0;    // for this attempt
    std::optional<core::Refusal> preflight;
    std::string preflight_inputs;     // what `preflight` was computed from
    core::JobCounts counted;          // passed to on_counts
    int64_t reported_unknown = 0;     // the generation whose unknown fields an event has named
    int64_t refused_attempt = 0;      // the API server would not admit its pods; 0: none
    int64_t ports_tried_attempt = 0;  // there were ports for it; 0: not known of any
    int64_t tried_attempt = 0;        // the API server would admit its pods; 0: not known of any
    int64_t whole_attempt = 0;        // its gang has been placed whole; 0: none
    int64_t domain_attempt = 0;
    std::map<std::string, std::string> domain;        // by label, of that attempt; without a reservation
    std::map<int32_t, core::Capacity::Shape> shapes;  // of the pods that it would create, by kind of rank
    std::string shape_inputs;                         // what `shapes` were computed from
    std::string rendered;                             // wiring::kRenderedAnnotation of its Workload
    std::string rendered_inputs;                      // what `rendered` was computed from
  };

  // Hooks of the stores.
  void OnJob(const Job& before, const Job& after);
  void ReportUnknown(const JobRecord& job);
  void CountPod(const PodRecord* pod, int64_t by) RM_REQUIRES(mutex_);
  void OnPod(const std::string& name, const std::shared_ptr<const PodRecord>& before,
             const std::shared_ptr<const PodRecord>& after);
  void OnNode(const std::string& name, const std::shared_ptr<const NodeRecord>& before,
              const std::shared_ptr<const NodeRecord>& after);
  void OnNamespace(const std::string& name, const std::shared_ptr<const NamespaceRecord>& before,
                   const std::shared_ptr<const NamespaceRecord>& after);
  void OnPriorityClass(const std::shared_ptr<const PriorityClassRecord>& before,
                       const std::shared_ptr<const PriorityClassRecord>& after);

  // Parts of a snapshot.
  // What an observation finds apart from the room for the job.
  struct Look {
    std::optional<control::Snapshot> snapshot;  // nullopt: there is no such job
    Job job;                                    // null: no room is looked for
    wiring::Gang gang = wiring::Gang::kNone;
  };
  Look Read(const control::Key& key) const;
  // Returns the pods of the job with this uid, and those that belong to no job or to an earlier one.
  std::pair<std::vector<core::Pod>, std::vector<core::Pod>> PodsOf(const control::Key& key,
                                                                   const std::string& uid) const;
  // Sets what the nodes of its pods and suspects show.
  void ReadNodes(core::Observed& observed) const;
  static core::GangProvider ProviderOf(wiring::Gang gang);
  std::optional<wiring::Gang> ChosenGang(const JobRecord& job) const RM_REQUIRES(mutex_);
  // Returns which template names a scheduler that does not know these gangs; empty: none.
  std::string OtherScheduler(const JobRecord& job, wiring::Gang gang) const;
  wiring::Gang GangOf(const JobRecord& job) const;
  // The marks of the job's objects.
  std::vector<std::string> MarksOf(const JobRecord& job) const;
  using Groups = std::vector<std::pair<Resource, std::shared_ptr<const ObjectRecord>>>;
  Groups GroupsOf(const JobRecord& job) const;
  bool HoldsGroups(const JobRecord& job) const;
  void DeleteGroups(const Job& job, Groups groups, Done done);
  // Returns the shape of the attempt's pods of this kind of rank that have no node: as admission left them,
  // or as rendered.
  core::Capacity::Shape ShapeOf(const JobRecord& job, int64_t attempt, int32_t rank,
                                const std::vector<std::string>& excluded_nodes) const;
  core::Capacity::Shape RenderedShape(const JobRecord& job, int32_t rank,
                                      const std::vector<std::string>& excluded_nodes) const;
  // Returns the shape without the domain that was chosen for the pod. `rendered`: as it is without one.
  core::Capacity::Shape WithoutDomain(const JobRecord& job, core::Capacity::Shape shape,
                                      const core::PodShape& rendered) const;
  // Sets the gang's pods that may use one domain only.
  void FindBound(const JobRecord& job, const core::Observed& observed,
                 const std::vector<std::string>& excluded_nodes, core::RoomPlanner::Gang& gang) const;
  // What the room for a gang is looked for with.
  struct RoomInputs {
    core::Observed begun;  // the observation with a ledger that has begun
    core::RoomPlanner::Gang gang;
    std::string claims_note;
    bool unread = false;
    bool has_devices = false;
    // Adds to a Fit what the planner does not know.
    void Complete(core::Fit& fit) const {
      fit.claims_note = claims_note;
      fit.unread = unread;
    }
  };
  RoomInputs RoomInputsOf(const JobRecord& job, const core::Observed& observed) const;
  std::optional<core::TopologySpread> SpreadOf(const JobRecord& job, const core::Observed& observed) const;
  // Why the job's required topology cannot be met by any node; empty: it can.
  std::string MissingTopology(const JobRecord& job) const;
  // Sets in which domain the pod must or should be.
  void ChooseDomain(const JobRecord& job, const core::CreatePod& action, wiring::Context& context) const;
  // The name of a pod in the capacity.
  static std::string PlaceName(const JobRecord& job, int64_t attempt, int32_t rank);
  // Returns the ranks by kind, in their order.
  std::vector<core::RoomPlanner::Alike> ByKind(const JobRecord& job, int64_t attempt,
                                               const std::vector<int32_t>& ranks,
                                               const std::vector<std::string>& excluded_nodes) const;
  // The pods of this attempt, if the shape has a topology key.
  std::vector<std::string> PeersOf(const JobRecord& job, int64_t attempt, const core::PodShape& shape) const;
  std::optional<core::PrepareGang> PreparedOf(const JobRecord& job) const;
  PortRange PortsOf(const JobRecord& job) const;
  // `queue`: of Kueue; empty: none.
  std::optional<core::Refusal> PreflightOf(const JobRecord& job, const std::string& queue,
                                           wiring::Gang gang) const;
  std::optional<std::string> RefusalOf(const JobRecord& job, const std::string& queue, wiring::Gang used,
                                       core::RefusalKind& kind) const;
  // Returns the first PriorityClass of the job that the cluster does not have; empty: it has all.
  std::string MissingPriorityClass(const JobRecord& job, const std::string& queue) const;
  // Returns the queue of the job that Volcano is known not to have; empty: none.
  std::string MissingQueue(const JobRecord& job, wiring::Gang gang) const;
  // Returns what is wrong with the labels of a job that waits in a queue of Kueue; empty: nothing.
  std::string BadLabel(const JobRecord& job, const std::string& queue) const;
  // Returns the PriorityClass of the job's workers, as the API server would choose it for their pods now.
  PriorityClassRecord PriorityClassOf(const JobRecord& job) const;
  // Sets which room others ask for, and who makes room for this job.
  void ReadPreemption(const JobRecord& job, core::Observed& observed) const;
  // Returns what this job holds; nullopt: nothing. `head`: of the queue.
  std::optional<core::RoomHolder> HolderOf(const std::string& name, const std::string& head) const;

  // Sets Observed::quota and stray_workloads.
  void ReadQuota(const JobRecord& job, core::Observed& observed) const;
  // Returns the Workload with quota that decides about the job; never a surplus. nullptr: none.
  std::shared_ptr<const WorkloadRecord> ReservedWorkload(const JobRecord& job) const;
  // Returns the node labels of the flavors in which Kueue has admitted the pod set.
  std::map<std::string, std::string> LabelsOf(const WorkloadRecord::Set& set) const;
  // What the job's admission adds to the pod of this rank.
  wiring::Admission AdmissionOf(const JobRecord& job, int32_t rank) const;
  wiring::WorkloadInputs WorkloadInputsOf(const JobRecord& job) const;
  std::string RenderedFor(const JobRecord& job) const;

  // Actions. `done` is called exactly once.
  void Perform(const Job& job, const control::Write& write, const core::SetStatus& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::CreatePod& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DeletePod& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::UntrackPod& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::SetGang& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DeleteJob& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DropGroups& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::TryPods& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::PrepareGang& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::ReserveRoom& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::ReleaseGang& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::MakeWorkload& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::AdoptWorkload& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::ResizeWorkload& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::SetWorkloadStatus& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::DeleteWorkload& action, Done done);
  void Perform(const Job& job, const control::Write& write, const core::ReleaseWorkload& action, Done done);
  // Patches the Workload with what `patch` returns for it (nullopt: nothing to do). `revision` 0: any, and
  // `patch` is asked again when another client has changed the Workload in between.
  void ChangeWorkload(const control::Write& write, const std::string& name, const std::string& uid,
                      uint64_t revision, const std::string& subresource,
                      std::function<std::optional<Json>(const Json&)> patch, Done done);
  void Count(const Job& job, const core::Status& status);
  // Notes what a withdrawal shows of the scheduler.
  void JudgeNative(const Job& job, const core::Status& status);
  class Preparation;
  class Release;
  class ReadThroughRequest;
  // Removes the finalizer of the pod with this uid.
  void Untrack(const std::string& space, const std::string& name, const std::string& uid,
               ApiClient::Done done);
  // Returns the pod to create. It keeps off the avoided nodes if other nodes have capacity.
  Json PodFor(const JobRecord& job, const core::CreatePod& action) const;
  void Prepare(const Job& job, const core::PrepareGang& action, Done done);
  // Returns ports for an attempt with so many pods, those that the job has now (`held`) if they are still
  // free. Reserves none.
  Result<PortRange> FindPorts(const JobRecord& job, int32_t size, const PortRange& held) RM_REQUIRES(mutex_);
  // Reserves them, for as long as UsesPorts.
  Result<PortRange> AllocatePorts(const JobRecord& job, const core::PrepareGang& action);
  // Brings host_ports_ up to date: the ports of a job are in its state and in the marks of its objects.
  void CountPorts(const std::string& job) RM_REQUIRES(mutex_);
  // A Service or a ConfigMap of the job has changed.
  void OnObject(const std::string& job);
  // Whether the job of this name uses its ports: its attempt has been prepared and is not refused, or one of
  // its pods still runs.
  bool UsesPorts(const std::string& job) const RM_REQUIRES(mutex_);
  bool NeedsAdmission(const JobRecord& job, int64_t attempt) const;
  bool IsUntried(const JobRecord& job, int64_t attempt) const;
  // Returns a pod of each template of the attempt, which has so many pods.
  std::vector<Json> SamplesOf(const JobRecord& job, int64_t attempt, int32_t size) const;
  // Asks the API server whether it would admit these pods, and calls `done` with the first refusal.
  void TrySamples(const std::string& space, std::vector<Json> samples, std::function<void(Status)> done);
  void SetAdmitted(const JobRecord& job, int64_t attempt, bool admitted);
  wiring::Context ContextOf(const JobRecord& job) const;
  // Records the objects that a PrepareGang has written, and deletes the gang objects of older attempts.
  void OnPrepared(const Job& job, const core::PrepareGang& action, std::vector<CreatedObject> created);
  Store<ObjectRecord>* StoreOf(const Resource& resource);
  bool HasPods(const JobRecord& job, int64_t attempt) const;
  bool HasLivePods(const JobRecord& job, int64_t attempt) const;

  // Returns the state of the job with this uid, and creates it if necessary. An answer may come, or an
  // observation end, after the job was deleted or replaced: then what is written to the state is dropped.
  JobState& StateOf(const JobRecord& job) const RM_REQUIRES(mutex_);
  // Whether the job with this uid still exists. With the lock held, what is noted of it then is removed when
  // it is deleted (OnJob).
  bool IsStored(const JobRecord& job) const RM_REQUIRES(mutex_);
  // Reports the job, as it is stored, to the planner. Returns whether places became free.
  bool LearnJob(const std::string& name) RM_REQUIRES(mutex_);
  // Brings the indexes of suspected nodes up to date. `job`: as it is stored; null: gone.
  void IndexSuspects(const std::string& name, const Job& job) RM_REQUIRES(mutex_);
  void Notify(const std::string& job);
  void CapacityChanged();
  // Something changed that decides who makes room for whom.
  void PlanSoon();
  // Decides who makes room for the head of the queue, and notifies these jobs and those that need not any
  // more.
  void PlanPreemptions();
  // Periodic work on the reflectors' thread. Returns when it is due again.
  Time Housekeeping(Time now);
  void ForgetUnusedNodes();
  // Asks the API server which versions of the gang schedulers' APIs it serves, and whether Kueue's.
  void Discover();
  void DiscoverNative();
  // Takes the first of these versions that is served.
  void ChooseNative(std::vector<const wiring::NativeApi*> versions);
  // Calls done after an answer of the API server; without one, discovery is repeated soon.
  void AskWhetherServed(const Resource& resource, std::function<void(bool served)> done);
  // Whether an answer about an API is not believed before another one says the same, for which it asks soon.
  // `doubtful`: whether the last answer about this API was such a one.
  bool MustAskAgain(bool takes_back, bool& doubtful) RM_REQUIRES(mutex_);
  void OnDiscovered(GangApi api, const std::string& version);
  // Whether jobs may depend on whether Volcano's scheduler runs.
  bool AsksForVolcano() const RM_REQUIRES(mutex_);
  void ReadVolcanoLease();
  // Reads whether Volcano has this queue, and notes it. true also if the API server does not say.
  void ReadVolcanoQueue(const std::string& queue, std::function<void(bool exists)> done);
  void NoteVolcanoQueue(const std::string& queue, bool exists);
  // Reads those again that jobs wait for.
  void ReadMissingQueues();
  // Notes whether the job has a group of coscheduling that waits for nodes.
  void NoteSleeper(const JobRecord& job, wiring::Gang gang, const core::Observed& observed)
      RM_REQUIRES(mutex_);
  void WakeGroup(const std::string& job);
  void OnKueue(bool served);
  // Watches the LocalQueues that are the default of their namespace. Nothing depends on the right to do so.
  void FollowDefaultQueues();
  // Whether the API server has answered everything that a job without a queue may depend on.
  bool KnowsQueues() const;
  // Whether the job is in a queue of Kueue, or has quota of an earlier one.
  bool HasQueue(const JobRecord& job) const;
  void OnDra(bool served);
  Collection WatchedDevices(const Resource& resource);
  // Why the devices cannot be read; empty: they can, or it is not known yet.
  std::string WhyNoDevices() const RM_REQUIRES(mutex_);
  bool DevicesRead() const RM_REQUIRES(mutex_);
  void OnDeviceClass();
  void OnClaimTemplate(const std::string& name);
  // `inventory`: not only a claim.
  void DevicesChanged(bool inventory);
  Time KeepDevices(Time now);
  core::DeviceRoom ReadDeviceRoom(bool inventory);
  void RecountDevices(bool inventory);
  // Records the node, or the pod, in the capacity as the view has it. A null pod is gone.
  void PlaceNode(const NodeRecord& node) RM_REQUIRES(mutex_);
  void PlacePod(const std::string& name, const std::shared_ptr<const PodRecord>& pod) RM_REQUIRES(mutex_);
  // Whether a request is for devices, by the name of a class or of its extended resource.
  bool NamesDevices(const core::Resources& requests) const RM_REQUIRES(mutex_);
  // Returns the shape of a pod in this namespace with its devices as requests.
  core::PodShape WithDevices(const std::string& space, const core::PodShape& shape) const RM_REQUIRES(mutex_);
  core::Capacity::Shape Counted(const std::string& space, const core::Capacity::Shape& shape) const;
  core::Capacity::Shape CountedLocked(const std::string& space, const core::Capacity::Shape& shape) const
      RM_REQUIRES(mutex_);
  // core::Fit::claims_note.
  std::string ClaimsNote(const JobRecord& job, const core::Observed& observed) const;
  // Whether a job has a queue and the API server does not serve Kueue's API.
  bool WaitsForKueue() const RM_REQUIRES(mutex_);
  // Asks Kueue for the head of one queue in which a job waits. Returns when to ask for the next one.
  Time AskForQueueHead(Time now);
  // Whether the job needs a PodGroup that the API server does not serve.
  bool WaitsForGangApi(const JobRecord& job) const RM_REQUIRES(mutex_);
  // Whether a job waits for an API that the API server does not serve.
  bool WaitsForApi() const RM_REQUIRES(mutex_);
  // Notifies the jobs that have a queue.
  void NotifyQueued();
  void DiscoverBy(Time at);
  static Error NotLeading();
  Collection Watched(Resource resource, std::string label_selector = {}, bool metadata_only = false);
  // Whether the objects of this namespace, one of several, are not all listed yet. Its jobs are not decided
  // until they are: a job whose pods the API server denies would seem to have none.
  bool IsWithheld(const std::string& space) const;
  // Reports the namespaces that are denied, and decides the jobs of those that are withheld no more.
  void WatchNamespaces();
  // Removes what the view has of a namespace that is gone.
  void DropNamespace(const std::string& space);

  // Adds a reflector for each namespace of the options, or one for all namespaces.
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

  mutable Interners interners_;  // before the stores, whose records share its values
  Store<JobRecord> jobs_;
  Store<PodRecord> pods_;
  Store<NodeRecord> nodes_;
  Store<NamespaceRecord> namespaces_;
  Store<PriorityClassRecord> priority_classes_;
  Store<WorkloadRecord> workloads_;  // watched, as the next three, if served
  Store<LocalQueueRecord> default_queues_;
  Store<FlavorRecord> flavors_;
  Store<PriorityClassRecord> workload_priorities_;
  Store<core::DeviceClass> device_classes_;  // watched if served; the next three also if a job has claims
  Store<core::DeviceSlice> slices_;
  Store<core::DeviceClaim> claims_;
  Store<core::ClaimTemplate> claim_templates_;
  Store<ObjectRecord> services_;
  Store<ObjectRecord> config_maps_;
  std::map<GangApi, std::unique_ptr<Store<ObjectRecord>>> groups_;  // watched if served

  mutable Mutex mutex_;
  mutable std::map<std::string, JobState> job_states_ RM_GUARDED_BY(mutex_);  // by namespace/name
  mutable JobState late_ RM_GUARDED_BY(mutex_);  // of the job that StateOf was asked for last, which is gone
  mutable MissingNodes missing_nodes_ RM_GUARDED_BY(mutex_);
  std::deque<std::pair<Time, std::string>> progress_due_ RM_GUARDED_BY(mutex_);  // jobs to notify, and when
  std::string authority_pem_ RM_GUARDED_BY(mutex_);
  uint64_t authority_ RM_GUARDED_BY(mutex_) = 0;     // its hash
  core::RoomPlanner planner_ RM_GUARDED_BY(mutex_);  // Notify notes which jobs have changed
  std::map<std::string, std::set<std::string>> suspected_ RM_GUARDED_BY(mutex_);  // node -> jobs
  std::map<std::string, std::set<std::string>> suspects_of_
      RM_GUARDED_BY(mutex_);  // job -> nodes; no empty sets
  // Sums of the changes of pods, which may arrive in another order.
  int64_t worker_pods_ RM_GUARDED_BY(mutex_) = 0;
  // node -> owner -> its pods there; no zeros
  std::map<std::string, std::map<std::shared_ptr<const Owner>, int64_t>> owners_on_ RM_GUARDED_BY(mutex_);
  bool capacity_changed_ RM_GUARDED_BY(mutex_) = false;  // since last_sweep_
  Time last_sweep_ RM_GUARDED_BY(mutex_) = Time::min();
  bool plan_due_ RM_GUARDED_BY(mutex_) = false;
  Time last_plan_ RM_GUARDED_BY(mutex_) = Time::min();
  PortTable host_ports_ RM_GUARDED_BY(mutex_);       // by namespace/name
  bool pods_changed_ RM_GUARDED_BY(mutex_) = false;  // since last_trim_
  Time last_trim_ RM_GUARDED_BY(mutex_){};
  GangApis gang_apis_ RM_GUARDED_BY(mutex_);
  std::map<GangApi, bool> doubtful_ RM_GUARDED_BY(mutex_);  // the last answer was another version, or none
  std::string unknown_native_ RM_GUARDED_BY(mutex_);        // a version of native gangs that we cannot use
  bool native_tears_ RM_GUARDED_BY(mutex_) = false;         // the scheduler has placed a gang in part
  std::optional<bool> volcano_runs_ RM_GUARDED_BY(mutex_);  // its scheduler; unset: not read yet
  LeaseView volcano_lease_ RM_GUARDED_BY(mutex_);
  Time volcano_at_ RM_GUARDED_BY(mutex_) = Time::min();         // when to read it again
  std::set<std::string> missing_queues_ RM_GUARDED_BY(mutex_);  // of Volcano, that jobs name
  SleepingGroups sleeping_ RM_GUARDED_BY(mutex_);
  std::optional<bool> kueue_ RM_GUARDED_BY(mutex_);  // whether Kueue's API is served; unset: no answer yet
  bool kueue_doubtful_ RM_GUARDED_BY(mutex_) = false;
  std::set<std::string> failed_lists_ RM_GUARDED_BY(mutex_);  // of Kueue's kinds that could not be listed
  // A queue in which jobs wait, and these jobs with their Workloads.
  struct Queue {
    std::string space;
    std::string name;
    std::vector<std::pair<std::string, std::string>> waiting;
  };
  std::vector<Queue> queues_to_ask_;  // the rest of this round; only the reflectors' thread uses these three
  Time queue_round_at_ = Time::min();
  Time ask_queue_at_ = Time::min();
  std::map<std::pair<std::string, std::string>, QueueHead> queue_heads_ RM_GUARDED_BY(mutex_);
  Time discover_at_ RM_GUARDED_BY(mutex_) = Time::min();
  // Dynamic resource allocation.
  struct Devices {
    core::DeviceRoom room;
    std::optional<bool> served;  // unset: no answer yet
    bool doubtful = false;
    bool wanted = false;                          // a pod of a job asks for devices
    bool followed = false;                        // all objects are watched
    std::map<std::string, std::string> refusals;  // the collections that the operator may not read
    std::pair<bool, std::string> state;  // whether all has been read, or why not, at the last recount
    bool due = false;                    // to be counted again
    bool inventory_due = false;          // not only claims have changed
    Time last_recount = Time::min();
    Duration pause{};                              // until the next one
    std::set<std::string> extended;                // extended resources that are classes
    std::set<std::string> templates;               // that pods of jobs have named
    std::set<std::string> pods;                    // of jobs, with devices
    std::set<std::string> jobs;                    // that have looked for room for them
    std::map<std::string, core::Resources> nodes;  // what each has in addition to what its kubelet reports
  };
  mutable Devices devices_ RM_GUARDED_BY(mutex_);
  std::vector<std::function<void(const control::Key&)>> subscribers_ RM_GUARDED_BY(mutex_);

  // Stop closes it. Responses that arrive later are dropped.
  struct Gate {
    SharedMutex mutex;
    bool closed RM_GUARDED_BY(mutex) = false;
  };
  template <class F>
  ApiClient::Done Guard(F f) {
    return [gate = gate_, f = std::move(f)](Result<Json> result) mutable {
      ReaderLock lock(gate->mutex);
      if (!gate->closed) f(std::move(result));
    };
  }
  const std::shared_ptr<Gate> gate_;
  std::set<std::string> denied_;    // used by the reflectors' thread only
  std::set<std::string> withheld_;  // the same
  mutable Reflectors reflectors_;   // last: its callbacks use the members above
};

}  // namespace ringmaster::kube
