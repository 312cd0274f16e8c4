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
  api::Metadata metadata;
  api::Spec spec;             // without the template
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
  // The job as the user wrote it, for wiring; Bare: without the template.
  api::TrainingJob Whole() const;
  api::TrainingJob Bare() const;
};

// The job that a pod or an object was made for.
struct Owner {
  std::string job;  // namespace/name
  std::string uid;
  auto operator<=>(const Owner&) const = default;
};

struct PodRecord {
  std::shared_ptr<const core::Resources>
      requests;  // what it takes of its node; null: it has none, or has ended
  bool ended = false;

  // Of our own only.
  struct Own {
    std::shared_ptr<const Owner> owner;
    core::PodState pod;
    std::unique_ptr<const core::PodWords> words;  // null: none
    std::shared_ptr<const std::vector<std::string>> conditions;
    std::shared_ptr<const core::PodShape> shape;            // while it has no node
    std::unique_ptr<const std::string> deletion_timestamp;  // as it was written; null: none

    core::Pod Whole() const {
      core::Pod whole;
      static_cast<core::PodState&>(whole) = pod;
      if (words) static_cast<core::PodWords&>(whole) = *words;
      whole.conditions = *conditions;
      return whole;
    }
  };
  std::shared_ptr<const Own> own;
  struct Foreign {
    std::string uid;
    std::string node;
  };
  std::unique_ptr<const Foreign> foreign;  // null: it is ours

  const std::string& uid() const { return own ? own->pod.uid : foreign->uid; }
  const std::string& node() const { return own ? own->pod.node : foreign->node; }  // empty: none yet
};

struct NodeRecord {
  core::NodeFacts facts;
  std::optional<Time> unreachable_since;
  std::string ready_transition;  // as it was written
};

// Services, ConfigMaps and gang objects of ours. All of an attempt have the same mark.
struct ObjectRecord {
  std::string name;
  std::string uid;
  std::shared_ptr<const Owner> owner;
  std::shared_ptr<const std::string> prepared_for;  // the annotation below
};
inline constexpr const char* kPreparedAnnotation = "ringmaster.dev/prepared-for";

// What thousands of records have in common is held once. Any thread.
struct Pool {
  Interned<core::Resources> requests;
  Interned<Owner> owners;
  Interned<std::vector<std::string>> conditions;
  Interned<std::string> marks;
};

struct NamespaceRecord {
  std::string pod_security;  // the level that is enforced; empty: none
  bool ending = false;
};

}  // namespace ringmaster::kube
