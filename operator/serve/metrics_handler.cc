// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/metrics_handler.h"

namespace ringmaster::serve {
namespace {

http::Response RefusalResponse(Access access) {
  switch (access) {
    case Access::kUnauthenticated:
      return {401, "text/plain; charset=utf-8",
              "Unauthorized: send a bearer token that the API server accepts\n"};
    case Access::kForbidden:
      return {403, "text/plain; charset=utf-8",
              "Forbidden: bind a ClusterRole with nonResourceURLs [\"/metrics\"] and verb get\n"};
    default:
      return {503, "text/plain; charset=utf-8",
              "the API server did not answer the access review; try again\n"};
  }
}

}  // namespace

http::Handler MetricsHandler(const Metrics& metrics, AccessReviewer* reviewer) {
  return [&metrics, reviewer](const http::Request& request, const http::Responder& reply) {
    if (request.path != "/metrics")
      return reply({404, "text/plain; charset=utf-8", "not found; try /metrics\n"});
    const auto send = [&metrics, reply] {
      reply({200, "text/plain; version=0.0.4; charset=utf-8", metrics.Text()});
    };
    if (reviewer == nullptr) return send();
    reviewer->Review(request.bearer, request.path, [send, reply](Access access) {
      if (access == Access::kAllowed) return send();
      reply(RefusalResponse(access));
    });
  };
}

}  // namespace ringmaster::serve
