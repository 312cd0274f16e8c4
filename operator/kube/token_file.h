// SPDX-License-Identifier: Apache-2.0

// Tokens that stand in the kubeconfig, and tokens in a file that somebody renews: the kubelet, for one that
// is projected into a pod.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "operator/kube/config.h"

namespace ringmaster::kube {

std::shared_ptr<TokenSource> MakeStaticToken(std::string token);

// Read again when the file has changed, when `max_age` has passed, and after Expire. While it cannot be read,
// the last token counts.
std::shared_ptr<TokenSource> MakeTokenFile(std::string path, Duration max_age = seconds(60));

}  // namespace ringmaster::kube
