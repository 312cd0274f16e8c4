// SPDX-License-Identifier: Apache-2.0

// Read your writes: after an acknowledged write, no decision about that job from a view that has not seen it.
// Without this gate two gangs of one job can be alive at once. Single-threaded.
#pragma once

#include <algorithm>
#include <array>
#include <map>

#include "operator/control/backend.h"

namespace ringmaster::control {

class Freshness {
 public:
  void Expect(const Key& key, Kind kind, Revision revision) {
    Revision& awaited = awaited_[key][static_cast<size_t>(kind)];
    awaited = std::max(awaited, revision);
  }

  bool Fresh(const Key& key, const View& view) {
    auto it = awaited_.find(key);
    if (it == awaited_.end()) return true;
    if (view.Seen(Kind::kJob, key) < it->second[0] || view.Seen(Kind::kPod, key) < it->second[1])
      return false;
    awaited_.erase(it);
    return true;
  }

  // How far the watches have come from which news of this job is awaited, 0 for the others: changes as long
  // as they move.
  std::array<Revision, 2> Reached(const Key& key, const View& view) const {
    std::array<Revision, 2> reached{};
    const auto it = awaited_.find(key);
    if (it == awaited_.end()) return reached;
    for (const Kind kind : {Kind::kJob, Kind::kPod}) {
      const Revision seen = view.Seen(kind, key);
      if (seen < it->second[static_cast<size_t>(kind)]) reached[static_cast<size_t>(kind)] = seen;
    }
    return reached;
  }

  // After a live read, which holds all there is; or when the job is gone.
  void Forget(const Key& key) { awaited_.erase(key); }

 private:
  std::map<Key, std::array<Revision, 2>> awaited_;
};

}  // namespace ringmaster::control
