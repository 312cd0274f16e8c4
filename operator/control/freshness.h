// SPDX-License-Identifier: Apache-2.0

// Freshness: read-your-writes. After an acknowledged write, no decision about that job uses a view that does
// not include it. Without this gate two gangs of one job could run at once. Not thread-safe.
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

  // Returns the revisions that the awaited watches have reached, 0 for the others. The result changes as long
  // as these watches make progress.
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

  // Stops waiting: after a live read, which includes everything, or when the job is gone.
  void Forget(const Key& key) { awaited_.erase(key); }

 private:
  std::map<Key, std::array<Revision, 2>> awaited_;
};

}  // namespace ringmaster::control
