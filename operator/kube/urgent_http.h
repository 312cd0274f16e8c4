// A lane of its own through a transport, for the few requests that must not wait behind a burst of others:
// renewals of the Lease. Each is given up after `limit`, so that there is time for another try. Threads as
// the transport inside.
#pragma once

#include <memory>
#include <utility>

#include "operator/kube/http_client.h"

namespace ringmaster::kube {

class UrgentHttp final : public HttpClient {
 public:
  // `inner` must outlive this.
  UrgentHttp(HttpClient& inner, Duration limit) : inner_(inner), limit_(limit) {}

  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    request.urgent = true;
    request.limit = limit_;
    inner_.Send(std::move(request), std::move(done));
  }
  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    return inner_.Stream(std::move(request), std::move(handlers));
  }

 private:
  HttpClient& inner_;
  const Duration limit_;
};

}  // namespace ringmaster::kube
