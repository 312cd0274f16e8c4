// SPDX-License-Identifier: Apache-2.0

// The HTTP transport over cpprestsdk, which is archived upstream: only cpprest_http.cc depends on it, and the
// tests of this class assert each behaviour of the library that we rely on.
//
// - Connections are kept and used again.
// - Redirects are never followed: they would carry the token to another server.
// - If the config has authorities, only those are trusted.
// - Each request asks the TokenSource for the token.
// - A request whose connection broke while it was being written is sent again at once, a few times: the
//   server cannot have it.
// - The library itself resends a request, even a POST, that was written to a reused connection and got no
//   response. So names must be deterministic and writes must have preconditions.
//
// Runs one thread that asks for tokens and starts requests, and the library's thread pool, whose size the
// first client of the process sets.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "base/time.h"
#include "operator/kube/config.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

struct TransportOptions {
  Duration silence = seconds(10);          // a request fails after this time without a byte
  Duration request_limit = seconds(60);    // a request fails after this time
  Duration stream_silence = seconds(150);  // a stream fails after this time without a byte of its body
  int max_in_flight = 50;                  // requests at the same time, without streams; further ones wait
  Duration background_wait = seconds(10);  // then a background request no longer waits for normal ones
  size_t max_line_bytes = size_t{8} << 20;
  size_t max_body_bytes = size_t{256} << 20;
  size_t pool_threads = 3;
};

// Errors: kInvalid for an invalid server URL, proxy URL or certificate.
Result<std::unique_ptr<HttpClient>> MakeHttpClient(const ClientConfig& config,
                                                   const TransportOptions& options = {});

}  // namespace ringmaster::kube
