// SPDX-License-Identifier: Apache-2.0

// A synchronous client of a Kubernetes cluster for the commands of `kubectl ringmaster`. Each call sends one
// request and waits for it, except Logs, which reads several logs concurrently. Credentials, contexts and
// credential plugins are kubectl's; inside a pod, the service account of the pod.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "operator/kube/api_client.h"

namespace CLI {
class App;
}

namespace ringmaster::cli {

// The operator writes events.k8s.io/v1, which are the same objects. Kubernetes' role `view` has only these.
inline const kube::Resource kEvents{"", "v1", "events"};
// Selects the Events about a job.
inline std::string AboutJob(const std::string& name) {
  return "involvedObject.kind=TrainingJob,involvedObject.name=" + name;
}

struct ClusterFlags {
  std::vector<std::string> kubeconfig;
  std::string context;
  std::string namespace_;  // empty: the namespace of the context
};

// Adds kubectl's --namespace, --context and --kubeconfig. REQUIRES: `flags` outlives `command`.
void AddClusterFlags(CLI::App& command, ClusterFlags& flags);

// Returns "gpt" for "gpt", "tj/gpt" and "trainingjobs/gpt".
std::string JobName(const std::string& argument);

class Cluster {
 public:
  struct Container {
    std::string pod;
    std::string name;
    std::string space = {};  // empty: that of the client
  };

  static Result<std::unique_ptr<Cluster>> Connect(const ClusterFlags& flags);
  ~Cluster();

  const std::string& space() const { return namespace_; }
  const std::string& server() const { return server_; }

  // Errors: kNotFound names the namespace and the command that lists the existing jobs.
  Result<Json> Job(const std::string& name);
  // The pods of the job, newest attempt first, then by rank.
  Result<std::vector<Json>> PodsOf(const std::string& job);
  // The events about the job itself, oldest first.
  Result<std::vector<Json>> EventsOf(const std::string& job, const std::string& uid);

  // Fails unless the jobs of a namespace (empty: of all) can be listed.
  Status CheckJobs(const std::string& ns);
  // For watches. Thread-safe.
  kube::ApiClient& api() { return api_; }

  // `ns` is empty for a resource without namespaces. The other calls use space().
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name);
  Result<std::vector<Json>> List(const kube::Resource& resource, const kube::ListOptions& options);
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& name,
                          const std::string& subresource, const Json& patch);
  // Merges lists by their keys, as owner references by uid.
  Result<Json> StrategicPatch(const kube::Resource& resource, const std::string& name, const Json& patch);
  Result<Json> Create(const kube::Resource& resource, const Json& object);
  Status Delete(const kube::Resource& resource, const std::string& name,
                const kube::DeleteOptions& options = {});

  // Returns the logs of the containers, in their order, each line preceded by its time. `tail` is the number
  // of lines per container; -1: all. The number of concurrent requests is bounded, because the API server
  // connects to a node for each of them.
  std::vector<Result<std::string>> Logs(const std::vector<Container>& of, int64_t tail);
  // Streams the log of one container line by line, until the container ends or the stream is destroyed. The
  // handlers run on a thread of the transport.
  std::unique_ptr<kube::HttpStream> FollowLog(const Container& of, int64_t tail,
                                              kube::StreamHandlers handlers);

 private:
  Cluster(std::unique_ptr<kube::HttpClient> http, std::string space, std::string server);
  Error WithoutCrd(const Error& error) const;

  const std::unique_ptr<kube::HttpClient> http_;
  const std::string namespace_;
  const std::string server_;
  kube::ApiClient api_;
};

}  // namespace ringmaster::cli
