// What is kept of each API object: only what decisions need, as values. Stores hold them (watch/store.h);
// they are shared and never changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/load.h"
#include "api/training_job.h"
#include "operator/control/ports.h"
#include "operator/core/capacity.h"
#include "operator/core/model.h"
#include "operator/kube/backend/interned.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

// The spec of a job: read once for each generation of it, however often the status changes.
struct Wish {
  api::TrainingJob api;       // without status and template
  std::string template_text;  // as JSON text, a tenth of the tree; empty: none
  std::string problem;        // not empty: it cannot be run, and of the wish only names and suspend are meant
  core::Job job;
};

struct JobRecord {
  control::Key key;
  Revision revision = 0;
  std::string uid;
  Time created{};
  bool deleted = false;
  std::shared_ptr<const Wish> wish;
  core::Status status;

  core::Job Job() const {
    core::Job job = wish->job;
    job.deleted = deleted;
    return job;
  }
  // The job as the user wrote it, for wiring.
  api::TrainingJob Whole() const;
};

// The job that a pod was made for.
struct PodOwner {
  std::string job;  // namespace/name
  std::string uid;
  auto operator<=>(const PodOwner&) const = default;
};

struct PodRecord {
  std::shared_ptr<const core::Resources>
      requests;  // what it takes of its node; null: it has none, or has ended
  bool ended = false;

  // Of our own only.
  struct Own {
    std::shared_ptr<const PodOwner> owner;
    core::Pod pod;  // but for its conditions
    std::shared_ptr<const std::vector<std::string>> conditions;
    std::shared_ptr<const core::PodShape> shape;  // while it has no node
    std::string deletion_timestamp;               // as it was written

    core::Pod Whole() const {
      core::Pod whole = pod;
      whole.conditions = *conditions;
      return whole;
    }
  };
  std::shared_ptr<const Own> own;
  // Of others' only: ours have their own.
  std::string foreign_uid;
  std::string foreign_node;

  const std::string& uid() const { return own ? own->pod.uid : foreign_uid; }
  const std::string& node() const { return own ? own->pod.node : foreign_node; }  // empty: none yet
};

struct NodeRecord {
  core::NodeFacts facts;
  std::optional<Time> unreachable_since;
  std::string ready_transition;  // as it was written
};

// Services, ConfigMaps and gang objects of ours.
struct ObjectRecord {
  std::string name;
  std::string uid;
  std::string job;           // namespace/name
  std::string prepared_for;  // the annotation below
  std::string owner_uid;
};
inline constexpr const char* kPreparedAnnotation = "ringmaster.dev/prepared-for";

struct NamespaceRecord {
  std::string pod_security;  // the level that is enforced; empty: none
  bool ending = false;
};

}  // namespace ringmaster::kube
