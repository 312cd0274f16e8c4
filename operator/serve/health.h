// SPDX-License-Identifier: Apache-2.0

// /healthz, /livez and /readyz in the format of Kubernetes components: "ok", or one line per check with
// ?verbose and when a check fails. Checks run on the server's thread and must not block.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/http/server.h"

namespace ringmaster::serve {

struct HealthCheck {
  std::string name;
  std::function<std::string()> problem;  // empty: the check passes
};

// A standby replica with warm caches is ready. A leader also needs agents to reach it.
http::Handler HealthHandler(std::vector<HealthCheck> live, std::vector<HealthCheck> ready);

}  // namespace ringmaster::serve
