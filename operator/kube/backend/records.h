// SPDX-License-Identifier: Apache-2.0

// Compact values of API objects, with only what decisions need. Stores (watch/store.h) hold them; they are
// shared and immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/load.h"
#include "api/training_job.h"
#include "operator/control/backend.h"
#include "operator/core/capacity/capacity.h"
#include "operator/core/capacity/device_selector.h"
#include "operator/core/model.h"
#include "operator/kube/backend/interner.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

// A job's parsed spec: parsed once per generation, however often the status changes.
struct JobSpec {
  std::string text;  // metadata and spec as JSON, a tenth of the tree
  bool host_network = false;
  std::string problem;  // not empty: why the job is invalid; then `job` has only what is named in
                        // core::Observed::invalid
  // Fields that this version does not know, which a newer CRD has admitted; empty: none.
  std::string unknown;
  core::Job job;
  // The PriorityClasses that the pods name; empty: none. Others: those of the master and of the roles.
  std::string workers_priority;
  std::vector<std::string> other_priorities;
  std::vector<std::pair<std::string, std::string>> schedulers;  // the templates that name one, and its name
  // The label by which the workers' template asks Kueue for a topology; empty: none.
  std::string kueue_topology;

  // The label whose values are the domains of ring neighbours and of the reported spread; empty: none.
  const std::string& DomainKey() const {
    return job.TopologyKey().empty() ? kueue_topology : job.TopologyKey();
  }
};

struct JobRecord {
  control::Key key;
  Revision revision = 0;
  std::string uid;
  Time created{};
  bool deleted = false;
  bool orphans = false;  // deleted with --cascade=orphan
  std::shared_ptr<const JobSpec> spec;
  core::Status status;
  // What a newer version has written into the status, and this one does not know; null: nothing.
  std::shared_ptr<const Json> unknown_status;
  // Labels and annotations: they change without a new generation. Empty: none.
  std::string queue;                             // of Kueue
  std::string workload_priority;                 // the WorkloadPriorityClass
  std::string maximum_time;                      // wiring::kMaximumTimeLabel, as the user wrote it
  std::map<std::string, std::string> passed_on;  // annotations that the Workload has, too
  std::string prebuilt;                          // the Workload that MultiKueue has made for it
  bool remote = false;                           // MultiKueue runs it on another cluster
  bool slices = false;                           // an annotation asks Kueue to let it grow

  core::Job Job() const {
    core::Job job = spec->job;
    job.deleted = deleted;
    job.orphans = orphans;
    job.remote = remote;
    job.slices = slices && !remote && prebuilt.empty();
    job.surplus &= !slices && !remote && prebuilt.empty();
    job.allowed = core::AllowedWorkers(status.ledger);
    return job;
  }
  api::TrainingJob ToApi() const;  // the job as the user wrote it
};

// The job that owns a pod or an object.
struct Owner {
  std::string job;  // namespace/name
  std::string uid;  // empty: none; it was orphaned, and the finalizer still holds it
  auto operator<=>(const Owner&) const = default;
};

struct PodRecord {
  std::shared_ptr<const core::Resources> requests;  // taken from its node; null: it has no node or has ended
  bool ended = false;

  // Workers only. Without members that can be derived, since there are thousands of pods.
  struct Facts {
    std::string uid;
    int64_t attempt = 0;
    int32_t rank = 0;
    int32_t exit_code = 0;
    core::PodPhase phase = core::PodPhase::kPending;
    bool gated = false;
    bool lingers = false;
    bool lost = false;  // by its runtime
    bool tracked = false;
    bool collected = false;
    bool finished = false;
    Time created{};
    Time placed{};
    Time started{};
    std::optional<Time> ended;
    std::optional<Time> delete_by;
    bool deleting() const { return delete_by.has_value(); }
  };
  struct Own {
    std::shared_ptr<const Owner> owner;
    bool labelled = false;  // it has the job's label, so a list by that label includes it
    Facts pod;
    std::shared_ptr<const std::string> node;          // null: none yet
    std::unique_ptr<const core::PodDetails> details;  // null: none
    std::shared_ptr<const std::vector<std::string>> conditions;
    std::shared_ptr<const core::PodShape> shape;             // while it has no node
    std::unique_ptr<const std::vector<std::string>> claims;  // core::PodShape::claims; null: none
    std::unique_ptr<const std::string> deletion_timestamp;   // the API's text; null: none

    core::Pod ToCore() const;
  };
  std::unique_ptr<const Own> own;
  struct Foreign {
    std::string uid;
    std::string node;
  };
  std::unique_ptr<const Foreign> foreign;  // another controller's pod; null: a worker

  const std::string& uid() const { return own ? own->pod.uid : foreign->uid; }
  const std::string& node() const;  // empty: none yet
};

struct NodeRecord {
  core::NodeFacts facts;
  std::optional<Time> unreachable_since;
  std::optional<Time> restarted;  // when another boot ID was observed
  std::string boot_id;            // the API's text
  std::string ready_transition;   // the API's text
};

// Services, ConfigMaps and PodGroups of jobs. All objects of an attempt have the same mark.
struct ObjectRecord {
  std::string name;
  std::string uid;
  std::shared_ptr<const Owner> owner;
  std::shared_ptr<const std::string> prepared_for;  // the annotation below
  bool deleting = false;
};
inline constexpr const char* kPreparedAnnotation = "ringmaster.dev/prepared-for";

// Values that many records share. Thread-safe.
struct Interners {
  Interner<core::Resources> requests;
  Interner<Owner> owners;
  Interner<std::vector<std::string>> conditions;
  Interner<std::string> marks;
  Interner<std::string> nodes;
  Interner<core::PodShape> shapes;
  Interner<core::DeviceAttribute> attributes;
};

struct NamespaceRecord {
  std::string pod_security;  // the enforced level; empty: none
  bool ending = false;
  bool managed = true;  // by Kueue: jobs without a queue may be held, or be put into its default queue
};

struct PriorityClassRecord {
  std::string name;
  int32_t value = 0;
  bool is_default = false;  // of pods that name no class
  bool preempts = true;     // preemptionPolicy
  bool operator==(const PriorityClassRecord&) const = default;
};

}  // namespace ringmaster::kube
