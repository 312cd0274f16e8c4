// SPDX-License-Identifier: Apache-2.0

// Decides whether a client may read a path, by asking the API server: TokenReview authenticates the token,
// and SubjectAccessReview checks the right to GET the path. Decisions are cached for a short time, by a hash
// of the token.
//
// Thread-safe. `done` is called at once or on a thread of the API client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "operator/kube/api_client.h"

namespace ringmaster::serve {

enum class Access : uint8_t {
  kAllowed,
  kUnauthenticated,  // no token, or an invalid one: 401
  kForbidden,        // authenticated, but not allowed: 403
  kUnavailable,      // the API server did not answer: 503
};

class AccessReviewer {
 public:
  using Done = std::function<void(Access)>;
  // REQUIRES: `api` outlives the reviewer. A review that has not ended by then ends with kUnavailable.
  explicit AccessReviewer(kube::ApiClient& api);
  ~AccessReviewer();
  void Review(const std::string& token, const std::string& path, Done done);

 private:
  class Cache;
  class Client;
  const std::shared_ptr<Client> client_;
  const std::shared_ptr<Cache> cache_;
};

}  // namespace ringmaster::serve
