// SPDX-License-Identifier: Apache-2.0

// Handles GET /metrics, for all clients or for those that an AccessReviewer allows.
#pragma once

#include "base/http/server.h"
#include "operator/serve/access_reviewer.h"
#include "operator/serve/metrics.h"

namespace ringmaster::serve {

// `reviewer` null: all clients may read. REQUIRES: both outlive the server.
http::Handler MetricsHandler(const Metrics& metrics, AccessReviewer* reviewer);

}  // namespace ringmaster::serve
