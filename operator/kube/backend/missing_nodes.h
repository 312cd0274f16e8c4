// SPDX-License-Identifier: Apache-2.0

// Nodes that pods name but the cluster does not list, and since when. Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "base/time.h"

namespace ringmaster::kube {

class MissingNodes {
 public:
  // Returns since when the node is missing: `now` if it was not known to be.
  Time Since(const std::string& node, Time now) { return since_.try_emplace(node, now).first->second; }
  // The cluster lists the node. Returns whether it was missing.
  bool Found(const std::string& node) { return since_.erase(node) > 0; }
  // Forgets the nodes that no pod names. Autoscalers give each new node another name, so most missing nodes
  // never come back.
  template <typename Pods>  // std::map from a node's name
  void KeepOnly(const Pods& pods) {
    std::erase_if(since_, [&](const auto& node) { return !pods.contains(node.first); });
  }
  size_t size() const { return since_.size(); }

 private:
  std::map<std::string, Time> since_;
};

}  // namespace ringmaster::kube
