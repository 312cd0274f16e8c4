// SPDX-License-Identifier: Apache-2.0

// The configuration that a pod has from its cluster: address from the environment, authority, token and
// namespace from files that the kubelet keeps.
#pragma once

#include <string>

#include "operator/kube/config.h"

namespace ringmaster::kube {

inline constexpr const char* kServiceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

// Whether the environment says that this is a pod.
bool InCluster();

// The token is read again when its file changes.
Result<ClientConfig> LoadInCluster(const std::string& folder = kServiceAccountFolder);

}  // namespace ringmaster::kube
