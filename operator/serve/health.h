// SPDX-License-Identifier: Apache-2.0

// /healthz, /livez and /readyz, as Kubernetes' own components answer them: "ok", or with ?verbose (and
// whenever something is wrong) one line per check. Checks run on the server's thread and must not block.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/serve/http_server.h"

namespace ringmaster::serve {

struct HealthCheck {
  std::string name;
  std::function<std::string()> problem;  // empty: well
};

// Readiness does not ask who leads: a stand-by with warm caches is ready.
HttpHandler HealthHandler(std::vector<HealthCheck> live, std::vector<HealthCheck> ready);

}  // namespace ringmaster::serve
