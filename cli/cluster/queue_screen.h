// SPDX-License-Identifier: Apache-2.0

// The text of `kubectl ringmaster queue`: the jobs that wait for nodes, in the turn in which the scheduling
// gate starts them. The order is that of operator/core/queue/room_queue.h, derived from what the jobs show:
// the operator writes no positions, so waiting costs no writes. The shares of namespaces, which the operator
// measures, and their weights are not part of it: where they decide, a position is a range. Pure functions
// over API objects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

struct QueueRow {
  int position = 0;  // from 1, at the earliest; 0: it waits for something else than room at the gate
  int last = 0;      // at the latest; above `position`: the shares of namespaces decide
  std::string namespace_;
  std::string name;
  std::string priority;  // the number, and the class if the job names one
  int64_t pods = 0;
  std::string since;  // API timestamp
  std::string why;
};

// Returns the waiting jobs: first those in the line, in their turn (by age where shares decide), then the
// others by age. `classes`: the PriorityClasses of the cluster; nullopt: they cannot be read, and every
// priority counts as 0.
std::vector<QueueRow> QueueOf(const std::vector<Json>& jobs, const std::optional<std::vector<Json>>& classes);

// Whether the turn of some rows depends on the shares of their namespaces, too.
bool SharesDecide(const std::vector<QueueRow>& rows);

// Returns the table of the rows of a namespace; an empty one stands for all. Positions count all rows.
std::string QueueScreen(const std::vector<QueueRow>& rows, const std::string& space, kube::WallTime now);

}  // namespace ringmaster::cli
