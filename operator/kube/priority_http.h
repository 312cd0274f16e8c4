// SPDX-License-Identifier: Apache-2.0

// An HttpClient that sends all its requests with one priority: urgent for the few that must not wait behind a
// burst (renewals of the Lease), background for those that can wait (events). Thread-safe if the wrapped
// client is.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "operator/kube/http_client.h"

namespace ringmaster::kube {

class PriorityHttp final : public HttpClient {
 public:
  // REQUIRES: `inner` outlives this object. Each request fails after `limit`; unset: after the transport's
  // limit.
  PriorityHttp(HttpClient& inner, RequestPriority priority, std::optional<Duration> limit = std::nullopt)
      : inner_(inner), priority_(priority), limit_(limit) {}

  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    request.priority = priority_;
    request.limit = limit_;
    inner_.Send(std::move(request), std::move(done));
  }
  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    return inner_.Stream(std::move(request), std::move(handlers));
  }

 private:
  HttpClient& inner_;
  const RequestPriority priority_;
  const std::optional<Duration> limit_;
};

}  // namespace ringmaster::kube
