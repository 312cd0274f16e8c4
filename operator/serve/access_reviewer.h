// SPDX-License-Identifier: Apache-2.0

// Who may read a path: the API server decides, by TokenReview (who is it?) and SubjectAccessReview (may they
// GET this path?), as for every metrics endpoint of the ecosystem. Verdicts are kept for a short while, by a
// hash of the token.
//
// Ask may be called from any thread; `done` comes at once or on a thread of the API client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "operator/kube/api_client.h"

namespace ringmaster::serve {

enum class Access : uint8_t {
  kAllowed,
  kUnauthenticated,  // no token, or one that the API server does not know: 401
  kForbidden,        // known, and not allowed: 403
  kUnavailable,      // the API server could not be asked: 503
};

class AccessReviewer {
 public:
  using Done = std::function<void(Access)>;
  // `api` must outlive the gate and all questions.
  explicit AccessReviewer(kube::ApiClient& api);
  ~AccessReviewer();
  void Review(const std::string& token, const std::string& path, Done done);

 private:
  class Shared;
  kube::ApiClient& api_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ringmaster::serve
