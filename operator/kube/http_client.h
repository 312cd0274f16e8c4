// SPDX-License-Identifier: Apache-2.0

// The transport port: bytes to and from one API server. cpprest_http.cc implements it; everything above it
// (api_client.h, watch/) knows no HTTP library.
//
// Threads: all members may be called from any thread. Callbacks come on the library's threads, never from
// within the call that registered them; they must not block, and must not throw. After a client or a stream
// is destroyed none of its callbacks runs any more (the destructor waits for one that is running, so it must
// not be called from within a callback). Destroying a client ends what is under way with kCancelled first;
// destroying a stream ends it silently, without on_end.
//
// Errors of transport, by what may have happened at the server:
//  kUnavailable  the request surely did not arrive whole: any verb may be repeated;
//  kAmbiguous    it was sent and no answer came: read before deciding;
//  kCancelled    we gave it up.
// An HTTP answer of any status is a value here; api_client.h turns it into an error.
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

// Which requests go first when there are many.
enum class RequestPriority : uint8_t {
  kNormal,
  kUrgent,      // before all others and beside the limit of requests in flight
  kBackground,  // when no usual one is there, or waiting for that has become too long
};

struct HttpRequest {
  std::string method = "GET";
  std::string target{};  // path and query, percent-encoded: "/api/v1/pods?limit=500"
  std::string body{};
  std::string content_type = "application/json";  // of the body
  std::string accept = "application/json";
  RequestPriority priority = RequestPriority::kNormal;
  std::optional<Duration> limit{};  // from its start to its end; unset: the transport's own
};

struct HttpResponse {
  int status = 0;
  std::string body{};
  std::optional<Duration> retry_after{};  // of a 429 or 503
  std::vector<std::string> warnings{};    // texts of Warning headers: the API server's advice to people
};

// One running answer, line by line. Destroying it cancels it.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
};

struct StreamHandlers {
  // Each whole line, without its end, in order; the next bytes are read only after it returns. A last line
  // without an end is dropped. Only for 2xx answers.
  std::function<void(std::string_view line)> on_line;
  // Once, the last call. The answer: 2xx when the server ended the stream in good order; its body is empty
  // then, and holds the refusal otherwise. A stream that breaks or stays silent too long is an error.
  std::function<void(Result<HttpResponse>)> on_end;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  virtual void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) = 0;
  virtual std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) = 0;
};

}  // namespace ringmaster::kube
