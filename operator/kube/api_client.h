// SPDX-License-Identifier: Apache-2.0

// An asynchronous client for the Kubernetes API over an HttpClient: verbs, content types, Status objects and
// pages. It does not depend on TrainingJobs.
//
// Thread-safe. `done` is called once, on a thread of the transport, and must not block or throw. REQUIRES:
// the transport outlives the client, and requests in flight end before the transport is destroyed.
//
// Objects come without metadata.managedFields (watch/lean_json.h). The result of Patch, Apply and Delete has
// only metadata, that of Create and Update where the caller asks for it.
//
// Errors, by HTTP status and the reason in the Status object:
//  404 kNotFound; 409 kAlreadyExists or kConflict; 410 kGone; 403 kForbidden; 400, 405, 415, 422 kInvalid
//  429 and 503 are retried here after Retry-After or a growing delay, a bounded number of times; then
//      kUnavailable
//  other 5xx: kAmbiguous for a write, kUnavailable for a read
//  401 is retried once with new credentials; then kForbidden
// The message is the server's, after a description of the request (`POST pods rm/x-1-0: ...`).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/http_client.h"
#include "operator/kube/resource.h"

namespace ringmaster::kube {

inline constexpr const char* kFieldManager = "ringmaster-operator";

struct ListOptions {
  std::string namespace_{};  // empty: all
  std::string label_selector{};
  std::string field_selector{};
  std::string resource_version{};  // "0": from the server's cache; empty: the newest
  bool metadata_only = false;      // PartialObjectMetadata instead of whole objects
  int32_t timeout_seconds = 0;     // time after which the server ends a watch normally; 0: the server decides
};

struct DeleteOptions {
  std::string uid{};           // precondition
  uint64_t revision = 0;       // precondition; 0: none
  int64_t grace_seconds = -1;  // -1: the object's grace period
  std::string propagation{};   // Background | Foreground | Orphan; empty: the server's default
};

class ApiClient {
 public:
  using Done = std::function<void(Result<Json>)>;
  // Called for each page of a list as it arrives; the items have no apiVersion and kind, as the server sends
  // them. `done` gets the list's metadata with its resourceVersion. A null page says that the list starts
  // again, because the server has dropped its version: discard the pages so far. Pages have 500 items, fewer
  // where these exceed the transport's limit for a body, down to one, and more after such a restart. kGone:
  // the server has dropped the version of several lists in a row.
  using OnPage = std::function<void(Json items)>;

  // `field_manager`: owner of the fields that this client writes. `on_retry` is called, on any thread, before
  // each retry, with the status of the response before.
  explicit ApiClient(HttpClient& http, std::string field_manager = kFieldManager,
                     std::function<void(const std::string& method, int status)> on_retry = nullptr);
  ~ApiClient();

  void Get(const Resource& resource, const std::string& ns, const std::string& name, Done done);
  void List(const Resource& resource, const ListOptions& options, OnPage on_page, Done done);
  // kMetadata halves the work for the server and for us. Objects that are not stored (reviews) need kObject.
  enum class Response { kObject, kMetadata };
  void Create(const Resource& resource, const std::string& ns, const Json& object, Done done,
              Response response = Response::kObject);
  // Asks whether the server would admit the object. It stores nothing.
  void TryCreate(const Resource& resource, const std::string& ns, const Json& object, Done done);
  // Server-side apply with our field manager; `subresource` may be "status". REQUIRES: the object has
  // apiVersion, kind and name.
  void Apply(const Resource& resource, const std::string& ns, const std::string& name,
             const std::string& subresource, const Json& object, bool force, Done done);
  // PUT, for objects that only the operator writes (Lease, a job's status). REQUIRES: the object has its
  // resourceVersion.
  void Update(const Resource& resource, const std::string& ns, const std::string& name,
              const std::string& subresource, const Json& object, Done done,
              Response response = Response::kObject);
  enum class PatchType { kMerge, kJson, kStrategic };
  void Patch(const Resource& resource, const std::string& ns, const std::string& name,
             const std::string& subresource, PatchType type, const Json& body, Done done);
  void Delete(const Resource& resource, const std::string& ns, const std::string& name,
              const DeleteOptions& options, Done done);
  // GETs any path, for discovery ("/apis", "/version").
  void Raw(const std::string& target, Done done);

  // Starts a watch: `on_line` gets JSON lines {"type","object"}. `on_end` gets Ok for a normal end, else an
  // error as above.
  std::unique_ptr<HttpStream> Watch(const Resource& resource, const ListOptions& options, bool bookmarks,
                                    std::function<void(std::string_view)> on_line,
                                    std::function<void(Status)> on_end);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
  const std::string field_manager_;
};

}  // namespace ringmaster::kube
