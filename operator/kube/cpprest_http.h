// SPDX-License-Identifier: Apache-2.0

// The transport over cpprestsdk, which is archived upstream: its .cc is the only file that knows it, and the
// tests of this class assert every habit of the library that we rely on.
//
// Properties: connections are kept and used again; redirects are never followed (they would carry the token
// along); only the authorities of the config are trusted where it names any; the token is asked for with
// every request. A request that was being written when its connection broke is sent again at once, a few
// times: it cannot have arrived. One that was written, and got no answer on a connection that had been used
// before, is sent again by the library on its own, POST too: so names must be deterministic, and writes must
// carry preconditions.
//
// One thread of its own, which asks for tokens and starts requests, and the library's pool, whose size the
// first client of the process decides.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "base/time.h"
#include "operator/kube/config.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

struct TransportOptions {
  Duration silence = seconds(10);          // of a request: so long without a byte moving, and it has failed
  Duration request_limit = seconds(60);    // from its start to its end
  Duration stream_silence = seconds(150);  // of a stream, once its answer has begun
  int max_in_flight = 50;                  // requests; more wait their turn. Streams do not count
  Duration background_wait = seconds(10);  // of a patient request; then it goes among the usual ones
  size_t max_line_bytes = size_t{8} << 20;
  size_t max_body_bytes = size_t{256} << 20;
  size_t pool_threads = 3;
};

// kInvalid when the config cannot work: the server's URL, the proxy's, certificates.
Result<std::unique_ptr<HttpClient>> MakeHttpClient(const ClientConfig& config,
                                                   const TransportOptions& options = {});

}  // namespace ringmaster::kube
