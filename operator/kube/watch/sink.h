// SPDX-License-Identifier: Apache-2.0

// Receives the objects that a reflector lists and watches. Not thread-safe: called by one thread at a time,
// in order.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace ringmaster::kube {

// A resourceVersion as a number: since Kubernetes 1.35 the API promises that the versions of one resource
// compare as integers. 0: not a number.
using Revision = uint64_t;
Revision ParseRevision(std::string_view text);

class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A list: Begin, any number of Items, then End with the revision of the list. A Begin before the End
  // discards the items so far.
  virtual void Begin() = 0;
  virtual void Item(const Json& object) = 0;
  virtual void End(Revision revision) = 0;
  // A change after the list, in the order of the collection's revisions.
  virtual void Apply(const Json& object, Revision revision) = 0;
  virtual void Delete(const Json& object, Revision revision) = 0;
  // The API server denies the list, as it does after the namespace was deleted with the rights in it. An End
  // ends this.
  virtual void Deny() {}
  // There is no further change up to this revision.
  virtual void Bookmark(Revision revision) = 0;
};

}  // namespace ringmaster::kube
