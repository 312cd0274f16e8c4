// SPDX-License-Identifier: Apache-2.0

// Who may take part in a rendezvous: a pod that proves by its projected token (audience `ringmaster.dev`)
// that it is the one it says, and that is a pod of that job and attempt as far as we know. The API server
// judges the token; tokens are never kept or logged.
#pragma once

#include <functional>
#include <string>

#include "operator/kube/api_client.h"
#include "rendezvous/messages.h"

namespace ringmaster::identity {

inline constexpr const char* kAudience = "ringmaster.dev";

// Whom a token speaks for, as TokenReview says.
struct PodIdentity {
  std::string namespace_;
  std::string pod;
  std::string pod_uid;
  bool operator==(const PodIdentity&) const = default;
};

// From the status of a TokenReview. kForbidden says what is missing.
Result<PodIdentity> IdentityOf(const Json& token_review);

// Whether this identity may say this Hello; what the view knows comes in as `check_worker`.
//  check_worker(job "namespace/name", pod, uid, attempt): Ok, or why not.
using CheckWorker = std::function<Status(const std::string& job, const std::string& pod,
                                         const std::string& uid, int64_t attempt)>;
Status CheckHello(const PodIdentity& identity, const rendezvous::Hello& hello,
                  const CheckWorker& check_worker);

class WorkerAuthenticator {
 public:
  // `api` must outlive all questions.
  WorkerAuthenticator(kube::ApiClient& api, CheckWorker check_worker)
      : api_(api), check_worker_(std::move(check_worker)) {}
  // Any thread; `done` comes at once or on a thread of the client.
  void Authenticate(const rendezvous::Hello& hello, std::function<void(Status)> done) const;

 private:
  kube::ApiClient& api_;
  const CheckWorker check_worker_;
};

}  // namespace ringmaster::identity
