// SPDX-License-Identifier: Apache-2.0

#include "operator/serve/access_reviewer.h"

#include <openssl/sha.h>

#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"

namespace ringmaster::serve {
namespace {

constexpr Duration kKeepAllowed = seconds(60);
constexpr Duration kKeepRefused = seconds(10);
constexpr size_t kMaxDecisions = 256;

const kube::Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews"};
const kube::Resource kAccessReviews{"authorization.k8s.io", "v1", "subjectaccessreviews"};

std::string Fingerprint(const std::string& token, const std::string& path) {
  const std::string text = path + '\0' + token;
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// Members of the user: their names in SubjectAccessReview and in TokenReview.
constexpr std::pair<const char*, const char*> kUserMembers[] = {
    {"user", "username"}, {"groups", "groups"}, {"uid", "uid"}, {"extra", "extra"}};

}  // namespace

// The client while the reviewer exists: an answer may come later. Thread-safe.
class AccessReviewer::Client {
 public:
  explicit Client(kube::ApiClient& api) : api_(&api) {}
  // Returns false after Close.
  bool Create(const kube::Resource& resource, const Json& object, kube::ApiClient::Done done) {
    MutexLock lock(mutex_);
    if (api_ == nullptr) return false;
    api_->Create(resource, "", object, std::move(done));
    return true;
  }
  void Close() {
    MutexLock lock(mutex_);
    api_ = nullptr;
  }

 private:
  Mutex mutex_;
  kube::ApiClient* api_ RM_GUARDED_BY(mutex_);
};

class AccessReviewer::Cache {
 public:
  std::optional<Access> Find(const std::string& key, Time now) {
    MutexLock lock(mutex_);
    const auto it = decisions_.find(key);
    if (it == decisions_.end() || it->second.second <= now) return std::nullopt;
    return it->second.first;
  }
  void Add(const std::string& key, Access access, Time now) {
    if (access == Access::kUnavailable) return;
    MutexLock lock(mutex_);
    if (decisions_.size() >= kMaxDecisions)
      std::erase_if(decisions_, [&](const auto& e) { return e.second.second <= now; });
    if (decisions_.size() >= kMaxDecisions) decisions_.clear();
    decisions_[key] = {access, now + (access == Access::kAllowed ? kKeepAllowed : kKeepRefused)};
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::pair<Access, Time>> decisions_ RM_GUARDED_BY(mutex_);  // with their expiry
};

AccessReviewer::AccessReviewer(kube::ApiClient& api)
    : client_(std::make_shared<Client>(api)), cache_(std::make_shared<Cache>()) {}
AccessReviewer::~AccessReviewer() { client_->Close(); }

void AccessReviewer::Review(const std::string& token, const std::string& path, Done done) {
  if (token.empty()) return done(Access::kUnauthenticated);
  const std::string key = Fingerprint(token, path);
  if (const auto known = cache_->Find(key, Now())) return done(*known);
  auto decided = [cache = cache_, key, done = std::move(done)](Access access) {
    cache->Add(key, access, Now());
    done(access);
  };
  const Json review = {
      {"apiVersion", kTokenReviews.ApiVersion()}, {"kind", "TokenReview"}, {"spec", {{"token", token}}}};
  client_->Create(kTokenReviews, review, [client = client_, path, decided](Result<Json> answer) {
    if (!answer.ok()) {
      log::Warn("metrics token_review=failed error={}", answer.error().message);
      return decided(Access::kUnavailable);
    }
    const Json& status = json::Child(answer.value(), "status");
    const Json& user = json::Child(status, "user");
    if (!json::Flag(status, "authenticated") || user.is_null()) return decided(Access::kUnauthenticated);
    Json spec = {{"nonResourceAttributes", {{"path", path}, {"verb", "get"}}}};
    for (const auto& [to, from] : kUserMembers)
      if (const Json& value = json::Child(user, from); !value.is_null()) spec[to] = value;
    const Json access = {{"apiVersion", kAccessReviews.ApiVersion()},
                         {"kind", "SubjectAccessReview"},
                         {"spec", std::move(spec)}};
    const bool asked = client->Create(kAccessReviews, access, [decided](Result<Json> decision) {
      if (!decision.ok()) {
        log::Warn("metrics access_review=failed error={}", decision.error().message);
        return decided(Access::kUnavailable);
      }
      decided(json::Flag(json::Child(decision.value(), "status"), "allowed") ? Access::kAllowed
                                                                             : Access::kForbidden);
    });
    if (!asked) decided(Access::kUnavailable);
  });
}

}  // namespace ringmaster::serve
