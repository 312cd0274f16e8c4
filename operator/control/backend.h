// SPDX-License-Identifier: Apache-2.0

// The one port to the world. `local`, `sim` (and later `kube`) implement it and pass one conformance suite
// (tests/conformance), so the controller cannot tell them apart.
//
// Threads: View functions may be called from any thread and return copies. Execute, ReadThrough and Record
// return at once; their callbacks and the subscription come from any thread, also from within the call.
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
  auto operator<=>(const Key&) const = default;
};

// Rises with every change of an object; comparable within a kind.
using Revision = uint64_t;
enum class Kind : uint8_t { kJob, kPod };

struct Snapshot {
  core::Observed observed;
  Revision job_revision = 0;  // of the job object with its status: the precondition of a status write
};

// What is known now; it may lag behind the truth.
class View {
 public:
  virtual ~View() = default;
  // nullopt: there is no such job, as far as is known.
  virtual std::optional<Snapshot> Observe(const Key& key) const = 0;
  // Everything of this kind that belongs to this job is in the view, up to this revision. Namespaces may be
  // followed one by one, so others can be further or behind.
  virtual Revision Seen(Kind kind, const Key& key) const = 0;
  virtual std::vector<Key> Keys() const = 0;
};

// Preconditions, checked by the world at the moment of the write:
//  - the job exists with this uid (kNotFound otherwise): a late write never touches a namesake;
//  - SetStatus: the job's revision is `if_revision` (kConflict otherwise);
//  - CreatePod: no pod of that name exists (kAlreadyExists otherwise);
//  - DeletePod: a pod of that name exists (kNotFound otherwise) with that uid (kConflict otherwise);
//  - ReleaseGang: as DeletePod for each of its pods, and there is room for all of them, beside what was
//    released before and has no node yet (kConflict otherwise). One that lost its gate already is fine.
// PrepareGang has none but the job. Its parts are made in any order; after an error some may be there.
// What the world refuses for good (quota, admission, rights) is kForbidden, a wrong object kInvalid, with the
// world's own words: the controller keeps them for the next decision (core::Refusal).
struct Write {
  Key key;
  std::string job_uid;
  core::Action action;
  std::optional<Revision> if_revision;
};

class Backend : public View {
 public:
  // done(revision): done, and the view has seen it when Seen(kind of the action, key) >= revision; 0: nothing
  // to wait for. kUnavailable: surely not done. kAmbiguous: perhaps done.
  virtual void Execute(Write write, std::function<void(Result<Revision>)> done) = 0;
  // Afterwards the view of this key holds everything that was done before the call.
  virtual void ReadThrough(const Key& key, std::function<void(Status)> done) = 0;
  // For people; best effort.
  virtual void Record(const Key& key, const core::Event& event) = 0;
  // Called after every change of what Observe would return, perhaps late, perhaps once for several changes.
  virtual void Subscribe(std::function<void(const Key&)> changed) = 0;
};

// SetGang, PrepareGang and the job's own deletion have no view to wait for: their effect is in the view
// (Observed::order, Observed::prepared) when they are acknowledged.
std::optional<Kind> KindOf(const core::Action& action);

}  // namespace ringmaster::control
