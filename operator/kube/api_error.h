// SPDX-License-Identifier: Apache-2.0

// HTTP answers of the API server as errors. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

// GET changes nothing: whatever happened to it, it may be repeated.
inline bool IsRead(const HttpRequest& request) { return request.method == "GET"; }

// The error of an answer that is not 2xx, as api_client.h describes. `what` says what was asked.
Error ToError(const HttpResponse& response, bool read, const std::string& what);

// "POST pods rm/x-1-0" for the answer's sake: method, collection, namespace and name of a path.
std::string Describe(const HttpRequest& request);

}  // namespace ringmaster::kube
