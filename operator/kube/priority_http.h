// SPDX-License-Identifier: Apache-2.0

// A priority of its own through a transport: for the few requests that must not wait behind a burst of others
// (renewals of the Lease), and for those that should let it pass (events for people). Threads as the
// transport inside.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "operator/kube/http_client.h"

namespace ringmaster::kube {

class PriorityHttp final : public HttpClient {
 public:
  // `inner` must outlive this. Each request is given up after `limit`, unset: after the transport's own.
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
