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
    for (const Kind kind : kAll)
      if (const Revision awaited = it->second[static_cast<size_t>(kind)];
          awaited > 0 && view.Seen(kind, key) < awaited)
        return false;
    awaited_.erase(it);
    return true;
  }

  // Returns the revisions that the awaited watches have reached, 0 for the others. The result changes as long
  // as these watches make progress.
  std::array<Revision, kKinds> Reached(const Key& key, const View& view) const {
    std::array<Revision, kKinds> reached{};
    const auto it = awaited_.find(key);
    if (it == awaited_.end()) return reached;
    for (const Kind kind : kAll) {
      if (it->second[static_cast<size_t>(kind)] == 0) continue;
      const Revision seen = view.Seen(kind, key);
      if (seen < it->second[static_cast<size_t>(kind)]) reached[static_cast<size_t>(kind)] = seen;
    }
    return reached;
  }

  // Stops waiting: after a live read, which includes everything, or when the job is gone.
  void Forget(const Key& key) { awaited_.erase(key); }

 private:
  static constexpr Kind kAll[] = {Kind::kJob, Kind::kPod, Kind::kWorkload};

  std::map<Key, std::array<Revision, kKinds>> awaited_;
};

}  // namespace ringmaster::control
