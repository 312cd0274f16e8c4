// SPDX-License-Identifier: Apache-2.0

// The checks of the Pod Security Standards for Linux pods, as in Kubernetes 1.37. Internal to
// operator/wiring. Pure functions.
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

// Visits every container of every kind, with its path as users write it: spec.containers[worker].
void EachContainer(const Json& pod,
                   const std::function<void(const Json& container, const std::string& path)>& visit);

// Whether the pod runs in a separate user namespace, which relaxes some checks.
bool InUserNamespace(const Json& pod);

void CheckBaseline(const Json& pod, Refusals& refusals);

// Adds what "restricted" refuses in addition to "baseline".
void CheckRestricted(const Json& pod, Refusals& refusals);

}  // namespace ringmaster::wiring
