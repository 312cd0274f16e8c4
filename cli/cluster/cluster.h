// SPDX-License-Identifier: Apache-2.0

// A Kubernetes cluster as the commands of `kubectl ringmaster` use it: one request after the other, each
// waited for, but for logs, of which there may be many. Credentials, contexts and plugins are those of
// kubectl; inside a pod, the pod's own.
//
// One thread at a time.
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

struct ClusterFlags {
  std::vector<std::string> kubeconfig;
  std::string context;
  std::string namespace_;  // empty: the context's
};

// --namespace, --context and --kubeconfig, as kubectl has them. `flags` must outlive the command.
void AddClusterFlags(CLI::App& command, ClusterFlags& flags);

// "gpt" of "gpt", "tj/gpt" and "trainingjobs/gpt".
std::string JobName(const std::string& argument);

class Cluster {
 public:
  struct Container {
    std::string pod;
    std::string name;
  };

  static Result<std::unique_ptr<Cluster>> Connect(const ClusterFlags& flags);
  ~Cluster();

  const std::string& space() const { return namespace_; }
  const std::string& server() const { return server_; }

  // kNotFound says in which namespace was looked, and how to see what is there.
  Result<Json> Job(const std::string& name);
  // Of the job, its newest attempt first, then by rank.
  Result<std::vector<Json>> PodsOf(const std::string& job);
  // About the job itself, oldest first.
  Result<std::vector<Json>> EventsOf(const std::string& job, const std::string& uid);

  // In `ns`; empty for what has no namespace.
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name);
  Result<std::vector<Json>> List(const kube::Resource& resource, const kube::ListOptions& options);
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& name,
                          const std::string& subresource, const Json& patch);
  Result<Json> Create(const kube::Resource& resource, const Json& object);
  Status Delete(const kube::Resource& resource, const std::string& name);

  // What these containers have said, in their order, each line with its time before it; of each `tail` lines
  // at most. Some are read at the same time: the API server asks a node for each.
  std::vector<Result<std::string>> Logs(const std::vector<Container>& of, int64_t tail);
  // The same of one, and what comes after it, line by line on a thread of the transport, until the container
  // ends or the stream is destroyed.
  std::unique_ptr<kube::HttpStream> FollowLog(const Container& of, int64_t tail,
                                              kube::StreamHandlers handlers);

 private:
  Cluster(std::unique_ptr<kube::HttpClient> http, std::string space, std::string server);

  const std::unique_ptr<kube::HttpClient> http_;
  const std::string namespace_;
  const std::string server_;
  kube::ApiClient api_;
};

}  // namespace ringmaster::cli
