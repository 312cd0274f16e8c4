// SPDX-License-Identifier: Apache-2.0

// What stands beside the pods of an attempt: made, brought up to date, and of older attempts removed.
#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

#include "base/json.h"
#include "operator/kube/backend/answers.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {
namespace {

Resource ResourceOfObject(const Json& object) {
  const std::string_view version = json::Text(object, "apiVersion");
  const size_t slash = version.find('/');
  Resource resource;
  if (slash != std::string_view::npos) resource.group = version.substr(0, slash);
  resource.version = slash == std::string_view::npos ? version : version.substr(slash + 1);
  const std::string_view kind = json::Text(object, "kind");
  resource.plural = kind == "Service" ? "services" : kind == "ConfigMap" ? "configmaps" : "podgroups";
  return resource;
}

}  // namespace

Store<ObjectRecord>* KubeBackend::StoreOf(const std::string& kind, const std::string& api_version) {
  if (kind == "Service") return &services_;
  if (kind == "ConfigMap") return &config_maps_;
  for (auto& [api, store] : groups_)
    if (ResourceOf(api).ApiVersion() == api_version) return store.get();
  return nullptr;
}

// All objects at once, for none needs another: each is made when it is not there, brought up to date when it
// is ours, refused when it is somebody else's.
class KubeBackend::Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  Preparation(KubeBackend& backend, Job job, core::PrepareGang action, std::vector<Json> objects, Done done)
      : backend_(backend),
        job_(std::move(job)),
        action_(action),
        objects_(std::move(objects)),
        done_(std::move(done)),
        left_(objects_.size()) {}

  void Begin() {
    if (objects_.empty()) return End();
    for (const Json& object : objects_) Make(object);
  }

 private:
  struct Part {
    const Json& object;
    Store<ObjectRecord>* store = nullptr;
    Resource resource;
    std::string name;
  };

  void Make(const Json& object) {
    Part part{object,
              backend_.StoreOf(object["kind"].get<std::string>(), object["apiVersion"].get<std::string>()),
              ResourceOfObject(object), object["metadata"]["name"].get<std::string>()};
    CHECK(part.store != nullptr, "no store for {}", object["kind"].get<std::string>());
    if (!backend_.options_.may_write()) return Take(part, NotLeading());
    const auto known = part.store->Get(job_->key.namespace_ + "/" + part.name);
    if (known && known->owner->uid == job_->uid) return Apply(part);
    backend_.client_.Create(part.resource, job_->key.namespace_, object,
                            backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
                              if (!result.ok() && result.error().code == Code::kAlreadyExists)
                                return self->Identify(part);
                              self->Take(part, result);
                            }),
                            ApiClient::Response::kMetadata);
  }
  void Apply(const Part& part) {
    backend_.client_.Apply(part.resource, job_->key.namespace_, part.name, "", part.object, true,
                           backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
                             self->Take(part, result);
                           }));
  }
  void Identify(const Part& part) {
    backend_.client_.Get(
        part.resource, job_->key.namespace_, part.name,
        backend_.Guard([self = shared_from_this(), part](const Result<Json>& result) {
          if (!result.ok()) return self->Take(part, result);
          if (OwnerOf(*result) == self->job_->uid) return self->Apply(part);
          self->Take(part,
                     Error{Code::kForbidden,
                           fmt::format("{} {}/{} exists and {}: delete it, or give the job another name",
                                       part.resource.plural, self->job_->key.namespace_, part.name,
                                       OwnerText(*result))});
        }));
  }
  void Take(const Part& part, const Result<Json>& result) {
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      if (result.ok())
        made_.push_back({part.store, part.name, RevisionOf(*result),
                         part.object["metadata"]["annotations"][kPreparedAnnotation].get<std::string>()});
      else if (!error_)
        error_ = result.error();
      last = --left_ == 0;
    }
    if (last) End();
  }
  void End() {
    if (error_) return done_(*error_);
    backend_.OnPrepared(job_, action_, std::move(made_));
    done_(Revision{0});
  }

  KubeBackend& backend_;
  const Job job_;
  const core::PrepareGang action_;
  const std::vector<Json> objects_;
  const Done done_;
  std::mutex mutex_;
  size_t left_ = 0;
  std::vector<CreatedObject> made_;
  std::optional<Error> error_;  // the first
};

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::PrepareGang& action,
                          Done done) {
  if (job->deleted) return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  const Result<PortRange> ports = AllotPorts(*job);
  if (!ports.ok()) return done(ports.error());
  wiring::Context context = ContextOf(*job);
  context.attempt = action.attempt;
  context.size = action.min;  // the group's least; nothing else beside the pods knows a size
  std::vector<Json> objects = wiring::ObjectsOf(job->ToApi(), job->uid, context);
  const uint64_t authority = job->spec->job.native ? AuthorityHash(context.coordinator_ca_pem) : 0;
  const std::string mark = MarkText({action, static_cast<int64_t>(objects.size()), authority, *ports});
  for (Json& object : objects) object["metadata"]["annotations"][kPreparedAnnotation] = mark;
  std::make_shared<Preparation>(*this, job, action, std::move(objects), std::move(done))->Begin();
}

void KubeBackend::OnPrepared(const Job& job, const core::PrepareGang& action,
                             std::vector<CreatedObject> made) {
  {
    std::lock_guard lock(mutex_);
    StateOf(*job).made = std::move(made);
  }
  // Groups of older attempts are of no use any more. Best effort: they go with the job at the latest.
  const std::string group = wiring::GroupName(job->key.name, action.attempt);
  for (const auto& [api, store] : groups_) {
    const auto records = store->Group(job->key.ToString());
    for (const auto& record : records) {
      if (record->owner->uid != job->uid || record->name == group) continue;
      DeleteOptions options;
      options.uid = record->uid;
      client_.Delete(ResourceOf(api), job->key.namespace_, record->name, options, [](const Result<Json>&) {});
    }
  }
  Notify(job->key.ToString());
}

}  // namespace ringmaster::kube
