// SPDX-License-Identifier: Apache-2.0

#include "operator/identity/worker_authenticator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/mutex.h"

namespace ringmaster::identity {
namespace {

const kube::Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews"};
constexpr std::string_view kAccountPrefix = "system:serviceaccount:";

// Returns the first value of the user's `extra` entry; empty: none.
std::string Extra(const Json& user, const char* key) {
  const Json& values = json::Items(json::Child(user, "extra"), key);
  return values.empty() || !values[0].is_string() ? std::string() : values[0].get<std::string>();
}

Error Refused(std::string why) { return {Code::kForbidden, std::move(why)}; }

}  // namespace

Result<PodIdentity> IdentityOf(const Json& token_review) {
  const Json& status = json::Child(token_review, "status");
  if (status.is_null()) return Refused("the TokenReview has no status");
  if (!json::Flag(status, "authenticated"))
    return Refused("the token is not valid, or not for this audience");
  // An API server without support for audiences accepts any token, so the review must name our audience.
  const Json& audiences = json::Items(status, "audiences");
  if (std::find(audiences.begin(), audiences.end(), Json(kAudience)) == audiences.end())
    return Refused(fmt::format("the token is not for the audience {}", kAudience));
  const Json& user = json::Child(status, "user");
  std::string_view account = json::Text(user, "username");
  if (account.empty()) return Refused("the token names no user");
  if (!account.starts_with(kAccountPrefix)) return Refused("the token does not belong to a service account");
  account.remove_prefix(kAccountPrefix.size());
  PodIdentity identity;
  identity.namespace_ = account.substr(0, account.find(':'));
  identity.pod = Extra(user, "authentication.kubernetes.io/pod-name");
  identity.pod_uid = Extra(user, "authentication.kubernetes.io/pod-uid");
  if (identity.namespace_.empty() || identity.pod.empty() || identity.pod_uid.empty())
    return Refused("the token is not bound to a pod");
  return identity;
}

Status CheckHello(const PodIdentity& identity, const rendezvous::Hello& hello,
                  const CheckWorker& check_worker) {
  const std::string of_job = hello.job.substr(0, hello.job.find('/'));
  if (identity.namespace_ != of_job)
    return Refused(fmt::format("a pod of namespace {} may not join {}", identity.namespace_, hello.job));
  if (identity.pod != hello.pod)
    return Refused(fmt::format("the token belongs to pod {}, not {}", identity.pod, hello.pod));
  return check_worker(hello.job, identity.pod, identity.pod_uid, hello.attempt);
}

// What requests use of the authenticator, while it exists. Thread-safe.
class WorkerAuthenticator::Checker {
 public:
  explicit Checker(CheckWorker check_worker) : check_worker_(std::move(check_worker)) {}
  Status Check(const PodIdentity& identity, const rendezvous::Hello& hello) {
    MutexLock lock(mutex_);
    if (check_worker_ == nullptr) return Error{Code::kUnavailable, "this process does not lead any more"};
    return CheckHello(identity, hello, check_worker_);
  }
  void Close() {
    MutexLock lock(mutex_);
    check_worker_ = nullptr;
  }

 private:
  Mutex mutex_;
  CheckWorker check_worker_ RM_GUARDED_BY(mutex_);  // null: closed
};

WorkerAuthenticator::WorkerAuthenticator(kube::ApiClient& api, CheckWorker check_worker)
    : api_(api), checker_(std::make_shared<Checker>(std::move(check_worker))) {}
WorkerAuthenticator::~WorkerAuthenticator() { checker_->Close(); }

void WorkerAuthenticator::Authenticate(const rendezvous::Hello& hello,
                                       std::function<void(Status)> done) const {
  if (hello.secret.empty()) return done(Refused("no token"));
  const Json review = {{"apiVersion", kTokenReviews.ApiVersion()},
                       {"kind", "TokenReview"},
                       {"spec", {{"token", hello.secret}, {"audiences", Json::array({kAudience})}}}};
  rendezvous::Hello rest = hello;
  rest.secret.clear();
  api_.Create(
      kTokenReviews, "", review,
      [rest = std::move(rest), checker = checker_, done = std::move(done)](const Result<Json>& answer) {
        if (!answer.ok()) return done(answer.error().In("TokenReview"));
        const Result<PodIdentity> identity = IdentityOf(answer.value());
        if (!identity.ok()) return done(identity.error());
        done(checker->Check(identity.value(), rest));
      });
}

}  // namespace ringmaster::identity
