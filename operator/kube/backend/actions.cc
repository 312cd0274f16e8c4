// What a decision asks for, as requests. One request for most; PrepareGang, ReleaseGang and the live read are
// small machines of several.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/preparation.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/backend/status_codec.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {

using control::Key;

namespace {

constexpr size_t kMostInFlight = 32;  // of one action

Revision RevisionOf(const Json& object) { return ReadMeta(object).revision; }

std::string OwnerOf(const Json& object) {
  for (const Json& owner : Items(Child(object, "metadata"), "ownerReferences"))
    if (Flag(owner, "controller")) return std::string(Text(owner, "uid"));
  return {};
}

std::string OwnerText(const Json& object) {
  for (const Json& owner : Items(Child(object, "metadata"), "ownerReferences"))
    if (Flag(owner, "controller"))
      return fmt::format("belongs to {} {} (uid {})", Text(owner, "kind"), Text(owner, "name"),
                         Text(owner, "uid"));
  return "belongs to nobody";
}

Error NotLeading() {
  return {Code::kUnavailable, "not written: the leadership of this replica is not certain now"};
}

int64_t WholeSeconds(Duration grace) {
  return std::chrono::ceil<std::chrono::seconds>(std::max(grace, Duration{0})).count();
}

Resource ResourceOfObject(const Json& object) {
  const std::string_view version = Text(object, "apiVersion");
  const size_t slash = version.find('/');
  Resource resource;
  if (slash != std::string_view::npos) resource.group = version.substr(0, slash);
  resource.version = slash == std::string_view::npos ? version : version.substr(slash + 1);
  const std::string_view kind = Text(object, "kind");
  resource.plural = kind == "Service" ? "services" : kind == "ConfigMap" ? "configmaps" : "podgroups";
  return resource;
}

}  // namespace

void KubeBackend::Execute(control::Write write, std::function<void(Result<control::Revision>)> done) {
  const Job job = jobs_.Get(write.key.namespace_ + "/" + write.key.name);
  if (!job || job->uid != write.job_uid)
    return done(Error{Code::kNotFound, "no job " + write.key.ToString() + " with uid " + write.job_uid});
  if (!std::holds_alternative<core::SetGang>(write.action) && !options_.may_write())
    return done(NotLeading());
  std::visit([&](const auto& action) { Do(job, write, action, std::move(done)); }, write.action);
}

void KubeBackend::Do(const Job& job, const control::Write& write, const core::SetStatus& action, Done done) {
  if (!write.if_revision)
    return done(Error{Code::kConflict, "job " + write.key.ToString() + ": a status needs its revision"});
  const api::Status status = EncodeStatus(action.status, job->api, options_.clock);
  const Json patch = {
      {"metadata", {{"uid", job->uid}, {"resourceVersion", std::to_string(*write.if_revision)}}},
      {"status", StatusPatch(status)}};
  client_.Patch(kJobs, write.key.namespace_, write.key.name, "status", ApiClient::PatchType::kMerge, patch,
                Guard([done = std::move(done)](Result<Json> result) {
                  if (!result.ok()) return done(result.error());
                  done(RevisionOf(*result));
                }));
}

void KubeBackend::Do(const Job& job, const control::Write& write, const core::CreatePod& action, Done done) {
  const std::string& space = write.key.namespace_;
  if (job->job.deleted)
    return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  wiring::Context context = ContextOf(*job);
  if (action.gated) context.gang = wiring::Gang::kGate;
  if (context.gang == wiring::Gang::kGate && !action.gated) context.gang = wiring::Gang::kNone;
  context.attempt = action.attempt;
  context.size = action.size;
  context.excluded_nodes = action.excluded_nodes;
  const Json pod = wiring::PodOf(job->Whole(), job->uid, action.rank, context);
  client_.Create(
      kPods, space, pod,
      Guard([this, space, name = action.name, uid = job->uid, done = std::move(done)](Result<Json> result) {
        if (result.ok()) return done(RevisionOf(*result));
        if (result.error().code != Code::kAlreadyExists) return done(result.error());
        const auto known = pods_.Get(space + "/" + name);
        if (known && known->own && known->own->owner_uid == uid) return done(result.error());
        // Whose is it? People must be told.
        client_.Get(kPods, space, name,
                    Guard([space, name, uid, done, error = result.error()](Result<Json> found) {
                      if (!found.ok() || OwnerOf(*found) == uid) return done(error);
                      done(Error{Code::kAlreadyExists, "pod " + space + "/" + name + " exists and " +
                                                           OwnerText(*found) +
                                                           ": delete it, or give the job another name"});
                    }));
      }));
}

void KubeBackend::Do(const Job&, const control::Write& write, const core::DeletePod& action, Done done) {
  DeleteOptions options;
  options.uid = action.uid;
  options.grace_seconds = WholeSeconds(action.grace);
  options.propagation = "Background";
  client_.Delete(kPods, write.key.namespace_, action.name, options,
                 Guard([done = std::move(done)](Result<Json> result) {
                   if (!result.ok()) return done(result.error());
                   done(RevisionOf(*result));
                 }));
}

void KubeBackend::Do(const Job& job, const control::Write& write, const core::SetGang& action, Done done) {
  {
    std::lock_guard lock(mutex_);
    LiveOf(*job).order = action;
  }
  // Before the acknowledgement: who decides next may rely on the coordinator knowing.
  if (options_.on_gang) options_.on_gang(write.key, action);
  Notify(write.key.ToString());
  done(Revision{0});
}

void KubeBackend::Do(const Job& job, const control::Write& write, const core::DeleteJob&, Done done) {
  DeleteOptions options;
  options.uid = job->uid;
  options.propagation = "Background";
  client_.Delete(kJobs, write.key.namespace_, write.key.name, options,
                 Guard([done = std::move(done)](Result<Json> result) {
                   if (!result.ok()) return done(result.error());
                   done(Revision{0});
                 }));
}

// ---- what stands beside the pods

Store<ObjectRecord>* KubeBackend::StoreOf(const std::string& kind, const std::string& api_version) {
  if (kind == "Service") return &services_;
  if (kind == "ConfigMap") return &config_maps_;
  for (auto& [api, store] : groups_)
    if (ResourceOf(api).ApiVersion() == api_version) return store.get();
  return nullptr;
}

// One object after the other: made when it is not there, brought up to date when it is ours, refused when it
// is somebody else's.
class KubeBackend::Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  Preparation(KubeBackend& backend, Job job, core::PrepareGang action, std::vector<Json> objects, Done done)
      : backend_(backend),
        job_(std::move(job)),
        action_(action),
        objects_(std::move(objects)),
        done_(std::move(done)) {}

  void Next() {
    if (at_ == objects_.size()) {
      backend_.Settle(job_, action_, std::move(made_));
      return done_(Revision{0});
    }
    if (!backend_.options_.may_write()) return done_(NotLeading());
    const Json& object = objects_[at_];
    store_ = backend_.StoreOf(object["kind"].get<std::string>(), object["apiVersion"].get<std::string>());
    CHECK(store_ != nullptr, "no store for {}", object["kind"].get<std::string>());
    resource_ = ResourceOfObject(object);
    name_ = object["metadata"]["name"].get<std::string>();
    const auto known = store_->Get(job_->key.namespace_ + "/" + name_);
    if (known && known->owner_uid == job_->uid) return Apply();
    backend_.client_.Create(resource_, job_->key.namespace_, object,
                            backend_.Guard([self = shared_from_this()](Result<Json> result) {
                              if (!result.ok() && result.error().code == Code::kAlreadyExists)
                                return self->Identify();
                              self->Take(result);
                            }));
  }

 private:
  void Apply() {
    backend_.client_.Apply(
        resource_, job_->key.namespace_, name_, "", objects_[at_], true,
        backend_.Guard([self = shared_from_this()](Result<Json> result) { self->Take(result); }));
  }
  void Identify() {
    backend_.client_.Get(
        resource_, job_->key.namespace_, name_,
        backend_.Guard([self = shared_from_this()](Result<Json> result) {
          if (!result.ok()) return self->done_(result.error());
          if (OwnerOf(*result) == self->job_->uid) return self->Apply();
          self->done_(Error{Code::kForbidden,
                            fmt::format("{} {}/{} exists and {}: delete it, or give the job another name",
                                        self->resource_.plural, self->job_->key.namespace_, self->name_,
                                        OwnerText(*result))});
        }));
  }
  void Take(const Result<Json>& result) {
    if (!result.ok()) return done_(result.error());
    made_.push_back({store_, name_, RevisionOf(*result),
                     objects_[at_]["metadata"]["annotations"][kPreparedAnnotation].get<std::string>()});
    ++at_;
    Next();
  }

  KubeBackend& backend_;
  const Job job_;
  const core::PrepareGang action_;
  const std::vector<Json> objects_;
  const Done done_;
  size_t at_ = 0;
  Store<ObjectRecord>* store_ = nullptr;
  Resource resource_;
  std::string name_;
  std::vector<Made> made_;
};

void KubeBackend::Do(const Job& job, const control::Write& write, const core::PrepareGang& action,
                     Done done) {
  if (job->job.deleted)
    return done(Error{Code::kForbidden, "job " + write.key.ToString() + " is being deleted"});
  const Result<PortRange> ports = AllotPorts(*job);
  if (!ports.ok()) return done(ports.error());
  wiring::Context context = ContextOf(*job);
  context.attempt = action.attempt;
  context.size = action.min;  // the group's least; nothing else beside the pods knows a size
  std::vector<Json> objects = wiring::ObjectsOf(job->Whole(), job->uid, context);
  const std::string mark = MarkText(
      {action, static_cast<int64_t>(objects.size()), AuthorityHash(context.coordinator_ca_pem), *ports});
  for (Json& object : objects) object["metadata"]["annotations"][kPreparedAnnotation] = mark;
  std::make_shared<Preparation>(*this, job, action, std::move(objects), std::move(done))->Next();
}

void KubeBackend::Settle(const Job& job, const core::PrepareGang& action, std::vector<Made> made) {
  {
    std::lock_guard lock(mutex_);
    LiveOf(*job).made = std::move(made);
  }
  // Groups of older attempts are of no use any more. Best effort: they go with the job at the latest.
  const std::string group = wiring::GroupName(job->key.name, action.attempt);
  for (const auto& [api, store] : groups_) {
    const auto records = store->Group(job->key.ToString());
    for (const auto& record : records) {
      if (record->owner_uid != job->uid || record->name == group) continue;
      DeleteOptions options;
      options.uid = record->uid;
      client_.Delete(ResourceOf(api), job->key.namespace_, record->name, options, [](const Result<Json>&) {});
    }
  }
  Notify(job->key.ToString());
}

// ---- gates

// Some requests at a time, until all are answered.
class KubeBackend::Release : public std::enable_shared_from_this<Release> {
 public:
  Release(KubeBackend& backend, std::string space, std::deque<core::PodRef> pods, Done done)
      : backend_(backend), space_(std::move(space)), pods_(std::move(pods)), done_(std::move(done)) {}

  void Begin() {
    const size_t first = std::min(pods_.size(), kMostInFlight);
    left_ = pods_.size();
    if (left_ == 0) return done_(Revision{0});
    for (size_t i = 0; i < first; ++i) One();
  }

 private:
  void One() {
    core::PodRef pod;
    {
      std::lock_guard lock(mutex_);
      if (pods_.empty()) return;
      pod = std::move(pods_.front());
      pods_.pop_front();
    }
    if (!backend_.options_.may_write()) return Answer(pod.uid, NotLeading());
    const Json patch = {
        {"metadata", {{"uid", pod.uid}}},
        {"spec", {{"schedulingGates", Json::array({{{"$patch", "delete"}, {"name", wiring::kGangGate}}})}}}};
    backend_.client_.Patch(kPods, space_, pod.name, "", ApiClient::PatchType::kStrategic, patch,
                           backend_.Guard([self = shared_from_this(), uid = pod.uid](Result<Json> result) {
                             self->Answer(uid, result.ok() ? Result<Revision>(RevisionOf(*result))
                                                           : Result<Revision>(result.error()));
                           }));
  }
  void Answer(const std::string& uid, const Result<Revision>& result) {
    // Surely not released: its place is free again. After a lost answer it is kept, until a view tells.
    if (!result.ok() && result.error().code != Code::kAmbiguous) {
      {
        std::lock_guard lock(backend_.mutex_);
        backend_.capacity_.Unreserve(uid);
      }
      backend_.RoomChanged();  // others may have waited for it
    }
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      if (result.ok())
        newest_ = std::max(newest_, result.value());
      else if (!error_)
        error_ = result.error();
      last = --left_ == 0;
    }
    if (!last) return One();
    if (error_) return done_(*error_);
    done_(newest_);
  }

  KubeBackend& backend_;
  const std::string space_;
  std::mutex mutex_;
  std::deque<core::PodRef> pods_;
  const Done done_;
  size_t left_ = 0;
  Revision newest_ = 0;
  std::optional<Error> error_;
};

void KubeBackend::Do(const Job& job, const control::Write& write, const core::ReleaseGang& action,
                     Done done) {
  std::deque<core::PodRef> gated;
  std::vector<std::string> uids;
  std::vector<std::string> beside;
  std::shared_ptr<const core::PodShape> shape;
  for (const core::PodRef& ref : action.pods) {
    const auto record = pods_.Get(write.key.namespace_ + "/" + ref.name);
    if (!record || !record->own) return done(Error{Code::kNotFound, "no pod " + ref.name});
    if (record->uid() != ref.uid)
      return done(Error{Code::kConflict, "pod " + ref.name + " is another one by now"});
    if (!record->own->pod.gated) continue;
    gated.push_back(ref);
    uids.push_back(ref.uid);
    shape = record->own->shape;
  }
  for (const auto& record : pods_.Group(write.key.ToString()))
    if (record->own->owner_uid == job->uid && record->own->pod.attempt == action.attempt &&
        !record->node().empty() && !record->ended)
      beside.push_back(record->node());
  if (shape) {
    std::lock_guard lock(mutex_);
    if (!capacity_.Reserve(uids, shape, beside))
      return done(Error{Code::kConflict, fmt::format("there is no room for {} pods of {} any more",
                                                     uids.size(), write.key.ToString())});
  }
  std::make_shared<Release>(*this, write.key.namespace_, std::move(gated), std::move(done))->Begin();
}

// ---- live reads

class KubeBackend::LiveRead : public std::enable_shared_from_this<LiveRead> {
 public:
  LiveRead(KubeBackend& backend, Key key, std::function<void(Status)> done)
      : backend_(backend), key_(std::move(key)), done_(std::move(done)) {}

  void Begin() {
    ListOptions one;
    one.namespace_ = key_.namespace_;
    one.field_selector = "metadata.name=" + key_.name;
    List(kJobs, one, 0,
         [](KubeBackend& backend, const std::string& name, const std::vector<Json>& items,
            Revision revision) { backend.jobs_.ReplaceGroup(name, items, revision); });
    ListOptions labelled;
    labelled.namespace_ = key_.namespace_;
    labelled.label_selector = std::string(wiring::kJobLabel) + "=" + key_.name;
    List(kPods, labelled, 1,
         [](KubeBackend& backend, const std::string& name, const std::vector<Json>& items,
            Revision revision) { backend.pods_.ReplaceGroup(name, items, revision); });
  }

 private:
  using Replace = std::function<void(KubeBackend&, const std::string&, const std::vector<Json>&, Revision)>;

  void List(const Resource& resource, const ListOptions& options, size_t part, Replace replace) {
    auto self = shared_from_this();
    backend_.client_.List(
        resource, options,
        [self, part](Json items) {
          std::vector<Json>& gathered = self->items_[part];
          if (!items.is_array()) return gathered.clear();  // the list began anew
          for (Json& item : items) gathered.push_back(std::move(item));
        },
        backend_.Guard([self, part, replace = std::move(replace)](Result<Json> result) {
          const Revision revision = result.ok() ? ParseRevision(Text(*result, "resourceVersion")) : 0;
          if (revision != 0) replace(self->backend_, self->key_.ToString(), self->items_[part], revision);
          self->Answer(revision != 0 ? Status()
                       : result.ok() ? Status(Error{Code::kInternal, "a list without a resourceVersion"})
                                     : Status(result.error()));
        }));
  }

  void Answer(Status status) {
    bool last = false;
    {
      std::lock_guard lock(mutex_);
      if (!status.ok()) status_ = std::move(status);
      last = --left_ == 0;
    }
    if (last) done_(status_);
  }

  KubeBackend& backend_;
  const Key key_;
  const std::function<void(Status)> done_;
  std::vector<Json> items_[2];  // of jobs and of pods, each written by its own list
  std::mutex mutex_;
  int left_ = 2;
  Status status_;
};

void KubeBackend::ReadThrough(const Key& key, std::function<void(Status)> done) {
  std::make_shared<LiveRead>(*this, key, std::move(done))->Begin();
}

}  // namespace ringmaster::kube
