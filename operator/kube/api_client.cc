// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/api_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "operator/kube/api_error.h"
#include "operator/kube/delayed_calls.h"
#include "operator/kube/watch/lean_json.h"

namespace ringmaster::kube {
namespace {

constexpr int kPageItems = 500;
constexpr int kLeastPageItems = 1;  // the largest object fits into a page
constexpr int kMostPageItems = 2000;
constexpr int kMaxListRestarts = 3;
constexpr int kMaxTries = 6;  // for a request that the server answers with 429, 503 or a conflict of quotas
constexpr Duration kFirstDelay = milliseconds(500);
constexpr Duration kLongestDelay = seconds(30);
constexpr size_t kWarningsKept = 1000;
constexpr const char* kApplyType = "application/apply-patch+yaml";
constexpr const char* kObject = "application/json";
constexpr const char* kMetadataList =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;q=0.1";
constexpr const char* kMetadata =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.1";

// A request and its retries.
struct PendingRequest {
  HttpRequest request;
  ApiClient::Done done;
  std::string what;
  int tries = 0;
  bool new_credentials = false;  // has been retried with new credentials
};

struct Paging {
  Resource resource;
  ListOptions options;
  ApiClient::OnPage on_page;
  ApiClient::Done done;
  std::string next;  // the server's token; empty: from the start
  int items = kPageItems;
  int restarts = 0;  // after a token that expired in the middle
};

std::string WithQuery(std::string path, const std::vector<std::pair<std::string, std::string>>& pairs) {
  if (const std::string query = Query(pairs); !query.empty()) path += "?" + query;
  return path;
}

const char* Accept(ApiClient::Response response) {
  return response == ApiClient::Response::kMetadata ? kMetadata : kObject;
}

const char* ContentType(ApiClient::PatchType type) {
  switch (type) {
    case ApiClient::PatchType::kMerge:
      return "application/merge-patch+json";
    case ApiClient::PatchType::kJson:
      return "application/json-patch+json";
    case ApiClient::PatchType::kStrategic:
      return "application/strategic-merge-patch+json";
  }
  return "";
}

}  // namespace

class ApiClient::Impl : public std::enable_shared_from_this<ApiClient::Impl> {
 public:
  using OnRetry = std::function<void(const std::string& method, int status)>;
  Impl(HttpClient& http, OnRetry on_retry)
      : http_(http),
        on_retry_(std::move(on_retry)),
        jitter_(static_cast<uint64_t>(Now().time_since_epoch().count())) {}

  void Send(HttpRequest request, Done done) {
    auto pending = std::make_shared<PendingRequest>();
    pending->what = Describe(request);
    pending->request = std::move(request);
    pending->done = std::move(done);
    SendOnce(std::move(pending));
  }

  void ListPage(const std::shared_ptr<Paging>& paging) {
    const ListOptions& options = paging->options;
    HttpRequest request;
    request.target = WithQuery(paging->resource.Path(options.namespace_),
                               {{"labelSelector", options.label_selector},
                                {"fieldSelector", options.field_selector},
                                {"limit", std::to_string(paging->items)},
                                {"continue", paging->next},
                                // The continue token already contains the version.
                                {"resourceVersion", paging->next.empty() ? options.resource_version : ""}});
    if (options.metadata_only) request.accept = kMetadataList;
    Send(std::move(request),
         [self = shared_from_this(), paging](Result<Json> page) { self->OnListed(paging, std::move(page)); });
  }

  std::unique_ptr<HttpStream> Watch(HttpRequest request, std::function<void(std::string_view)> on_line,
                                    std::function<void(Status)> on_end) {
    std::string what = "watch: " + Describe(request);
    return http_.Stream(std::move(request),
                        {std::move(on_line), [self = shared_from_this(), what = std::move(what),
                                              on_end = std::move(on_end)](Result<HttpResponse> ended) {
                           if (!ended.ok()) return on_end(FromTransport(ended.error(), true, what));
                           self->LogWarnings(*ended);
                           if (ended->status < 200 || ended->status > 299)
                             return on_end(ToError(*ended, true, what));
                           on_end(Ok());
                         }});
  }

  void Stop() { later_.Stop(); }

 private:
  // Writes at the same time count against the same ResourceQuota. The server says by a conflict, which is
  // about the quota and not about the object, that this one was not stored.
  static bool IsQuotaBusy(const Error& error) {
    return error.message.find("cannot be fulfilled on resourcequotas") != std::string::npos;
  }

  static Error FromTransport(const Error& error, bool read, const std::string& what) {
    Error mapped = error.In(what);
    if (read && mapped.code == Code::kAmbiguous) mapped.code = Code::kUnavailable;
    return mapped;
  }

  void SendOnce(std::shared_ptr<PendingRequest> pending) {
    ++pending->tries;
    HttpRequest request = pending->request;
    http_.Send(std::move(request),
               [self = shared_from_this(), pending = std::move(pending)](Result<HttpResponse> answer) {
                 self->OnAnswer(pending, std::move(answer));
               });
  }

  void OnAnswer(const std::shared_ptr<PendingRequest>& pending, Result<HttpResponse> answer) {
    const bool read = IsRead(pending->request);
    if (!answer.ok()) return pending->done(FromTransport(answer.error(), read, pending->what));
    LogWarnings(*answer);
    const int status = answer->status;
    if (status >= 200 && status < 300) return OnGood(*pending, *answer, read);
    Error error = ToError(*answer, read, pending->what);
    if (status == 401 && !pending->new_credentials) {
      pending->new_credentials = true;  // the transport has dropped the old token
      if (on_retry_) on_retry_(pending->request.method, status);
      return SendOnce(pending);
    }
    const bool again = status == 429 || status == 503 || (status == 409 && IsQuotaBusy(error));
    if (!again || pending->tries >= kMaxTries) return pending->done(std::move(error));
    later_.After(DelayBefore(pending->tries, answer->retry_after),
                 [weak = weak_from_this(), pending, error, status](bool stopped) {
                   const auto self = weak.lock();
                   if (stopped || !self) return pending->done(error);
                   if (self->on_retry_) self->on_retry_(pending->request.method, status);
                   self->SendOnce(pending);
                 });
  }

  static void OnGood(const PendingRequest& pending, const HttpResponse& answer, bool read) {
    if (answer.body.empty()) return pending.done(Json::object());
    // Lists contain other controllers' objects, of any shape.
    Result<Json> json = ParseLean(answer.body);
    if (json.ok()) return pending.done(std::move(json));
    pending.done(Error{read ? Code::kUnavailable : Code::kAmbiguous,
                       pending.what + ": unreadable response: " + json.error().message});
  }

  Duration DelayBefore(int tries, std::optional<Duration> asked) {
    Duration delay = asked.value_or(kFirstDelay * (1 << std::min(tries - 1, 10)));
    MutexLock lock(mutex_);
    // Jitter: requests that were rejected together must not retry together.
    delay += Duration(static_cast<int64_t>(
        static_cast<double>(std::max<Duration>(delay, kFirstDelay).count()) * 0.5 * jitter_.Uniform()));
    return std::min(delay, kLongestDelay);
  }

  void OnListed(const std::shared_ptr<Paging>& paging, Result<Json> page) {
    if (!page.ok()) {
      if (page.error().code == Code::kExhausted && paging->items > kLeastPageItems) {
        paging->items = std::max(paging->items / 2, kLeastPageItems);
        return ListPage(paging);
      }
      if (page.error().code != Code::kGone || paging->next.empty() || paging->restarts == kMaxListRestarts)
        return paging->done(std::move(page));
      // The server has dropped the token's version, so the list cannot be completed. Fewer and larger pages
      // take less time. One page for all would need a body without a limit.
      ++paging->restarts;
      paging->items = std::min(paging->items * 2, kMostPageItems);
      paging->next.clear();
      paging->on_page(nullptr);
      return ListPage(paging);
    }
    Json list = std::move(page).value();
    if (!list.is_object() || !list.contains("items") || !list.contains("metadata") ||
        !list["metadata"].is_object())
      return paging->done(
          Error{Code::kUnavailable, "GET " + paging->resource.plural + ": the response is not a list"});
    Json items = std::move(list["items"]);
    Json metadata = std::move(list["metadata"]);
    if (items.is_null()) items = Json::array();
    if (!items.is_array())
      return paging->done(
          Error{Code::kUnavailable, "GET " + paging->resource.plural + ": items is not a list"});
    paging->on_page(std::move(items));
    const auto next = metadata.find("continue");
    if (next == metadata.end() || !next->is_string() || next->get_ref<const std::string&>().empty())
      return paging->done(std::move(metadata));
    paging->next = next->get<std::string>();
    // A few large objects must not make the pages of all others small.
    if (paging->items < kPageItems) paging->items = std::min(paging->items * 2, kPageItems);
    ListPage(paging);
  }

  void LogWarnings(const HttpResponse& response) {
    for (const std::string& warning : response.warnings) {
      {
        MutexLock lock(mutex_);
        if (warnings_.size() >= kWarningsKept || !warnings_.insert(warning).second) continue;
      }
      log::Warn("apiserver_warning={}", warning);
    }
  }

  HttpClient& http_;
  const OnRetry on_retry_;
  Mutex mutex_;
  std::set<std::string> warnings_ RM_GUARDED_BY(mutex_);  // those already logged
  SplitMix64 jitter_ RM_GUARDED_BY(mutex_);
  DelayedCalls later_;
};

ApiClient::ApiClient(HttpClient& http, std::string field_manager,
                     std::function<void(const std::string&, int)> on_retry)
    : impl_(std::make_shared<Impl>(http, std::move(on_retry))), field_manager_(std::move(field_manager)) {}
ApiClient::~ApiClient() { impl_->Stop(); }

void ApiClient::Get(const Resource& resource, const std::string& ns, const std::string& name, Done done) {
  HttpRequest request;
  request.target = resource.Path(ns, name);
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::List(const Resource& resource, const ListOptions& options, OnPage on_page, Done done) {
  auto paging = std::make_shared<Paging>();
  paging->resource = resource;
  paging->options = options;
  paging->on_page = std::move(on_page);
  paging->done = std::move(done);
  impl_->ListPage(paging);
}

void ApiClient::Create(const Resource& resource, const std::string& ns, const Json& object, Done done,
                       Response response) {
  HttpRequest request;
  request.method = "POST";
  request.accept = Accept(response);
  request.target = WithQuery(resource.Path(ns), {{"fieldManager", field_manager_}});
  request.body = DumpJson(object);
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::TryCreate(const Resource& resource, const std::string& ns, const Json& object, Done done) {
  HttpRequest request;
  request.method = "POST";
  request.accept = kMetadata;
  request.target = WithQuery(resource.Path(ns), {{"fieldManager", field_manager_}, {"dryRun", "All"}});
  request.body = DumpJson(object);
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::Apply(const Resource& resource, const std::string& ns, const std::string& name,
                      const std::string& subresource, const Json& object, bool force, Done done) {
  HttpRequest request;
  request.method = "PATCH";
  request.target = WithQuery(resource.Path(ns, name, subresource),
                             {{"fieldManager", field_manager_}, {"force", force ? "true" : ""}});
  request.body = DumpJson(object);
  request.content_type = kApplyType;
  request.accept = kMetadata;
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::Update(const Resource& resource, const std::string& ns, const std::string& name,
                       const std::string& subresource, const Json& object, Done done, Response response) {
  HttpRequest request;
  request.method = "PUT";
  request.accept = Accept(response);
  request.target = WithQuery(resource.Path(ns, name, subresource), {{"fieldManager", field_manager_}});
  request.body = DumpJson(object);
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::Patch(const Resource& resource, const std::string& ns, const std::string& name,
                      const std::string& subresource, PatchType type, const Json& body, Done done) {
  HttpRequest request;
  request.method = "PATCH";
  request.target = WithQuery(resource.Path(ns, name, subresource), {{"fieldManager", field_manager_}});
  request.body = DumpJson(body);
  request.content_type = ContentType(type);
  request.accept = kMetadata;
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                       const DeleteOptions& options, Done done) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (options.revision > 0) body["preconditions"]["resourceVersion"] = std::to_string(options.revision);
  if (options.grace_seconds >= 0) body["gracePeriodSeconds"] = options.grace_seconds;
  if (!options.propagation.empty()) body["propagationPolicy"] = options.propagation;
  HttpRequest request;
  request.method = "DELETE";
  request.accept = kMetadata;
  request.target = resource.Path(ns, name);
  request.body = DumpJson(body);
  impl_->Send(std::move(request), std::move(done));
}

void ApiClient::Raw(const std::string& target, Done done) {
  HttpRequest request;
  request.target = target;
  impl_->Send(std::move(request), std::move(done));
}

std::unique_ptr<HttpStream> ApiClient::Watch(const Resource& resource, const ListOptions& options,
                                             bool bookmarks, std::function<void(std::string_view)> on_line,
                                             std::function<void(Status)> on_end) {
  HttpRequest request;
  request.target = WithQuery(
      resource.Path(options.namespace_),
      {{"watch", "true"},
       {"allowWatchBookmarks", bookmarks ? "true" : ""},
       {"resourceVersion", options.resource_version},
       {"timeoutSeconds", options.timeout_seconds > 0 ? std::to_string(options.timeout_seconds) : ""},
       {"labelSelector", options.label_selector},
       {"fieldSelector", options.field_selector}});
  if (options.metadata_only) request.accept = kMetadata;
  return impl_->Watch(std::move(request), std::move(on_line), std::move(on_end));
}

}  // namespace ringmaster::kube
