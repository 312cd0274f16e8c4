// SPDX-License-Identifier: Apache-2.0

// Where a reflector puts what it sees. Called by one thread at a time, in order.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace ringmaster::kube {

// A resourceVersion as the number it is: since Kubernetes 1.35 the API promises that those of one resource
// compare as integers. 0: not one.
using Revision = uint64_t;
Revision ParseRevision(std::string_view text);

class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // A listing: Begin, any number of Items, then End with the revision that all of them are of. A Begin before
  // the End discards the items so far.
  virtual void Begin() = 0;
  virtual void Item(const Json& object) = 0;
  virtual void End(Revision revision) = 0;
  // One change after it, by rising revision of the collection.
  virtual void Apply(const Json& object, Revision revision) = 0;
  virtual void Delete(const Json& object, Revision revision) = 0;
  // Nothing else happened up to here.
  virtual void Bookmark(Revision revision) = 0;
};

}  // namespace ringmaster::kube
