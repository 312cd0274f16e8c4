// SPDX-License-Identifier: Apache-2.0

// An HTTP client of which the test decides when a request is answered.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/http_client.h"

namespace ringmaster::kube {

// Holds each request until the test answers it.
class HeldRequests final : public HttpClient {
 public:
  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    targets.push_back(request.target);
    waiting.push_back(std::move(done));
  }
  std::unique_ptr<HttpStream> Stream(HttpRequest, StreamHandlers) override { return nullptr; }
  void Answer(const std::string& body) {
    const auto done = std::move(waiting.back());
    waiting.pop_back();
    HttpResponse response;
    response.status = 201;
    response.body = body;
    done(std::move(response));
  }

  std::vector<std::string> targets;
  std::vector<std::function<void(Result<HttpResponse>)>> waiting;
};

}  // namespace ringmaster::kube
