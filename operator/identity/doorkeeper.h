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

// Whether this identity may say this Hello; what the view knows comes in as `is_worker`.
//  is_worker(job "namespace/name", pod, uid, attempt): Ok, or why not.
using IsWorker = std::function<Status(const std::string& job, const std::string& pod, const std::string& uid,
                                      int64_t attempt)>;
Status Judge(const PodIdentity& identity, const rendezvous::Hello& hello, const IsWorker& is_worker);

class Doorkeeper {
 public:
  // `api` must outlive all questions.
  Doorkeeper(kube::ApiClient& api, IsWorker is_worker) : api_(api), is_worker_(std::move(is_worker)) {}
  // Any thread; `done` comes at once or on a thread of the client.
  void Admit(const rendezvous::Hello& hello, std::function<void(Status)> done) const;

 private:
  kube::ApiClient& api_;
  const IsWorker is_worker_;
};

}  // namespace ringmaster::identity
