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
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/time.h"
#include "operator/kube/config.h"
#include "operator/kube/http_client.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {

struct TransportOptions {
  Duration silence = seconds(10);          // a request fails after this time without a byte
  Duration request_limit = seconds(60);    // a request fails after this time
  Duration stream_silence = seconds(150);  // a stream fails after this time without a byte of its body
  int max_in_flight = 50;                  // requests at the same time, without streams; further ones wait
  Duration background_wait = seconds(10);  // then a background request no longer waits for normal ones
  // etcd takes objects of 1.5 MiB, and JSON writes one byte as at most six: a line has one object, and a body
  // at least one. Lists that come at the same time must fit into the memory limit of the chart together.
  size_t max_line_bytes = size_t{16} << 20;
  size_t max_body_bytes = size_t{32} << 20;
  size_t pool_threads = 3;
  // Called with the time of the server for each response that has it, before its body is used.
  std::function<void(WallTime)> on_date = nullptr;
};

// Errors: kInvalid for an invalid server URL, proxy URL or certificate.
Result<std::unique_ptr<HttpClient>> MakeHttpClient(const ClientConfig& config,
                                                   const TransportOptions& options = {});

}  // namespace ringmaster::kube
