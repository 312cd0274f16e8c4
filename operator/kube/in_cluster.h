// SPDX-License-Identifier: Apache-2.0

// The configuration that a pod gets from its cluster: the server's address from the environment; authority,
// token and namespace from files that the kubelet updates.
#pragma once

#include <string>

#include "operator/kube/config.h"

namespace ringmaster::kube {

inline constexpr const char* kServiceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

// Returns true if the environment says that this process runs in a pod.
bool InCluster();

// The token is read again when its file changes. kInvalid: not in a pod, or a file is missing.
Result<ClientConfig> LoadInCluster(const std::string& folder = kServiceAccountFolder);

}  // namespace ringmaster::kube
