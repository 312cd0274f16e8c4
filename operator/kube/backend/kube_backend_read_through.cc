// SPDX-License-Identifier: Apache-2.0

// A job and its pods at the newest revision, past the watch.
#include <utility>

#include "base/json.h"
#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::kube {

using control::Key;

class KubeBackend::ReadThroughRequest : public std::enable_shared_from_this<ReadThroughRequest> {
 public:
  ReadThroughRequest(KubeBackend& backend, Key key, std::function<void(Status)> done)
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
          const Revision revision = result.ok() ? ParseRevision(json::Text(*result, "resourceVersion")) : 0;
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
  std::make_shared<ReadThroughRequest>(*this, key, std::move(done))->Begin();
}

}  // namespace ringmaster::kube
