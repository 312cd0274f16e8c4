// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/health.h"

#include <fmt/format.h>

#include <utility>

namespace ringmaster::serve {
namespace {

http::Response Check(const std::vector<HealthCheck>& checks, const http::Request& request) {
  std::string lines;
  bool passed = true;
  for (const HealthCheck& check : checks) {
    const std::string problem = check.problem();
    if (problem.empty()) {
      lines += fmt::format("[+]{} ok\n", check.name);
    } else {
      lines += fmt::format("[-]{} failed: {}\n", check.name, problem);
      passed = false;
    }
  }
  const std::string what = request.path.substr(1);
  http::Response answer;
  if (!passed) {
    answer.status = 503;
    answer.body = lines + what + " check failed\n";
  } else if (request.query == "verbose" || request.query.starts_with("verbose=") ||
             request.query.starts_with("verbose&")) {
    answer.body = lines + what + " check passed\n";
  } else {
    answer.body = "ok";
  }
  return answer;
}

}  // namespace

http::Handler HealthHandler(std::vector<HealthCheck> live, std::vector<HealthCheck> ready) {
  live.insert(live.begin(), {"ping", [] { return std::string(); }});
  ready.insert(ready.begin(), {"ping", [] { return std::string(); }});
  return [live = std::move(live), ready = std::move(ready)](const http::Request& request,
                                                            const http::Responder& reply) {
    if (request.path == "/healthz" || request.path == "/livez") return reply(Check(live, request));
    if (request.path == "/readyz") return reply(Check(ready, request));
    reply({404, "text/plain; charset=utf-8", "not found; try /healthz, /livez or /readyz\n"});
  };
}

}  // namespace ringmaster::serve
