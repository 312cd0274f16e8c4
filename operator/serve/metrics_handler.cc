// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/metrics_handler.h"

namespace ringmaster::serve {
namespace {

HttpResponse Refusal(Access access) {
  switch (access) {
    case Access::kUnauthenticated:
      return {401, "text/plain; charset=utf-8",
              "Unauthorized: send a bearer token that the API server knows\n"};
    case Access::kForbidden:
      return {403, "text/plain; charset=utf-8",
              "Forbidden: bind a ClusterRole with nonResourceURLs [\"/metrics\"] and verb get\n"};
    default:
      return {503, "text/plain; charset=utf-8",
              "the API server could not be asked who may read this; try again\n"};
  }
}

}  // namespace

HttpHandler MetricsHandler(const Metrics& metrics, AccessReviewer* gate) {
  return [&metrics, gate](const HttpRequest& query, const HttpResponder& reply) {
    if (query.path != "/metrics")
      return reply({404, "text/plain; charset=utf-8", "not found: there is /metrics\n"});
    const auto tell = [&metrics, reply] {
      reply({200, "text/plain; version=0.0.4; charset=utf-8", metrics.Text()});
    };
    if (gate == nullptr) return tell();
    gate->Review(query.bearer, query.path, [tell, reply](Access access) {
      if (access == Access::kAllowed) return tell();
      reply(Refusal(access));
    });
  };
}

}  // namespace ringmaster::serve
