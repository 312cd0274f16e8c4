// SPDX-License-Identifier: Apache-2.0

// Requests of the Kubernetes API, asynchronous, over an HttpClient. Knows verbs, content types, Status
// objects and pages; knows nothing about TrainingJobs.
//
// Threads: all members from any thread; `done` comes on a thread of the transport, once, and must neither
// block nor throw. The transport must outlive the client, and requests in flight end before it is destroyed.
//
// Objects come without metadata.managedFields (watch/lean_json.h). Of what Patch, Apply and Delete did, the
// answer has only the metadata; of Create and Update where that is asked for.
//
// Errors: Code by HTTP status and the reason of the Status object: 404 kNotFound; 409 kAlreadyExists or
// kConflict; 410 kGone; 403 kForbidden; 400/405/415/422 kInvalid; 429 and 503 are tried again here, after
// Retry-After or a growing delay, a bounded number of times, then kUnavailable; 504 and other 5xx of a write
// kAmbiguous, of a read kUnavailable; 401 once more with the credentials read again, then kForbidden. The
// message is the server's, with what was asked
// (`POST pods rm/x-1-0: ...`).
#pragma once

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
  int32_t timeout_seconds = 0;  // of a watch: after so long the server ends it in good order; 0: its choice
};

struct DeleteOptions {
  std::string uid{};           // precondition
  int64_t grace_seconds = -1;  // -1: the object's own
  std::string propagation{};   // Background | Foreground | Orphan; empty: the default
};

class ApiClient {
 public:
  using Done = std::function<void(Result<Json>)>;
  // Every page of a list is given to `on_page` as it comes (items with apiVersion and kind absent, as the
  // server leaves them); `done` gets the list's metadata with the resourceVersion of the whole. A null page
  // means that the list had to begin anew, because the server forgot the version it was of: what came before
  // counts no more.
  using OnPage = std::function<void(Json items)>;

  // `field_manager`: whose fields those become that are written. `on_retry`: told of each request that is
  // sent once more, with the status of the answer before. Any thread.
  explicit ApiClient(HttpClient& http, std::string field_manager = kFieldManager,
                     std::function<void(const std::string& method, int status)> on_retry = nullptr);
  ~ApiClient();

  void Get(const Resource& resource, const std::string& ns, const std::string& name, Done done);
  void List(const Resource& resource, const ListOptions& options, OnPage on_page, Done done);  // pages of 500
  // Of a stored object its metadata are mostly enough, and are half the work for the server and for us. What
  // is answered and not stored (a review) has none.
  enum class Response { kObject, kMetadata };
  void Create(const Resource& resource, const std::string& ns, const Json& object, Done done,
              Response response = Response::kObject);
  // Server-side apply with our field manager; `subresource` may be "status". The object needs apiVersion,
  // kind, name.
  void Apply(const Resource& resource, const std::string& ns, const std::string& name,
             const std::string& subresource, const Json& object, bool force, Done done);
  // PUT, for what is ours alone (Lease, a job's status): the object carries its resourceVersion.
  void Update(const Resource& resource, const std::string& ns, const std::string& name,
              const std::string& subresource, const Json& object, Done done,
              Response response = Response::kObject);
  enum class PatchType { kMerge, kJson, kStrategic };
  void Patch(const Resource& resource, const std::string& ns, const std::string& name,
             const std::string& subresource, PatchType type, const Json& body, Done done);
  void Delete(const Resource& resource, const std::string& ns, const std::string& name,
              const DeleteOptions& options, Done done);
  // GET of any path, for discovery ("/apis", "/version").
  void Raw(const std::string& target, Done done);

  // A watch: `on_line` gets JSON lines {"type","object"}. Ends are those of HttpClient::Stream, mapped to
  // errors as above; a good end is Ok.
  std::unique_ptr<HttpStream> Watch(const Resource& resource, const ListOptions& options, bool bookmarks,
                                    std::function<void(std::string_view)> on_line,
                                    std::function<void(Status)> on_end);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
  const std::string field_manager_;
};

}  // namespace ringmaster::kube
