// SPDX-License-Identifier: Apache-2.0

// What the actions of the backend read from an answer, and what they answer themselves. Inside this folder
// only. Pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

inline Revision RevisionOf(const Json& object) { return ReadMeta(object).revision; }

// The uid of the controlling owner; empty: none.
std::string OwnerOf(const Json& object);
// The same for people.
std::string OwnerText(const Json& object);

// Surely not written.
inline Error NotLeading() {
  return {Code::kUnavailable, "not written: the leadership of this replica is not certain now"};
}

}  // namespace ringmaster::kube
