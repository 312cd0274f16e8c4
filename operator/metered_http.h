// SPDX-License-Identifier: Apache-2.0

// An HttpClient that records each request's method, status and duration for the rest_client_* metrics.
// Thread-safe if the wrapped client is.
#pragma once

#include <memory>
#include <utility>

#include "operator/kube/http_client.h"
#include "operator/serve/metrics.h"

namespace ringmaster::operator_main {

class MeteredHttp final : public kube::HttpClient {
 public:
  // REQUIRES: `metrics` outlives this object and the requests in flight.
  MeteredHttp(std::unique_ptr<kube::HttpClient> inner, serve::Metrics& metrics)
      : inner_(std::move(inner)), metrics_(metrics) {}

  void Send(kube::HttpRequest request, std::function<void(Result<kube::HttpResponse>)> done) override {
    auto metered = [this, method = request.method, began = Now(),
                    done = std::move(done)](Result<kube::HttpResponse> answer) {
      metrics_.Requested(method, answer.ok() ? answer.value().status : 0, Now() - began);
      done(std::move(answer));
    };
    inner_->Send(std::move(request), std::move(metered));
  }
  std::unique_ptr<kube::HttpStream> Stream(kube::HttpRequest request,
                                           kube::StreamHandlers handlers) override {
    handlers.on_end = [this, began = Now(),
                       on_end = std::move(handlers.on_end)](Result<kube::HttpResponse> answer) {
      metrics_.Requested("WATCH", answer.ok() ? answer.value().status : 0, Now() - began);
      on_end(std::move(answer));
    };
    return inner_->Stream(std::move(request), std::move(handlers));
  }

 private:
  const std::unique_ptr<kube::HttpClient> inner_;
  serve::Metrics& metrics_;
};

}  // namespace ringmaster::operator_main
