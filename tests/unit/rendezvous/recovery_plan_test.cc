// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/recovery_plan.h"

#include <gtest/gtest.h>

namespace ringmaster::rendezvous {
namespace {

struct S {
  int64_t step;  // -1: no state
  bool undo = true;
  uint64_t hash = 0;  // added to the step's own
  int64_t back = -1;  // the same of the state before, which can_roll_back leads to; -1: unknown
};

struct Case {
  const char* name;
  std::vector<S> members;
  int64_t start;
  std::vector<size_t> sources;
  std::vector<size_t> corrupt = {};
  std::vector<size_t> stale = {};
  bool fails = false;
  int64_t checkpoint = -1;
};

TEST(RecoveryPlan, Table) {
  const Case cases[] = {
      {"no member", {}, -1, {}},
      {"no state", {{-1}, {-1}}, -1, {}},
      {"all equal", {{5}, {5}, {5}}, 5, {0, 1, 2}},
      {"a joiner", {{5}, {-1}}, 5, {0}},
      {"step zero is a state", {{0}, {-1}}, 0, {0}},
      {"leader goes back", {{6}, {5}, {5}}, 5, {0, 1, 2}},
      {"leader cannot: laggards fetch", {{6, false}, {5}, {5}}, 6, {0}, {}, {1, 2}},
      {"one of two leaders cannot", {{6, false}, {6}, {5}}, 6, {0, 1}, {}, {2}},
      {"an old life", {{100}, {100}, {7}}, 100, {0, 1}, {}, {2}},
      {"a stale state and two diverged ones", {{101}, {100}, {7}}, 100, {0, 1}, {}, {2}},
      {"a corrupt one", {{5}, {5, true, 1}, {5}}, 5, {0, 2}, {1}},
      {"two corrupt ones that differ", {{5}, {5, true, 1}, {5, true, 2}, {5}}, 5, {0, 3}, {1, 2}},
      {"a corrupt leader among leaders", {{6}, {6, true, 1}, {6}, {5}}, 5, {0, 2, 3}, {1}},
      {"leaders disagree, the laggard decides", {{6}, {6, true, 1}, {5}}, 5, {2}, {0, 1}},
      {"one against one", {{5}, {5, true, 1}}, -1, {}, {}, {}, true},
      {"laggards disagree", {{6}, {5}, {5, true, 1}}, -1, {}, {}, {}, true},
      {"a leader that knows its undo decides", {{6, true, 0, 0}, {5}, {5, true, 1}}, 5, {0, 1}, {2}},
      {"a leader is good whatever the laggards have", {{6, false}, {5}, {5, true, 1}}, 6, {0}, {}, {1, 2}},
      {"the only laggard is corrupt", {{6, true, 0, 0}, {6, true, 0, 0}, {5, true, 1}}, 6, {0, 1}, {2}},
      {"a laggard against a leader", {{6, true, 0, 0}, {5, true, 1}}, -1, {}, {}, {}, true},
      {"a leader would go back to another state", {{6, true, 0, 1}, {5}, {5}}, 5, {1, 2}, {0}},
      {"a corrupt leader has no vote", {{6, true, 1, 1}, {6}, {6}, {5}}, 5, {1, 2, 3}, {0}},
      {"the checkpoint is newer", {{5}, {5}}, -1, {}, {}, {0, 1}, false, 8},
      {"the checkpoint is as new", {{5}, {5}}, 5, {0, 1}, {}, {}, false, 5},
  };
  for (const Case& c : cases) {
    std::vector<MemberStatus> statuses;
    for (const S& s : c.members) {
      MemberStatus status;
      status.has_state = s.step >= 0;
      status.step = std::max<int64_t>(s.step, 0);
      status.can_roll_back = s.undo;
      status.params_hash = static_cast<uint64_t>(s.step) * 1000 + s.hash;
      if (s.back >= 0) status.undo_params_hash = static_cast<uint64_t>((s.step - 1) * 1000 + s.back);
      statuses.push_back(status);
    }
    const RecoveryPlan plan = PlanRecovery(statuses, c.checkpoint);
    EXPECT_EQ(!plan.failure.empty(), c.fails) << c.name;
    EXPECT_EQ(!plan.differ.empty(), c.fails) << c.name;
    if (c.fails) continue;
    EXPECT_EQ(plan.start_step, c.start) << c.name;
    EXPECT_EQ(plan.sources, c.sources) << c.name;
    EXPECT_EQ(plan.corrupt, c.corrupt) << c.name;
    EXPECT_EQ(plan.stale, c.stale) << c.name;
    // The vote's hash of the state to start from; hash 0 is the right one in every case.
    EXPECT_EQ(plan.params_hash, c.start < 0 ? 0 : static_cast<uint64_t>(c.start) * 1000) << c.name;
  }
}

TEST(RecoveryPlan, OptimizerStateIsComparedToo) {
  std::vector<MemberStatus> statuses(3);
  for (MemberStatus& status : statuses) status.has_state = true;
  statuses[2].optimizer_hash = 1;
  EXPECT_EQ(PlanRecovery(statuses, -1).corrupt, std::vector<size_t>{2});
}

}  // namespace
}  // namespace ringmaster::rendezvous
