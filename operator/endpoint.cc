// SPDX-License-Identifier: Apache-2.0

#include "operator/endpoint.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "operator/control/backoff.h"

namespace ringmaster::operator_main {
namespace {

const kube::Resource kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices"};
constexpr Duration kLongestDelay = seconds(5);        // between attempts: agents wait for the slice
constexpr Duration kRepairPause = milliseconds(250);  // a controller that edits the slice costs 4 writes/s
constexpr Duration kLeaseCheck = seconds(1);

// Whether `current` has every field of `wanted`; arrays are compared as a whole.
bool Contains(const Json& current, const Json& wanted) {
  if (wanted.is_object()) {
    if (!current.is_object()) return false;
    for (const auto& [key, value] : wanted.items()) {
      const auto found = current.find(key);
      if (found == current.end() || !Contains(*found, value)) return false;
    }
    return true;
  }
  if (wanted.is_array()) {
    if (!current.is_array() || current.size() != wanted.size()) return false;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!Contains(current[i], wanted[i])) return false;
    return true;
  }
  return current == wanted;
}

}  // namespace

Json EndpointSliceFor(const std::string& service, const std::string& namespace_, const std::string& ip,
                      uint16_t port) {
  const bool is_v6 = ip.find(':') != std::string::npos;
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata",
           {{"name", service},
            {"namespace", namespace_},
            {"labels",
             {{"kubernetes.io/service-name", service},
              {"endpointslice.kubernetes.io/managed-by", "ringmaster-operator"}}}}},
          {"addressType", is_v6 ? "IPv6" : "IPv4"},
          {"endpoints", Json::array({{{"addresses", Json::array({ip})}, {"conditions", {{"ready", true}}}}})},
          {"ports", Json::array({{{"name", "rendezvous"}, {"port", port}, {"protocol", "TCP"}}})}};
}

SliceRepair RepairOf(const Json& current, const Json& wanted) {
  if (current.is_null()) return SliceRepair::kApply;
  if (json::Text(current, "addressType") != json::Text(wanted, "addressType")) return SliceRepair::kReplace;
  for (const char* part : {"endpoints", "ports"})
    if (!Contains(json::Child(current, part), json::Child(wanted, part))) return SliceRepair::kApply;
  const Json& labels = json::Child(json::Child(wanted, "metadata"), "labels");
  return Contains(json::Child(json::Child(current, "metadata"), "labels"), labels) ? SliceRepair::kNone
                                                                                   : SliceRepair::kApply;
}

// The slice as the API server has it, and the writes. Requests in flight share it, since they may outlive the
// publisher. The transport's threads and the reflectors' thread call it.
class EndpointPublisher::Slice final : public kube::ReflectorSink,
                                       public std::enable_shared_from_this<Slice> {
 public:
  Slice(kube::ApiClient& api, Options options)
      : api_(api),
        options_(std::move(options)),
        wanted_(EndpointSliceFor(options_.service, options_.namespace_, options_.ip, options_.port)) {}

  void SetWake(std::function<void()> wake) {
    MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }

  std::string Problem() const {
    MutexLock lock(mutex_);
    if (RepairOf(current_, wanted_) == SliceRepair::kNone) return {};
    return "the EndpointSlice " + options_.service + " does not lead to this leader" +
           (error_.empty() ? "" : ": " + error_);
  }

  // Sends the write that is due. Returns when the next turn is. Only the reflectors' thread calls it.
  Time Turn(Time now) {
    const bool leads = options_.may_write();
    SliceRepair repair = SliceRepair::kNone;
    std::string uid;
    {
      MutexLock lock(mutex_);
      repair = RepairOf(current_, wanted_);
      if (writing_ || repair == SliceRepair::kNone) return kNever;
      if (now < not_before_) return not_before_;
      if (!leads) {
        error_ = "the Lease is not renewed";
        return now + kLeaseCheck;
      }
      writing_ = true;
      uid = json::Text(json::Child(current_, "metadata"), "uid");
    }
    const auto done = [self = shared_from_this(), repair](const Result<Json>& result) {
      self->OnWritten(repair, result);
    };
    if (repair == SliceRepair::kApply) {
      api_.Apply(kEndpointSlices, options_.namespace_, options_.service, "", wanted_, true, done);
    } else {
      kube::DeleteOptions precondition;
      precondition.uid = uid;
      api_.Delete(kEndpointSlices, options_.namespace_, options_.service, precondition, done);
    }
    return kNever;
  }

  // ---- what the reflector lists and watches
  void Begin() override { listed_ = nullptr; }
  void Item(const Json& object) override { listed_ = object; }
  void End(kube::Revision revision) override { Observe(std::exchange(listed_, nullptr), revision); }
  void Apply(const Json& object, kube::Revision revision) override { Observe(object, revision); }
  void Delete(const Json&, kube::Revision revision) override { Observe(nullptr, revision); }
  void Bookmark(kube::Revision) override {}

 private:
  // What is older than the last write does not count.
  void Observe(Json object, kube::Revision revision) {
    MutexLock lock(mutex_);
    if (revision < revision_) return;
    revision_ = revision;
    const bool was_ours = RepairOf(current_, wanted_) == SliceRepair::kNone;
    current_ = std::move(object);
    if (RepairOf(current_, wanted_) == SliceRepair::kNone) return;
    if (was_ours)
      log::Warn("service={} endpoint=changed: it does not lead to this leader any more", options_.service);
    if (wake_) wake_();
  }

  void OnWritten(SliceRepair repair, const Result<Json>& result) {
    MutexLock lock(mutex_);
    writing_ = false;
    const bool gone = repair == SliceRepair::kReplace && !result.ok() &&
                      (result.error().code == Code::kNotFound || result.error().code == Code::kConflict);
    if (!result.ok() && !gone) {
      error_ = result.error().message;
      not_before_ = Now() + std::min(backoff_.Next(0), kLongestDelay);
      log::Error("service={} endpoint=unpublished: agents cannot find this leader; error={}",
                 options_.service, error_);
    } else {
      error_.clear();
      backoff_.Reset(0);
      not_before_ = Now() + kRepairPause;
      if (repair == SliceRepair::kReplace) {
        current_ = nullptr;
      } else {
        current_ = wanted_;
        revision_ = std::max(revision_, kube::ParseRevision(json::Text(
                                            json::Child(result.value(), "metadata"), "resourceVersion")));
        log::Info("service={} endpoint={} port={} published=true", options_.service, options_.ip,
                  options_.port);
      }
    }
    if (wake_) wake_();
  }

  kube::ApiClient& api_;
  const Options options_;
  const Json wanted_;
  Json listed_;  // while a list arrives; the reflector calls one at a time
  mutable Mutex mutex_;
  std::function<void()> wake_ RM_GUARDED_BY(mutex_);  // null: the publisher has ended
  Json current_ RM_GUARDED_BY(mutex_);                // null: no slice, or not known yet
  kube::Revision revision_ RM_GUARDED_BY(mutex_) = 0;
  bool writing_ RM_GUARDED_BY(mutex_) = false;
  Time not_before_ RM_GUARDED_BY(mutex_) = Time::min();
  std::string error_ RM_GUARDED_BY(mutex_);
  control::Backoff<int> backoff_ RM_GUARDED_BY(mutex_){std::hash<std::string>()(options_.ip)};
};

EndpointPublisher::EndpointPublisher(kube::ApiClient& api, Options options)
    : slice_(std::make_shared<Slice>(api, options)),
      reflectors_(api, options.watcher, [slice = slice_](Time now) { return slice->Turn(now); }) {
  kube::Collection collection;
  collection.resource = kEndpointSlices;
  collection.namespace_ = options.namespace_;
  collection.field_selector = "metadata.name=" + options.service;  // the operator may read no other slice
  collection.on_failure = [](const Error& error) {
    log::Warn("watch={} error={}", kEndpointSlices.plural, error.message);
  };
  reflectors_.Add(std::move(collection), *slice_);
  slice_->SetWake([this] { reflectors_.Wake(); });
  reflectors_.Start();
}

EndpointPublisher::~EndpointPublisher() {
  slice_->SetWake(nullptr);
  reflectors_.Stop();
}

std::string EndpointPublisher::Problem() const {
  if (std::string problem = slice_->Problem(); !problem.empty()) return problem;
  const std::vector<std::string> problems = reflectors_.Problems();
  return problems.empty() ? std::string() : problems[0];
}

}  // namespace ringmaster::operator_main
