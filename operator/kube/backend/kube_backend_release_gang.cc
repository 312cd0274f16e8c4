// SPDX-License-Identifier: Apache-2.0

// Taking the gates of a gang away, once there is room for all of it.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "operator/kube/backend/answers.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::kube {
namespace {

constexpr size_t kMostInFlight = 32;  // requests for one gang

}  // namespace

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
      backend_.CapacityChanged();  // others may have waited for it
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

void KubeBackend::Perform(const Job& job, const control::Write& write, const core::ReleaseGang& action,
                          Done done) {
  std::deque<core::PodRef> gated;
  std::vector<std::string> uids;
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
  const std::vector<std::string> beside = NodesOf(*job, action.attempt);
  if (shape) {
    std::lock_guard lock(mutex_);
    if (!capacity_.Reserve(uids, shape, beside))
      return done(Error{Code::kConflict, fmt::format("there is no room for {} pods of {} any more",
                                                     uids.size(), write.key.ToString())});
  }
  std::make_shared<Release>(*this, write.key.namespace_, std::move(gated), std::move(done))->Begin();
}

}  // namespace ringmaster::kube
