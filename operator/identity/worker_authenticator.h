// SPDX-License-Identifier: Apache-2.0

// Admits agents to a rendezvous: a pod must prove with its projected token (audience `ringmaster.dev`) that
// it is the pod named in its Hello, and that pod must be a worker of that job and attempt. The API server
// checks the token; tokens are never kept or logged.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "operator/kube/api_client.h"
#include "rendezvous/messages.h"

namespace ringmaster::identity {

inline constexpr const char* kAudience = "ringmaster.dev";

// The pod that a token belongs to, as TokenReview reports it.
struct PodIdentity {
  std::string namespace_;
  std::string pod;
  std::string pod_uid;
  bool operator==(const PodIdentity&) const = default;
};

// Reads the status of a TokenReview. kForbidden names what is missing.
Result<PodIdentity> IdentityOf(const Json& token_review);

// Returns Ok if that pod is a worker of `job` ("namespace/name") in that attempt, else why not.
using CheckWorker = std::function<Status(const std::string& job, const std::string& pod,
                                         const std::string& uid, int64_t attempt)>;

// Returns Ok if a pod with this identity may send this Hello.
Status CheckHello(const PodIdentity& identity, const rendezvous::Hello& hello,
                  const CheckWorker& check_worker);

// Thread-safe, except for the destructor.
class WorkerAuthenticator {
 public:
  // REQUIRES: `api` outlives all requests, which may be longer than the authenticator lives.
  WorkerAuthenticator(kube::ApiClient& api, CheckWorker check_worker);
  // After it, `check_worker` neither runs nor is called. Agents whose answers come later are refused.
  ~WorkerAuthenticator();
  // Calls `done` at once or on a thread of the client.
  void Authenticate(const rendezvous::Hello& hello, std::function<void(Status)> done) const;

 private:
  class Checker;
  kube::ApiClient& api_;
  const std::shared_ptr<Checker> checker_;
};

}  // namespace ringmaster::identity
