// SPDX-License-Identifier: Apache-2.0

// The checks of the Pod Security Standards, as Kubernetes 1.37 makes them, for Linux pods. Inside this folder
// only. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace ringmaster::wiring {

struct Refusal {
  std::string field;   // spec.hostNetwork
  std::string what;    // is true
  std::string remedy;  // set spec.network.hostNetwork to false
};
using Refusals = std::vector<Refusal>;

// Every container of every kind, with the path by which users know it: spec.containers[worker].
void EachContainer(const Json& pod,
                   const std::function<void(const Json& container, const std::string& path)>& visit);

// Whether the pod runs in a user namespace of its own: some checks are then milder.
bool InUserNamespace(const Json& pod);

void CheckBaseline(const Json& pod, Refusals& refusals);

// What "restricted" refuses beyond "baseline".
void CheckRestricted(const Json& pod, Refusals& refusals);

}  // namespace ringmaster::wiring
