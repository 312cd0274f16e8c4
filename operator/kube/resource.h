// SPDX-License-Identifier: Apache-2.0

// API resources and their URL paths. Pure values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringmaster::kube {

// A collection: {"", "v1", "pods"} or {"ringmaster.dev", "v1alpha1", "trainingjobs"}.
struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;

  // Returns for example "/api/v1/namespaces/default/pods/x/status", with percent-encoded parts. An empty
  // namespace means all namespaces or a cluster-wide kind, an empty name the collection, an empty subresource
  // the object.
  std::string Path(const std::string& namespace_, const std::string& name = {},
                   const std::string& subresource = {}) const;
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  bool operator==(const Resource&) const = default;
};

// Returns "a=b&c=d" with percent-encoded values, in the order of `pairs`. Leaves out pairs with an empty
// value.
std::string Query(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace ringmaster::kube
