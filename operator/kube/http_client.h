// SPDX-License-Identifier: Apache-2.0

// The interface to the HTTP transport: bytes to and from one API server. cpprest_http.cc implements it; the
// layers above (api_client.h, watch/) depend on no HTTP library.
//
// Thread-safe. Callbacks run on the library's threads, never from within the call that registered them; they
// must not block or throw. After a client or a stream has been destroyed, none of its callbacks runs. The
// destructor waits for a running callback, so a callback must not destroy its client or stream. Destroying a
// client first ends its requests with kCancelled; destroying a stream ends it without on_end.
//
// Errors, by what may have happened at the server:
//  kUnavailable  the request did not arrive completely: any verb may be repeated
//  kAmbiguous    the request was sent and no response came: read before deciding
//  kExhausted    the response is larger than the transport's limit
//  kCancelled    the request was cancelled
// An HTTP response of any status is a value here; api_client.h turns it into an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::kube {

// The order in which waiting requests are sent.
enum class RequestPriority : uint8_t {
  kNormal,
  kUrgent,      // before all others; does not count towards the limit of requests in flight
  kBackground,  // when no normal request waits, or after waiting too long
};

struct HttpRequest {
  std::string method = "GET";
  std::string target{};  // path and query, percent-encoded: "/api/v1/pods?limit=500"
  std::string body{};
  std::string content_type = "application/json";  // of the body
  std::string accept = "application/json";
  RequestPriority priority = RequestPriority::kNormal;
  std::optional<Duration> limit{};  // from start to end; unset: the transport's limit
};

struct HttpResponse {
  int status = 0;
  std::string body{};
  std::optional<Duration> retry_after{};  // in a 429 or 503
  std::vector<std::string> warnings{};    // texts of Warning headers
};

// A response that arrives line by line. Destroying it cancels it.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
};

struct StreamHandlers {
  // Called for each complete line of a 2xx response, without the newline, in order. The next bytes are read
  // after it returns. A last line without a newline is dropped.
  std::function<void(std::string_view line)> on_line;
  // Called once, as the last call. The response has status 2xx and an empty body when the server ended the
  // stream normally; otherwise its body says why not. A stream that breaks or stays silent too long is an
  // error.
  std::function<void(Result<HttpResponse>)> on_end;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  virtual void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) = 0;
  virtual std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) = 0;
};

}  // namespace ringmaster::kube
