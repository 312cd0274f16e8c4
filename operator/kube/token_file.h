// SPDX-License-Identifier: Apache-2.0

// Tokens from a kubeconfig, and tokens from a file that another program renews, such as the kubelet for
// projected service account tokens.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "operator/kube/config.h"

namespace ringmaster::kube {

std::shared_ptr<TokenSource> MakeStaticToken(std::string token);

// Reads the file again when it has changed, after `max_age`, and after Expire. Keeps the last token while the
// file is unreadable.
std::shared_ptr<TokenSource> MakeTokenFile(std::string path, Duration max_age = seconds(60));

}  // namespace ringmaster::kube
