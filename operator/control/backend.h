// SPDX-License-Identifier: Apache-2.0

// View and Backend: the controller's only access to the outside. The backends `kube`, `local` and `sim`
// implement them and pass the same conformance suite (tests/conformance), so the controller behaves the same
// with each.
//
// Thread-safe: View functions may be called from any thread and return copies. Execute, ReadThrough and
// Record return at once. Callbacks come from any thread, and may come before the call returns.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "operator/core/model.h"

namespace ringmaster::control {

struct Key {
  std::string namespace_;
  std::string name;
  std::string ToString() const { return namespace_ + "/" + name; }
  // The inverse. A peer's text may lack the slash: then the name is empty.
  static Key Parse(const std::string& text) {
    const size_t slash = text.find('/');
    return {text.substr(0, slash), slash == std::string::npos ? std::string() : text.substr(slash + 1)};
  }
  auto operator<=>(const Key&) const = default;
};

// Increases with every change of an object. Comparable within a kind.
using Revision = uint64_t;
enum class Kind : uint8_t { kJob, kPod, kWorkload };
inline constexpr size_t kKinds = 3;

struct Snapshot {
  core::Observed observed;
  Revision job_revision = 0;  // of the job object: the precondition of a status write
};

// What the operator knows now. It may lag behind the actual state.
class View {
 public:
  virtual ~View() = default;
  // Returns nullopt when no such job is known. Changes nothing that another observation could show.
  virtual std::optional<Snapshot> Observe(const Key& key) const = 0;
  // Returns the same, for the next decision about the job: with it the job takes, keeps or gives up its turn
  // in the queue for room.
  virtual std::optional<Snapshot> TakeTurn(const Key& key) { return Observe(key); }
  // Returns the revision up to which the view includes all objects of this kind that belong to this job.
  // Namespaces may be watched separately, so the revision differs between jobs.
  virtual Revision Seen(Kind kind, const Key& key) const = 0;
  // Returns the jobs that are known. Of those that wait for room, the one whose turn is first comes first, by
  // what is known without an observation: a new leader decides them in this order.
  virtual std::vector<Key> Keys() const = 0;
};

// A write and its preconditions, which the API server checks:
//  - the job exists with this uid, otherwise kNotFound: a late write never touches a job of the same name. An
//    empty uid, for strays that no job owns, is valid with DeletePod, UntrackPod and ReleaseWorkload;
//  - SetStatus: the job's revision is `if_revision`, otherwise kConflict;
//  - CreatePod: no pod of that name exists, otherwise kAlreadyExists; in a gang of the operator's gate, a pod
//    without a gate has a reserved place, otherwise kConflict;
//  - DeletePod: a pod of that name exists, otherwise kNotFound, and has that uid, otherwise kConflict;
//  - UntrackPod: a pod of that name has that uid, otherwise kConflict, or does not exist;
//  - ReserveRoom: the nodes have room for all of its pods in addition to all pods that have a place,
//    otherwise kConflict;
//  - ReleaseGang: as DeletePod for each of its pods, and all that are gated have reserved places, otherwise
//    kConflict. A pod without a gate is not an error;
//  - MakeWorkload with a name, AdoptWorkload, ResizeWorkload, SetWorkloadStatus: the Workload of this name
//    exists, otherwise kNotFound, and has this uid and revision, otherwise kConflict. Without a name: it does
//    not exist, otherwise kAlreadyExists;
//  - DeleteWorkload, ReleaseWorkload: as DeletePod and UntrackPod; DeleteWorkload with a revision: it has
//  that
//    one, otherwise kConflict.
// TryPods, PrepareGang and DropGroups only need the job. PrepareGang creates its objects in any order; after
// an error some may exist.
//
// A permanent refusal (quota, admission, permissions) is kForbidden and an invalid object is kInvalid, with
// the server's message. The controller passes it to the next decisions (core::Refusal).
struct Write {
  Key key;
  std::string job_uid;
  core::Action action;
  std::optional<Revision> if_revision;
};

class Backend : public View {
 public:
  // Calls done(revision) after the write; the view includes it when Seen(kind of the action, key) >=
  // revision, at once for 0. The removal of a pod by UntrackPod may be seen later. Errors: kUnavailable:
  // definitely not done. kAmbiguous: perhaps done.
  virtual void Execute(Write write, std::function<void(Result<Revision>)> done) = 0;
  // Updates the view of this key by a live read, so that it includes everything that was done before the
  // call.
  virtual void ReadThrough(const Key& key, std::function<void(Status)> done) = 0;
  // Records a Kubernetes event. Best effort.
  virtual void Record(const Key& key, const core::Event& event) = 0;
  // Calls `changed` after every change of what Observe returns, perhaps late, perhaps once for several
  // changes.
  virtual void Subscribe(std::function<void(const Key&)> changed) = 0;
};

// Returns the kind of object that the action changes, whose revision the controller must wait for. nullopt
// for SetGang, TryPods, PrepareGang, ReserveRoom, DropGroups and DeleteJob: the view includes their effect
// (Observed::order, Observed::untried, Observed::prepared, Observed::fit, Observed::holds_groups) when they
// are acknowledged.
std::optional<Kind> KindOf(const core::Action& action);

}  // namespace ringmaster::control
