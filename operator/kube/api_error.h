// SPDX-License-Identifier: Apache-2.0

// Maps HTTP responses of the API server to errors. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

// A GET changes nothing, so it may always be repeated.
inline bool IsRead(const HttpRequest& request) { return request.method == "GET"; }

// Returns the error for a response that is not 2xx, as api_client.h describes. `what` describes the request.
Error ToError(const HttpResponse& response, bool read, const std::string& what);

// Describes a request for messages, like "POST pods rm/x-1-0": method, collection, namespace and name.
std::string Describe(const HttpRequest& request);

}  // namespace ringmaster::kube
