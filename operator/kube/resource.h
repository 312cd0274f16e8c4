// SPDX-License-Identifier: Apache-2.0

// Names of API resources and the paths they have. Pure values.
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

  // "/api/v1/namespaces/default/pods/x/status". Empty namespace: all of them, or a cluster-wide kind; empty
  // name: the collection; empty subresource: the object. Parts are percent-encoded.
  std::string Path(const std::string& namespace_, const std::string& name = {},
                   const std::string& subresource = {}) const;
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  bool operator==(const Resource&) const = default;
};

// "a=b&c=d" with values percent-encoded, from pairs in order; pairs with an empty value are left out.
std::string Query(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace ringmaster::kube
