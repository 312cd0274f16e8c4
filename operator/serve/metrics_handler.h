// SPDX-License-Identifier: Apache-2.0

// GET /metrics: open (for loopback), or for those alone whom an AccessReviewer lets in.
#pragma once

#include "operator/serve/access_reviewer.h"
#include "operator/serve/http_server.h"
#include "operator/serve/metrics.h"

namespace ringmaster::serve {

// `gate` may be null: everybody may read. Both must outlive the server.
HttpHandler MetricsHandler(const Metrics& metrics, AccessReviewer* gate);

}  // namespace ringmaster::serve
