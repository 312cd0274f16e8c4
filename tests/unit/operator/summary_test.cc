// SPDX-License-Identifier: Apache-2.0

#include "operator/core/summary.h"

#include <gtest/gtest.h>

#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

TEST(Summary, TheRecordedGenerationNeverDecreases) {
  Observed observed;
  observed.status.display.gang_generation = (uint64_t{3} << 32) | 7;
  observed.report.emplace();  // of a coordinator that has just begun
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{3} << 32) | 7);
  observed.report->generation = (uint64_t{4} << 32) | 1;
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{4} << 32) | 1);
}

TEST(Summary, AFailedCheckpointDegradesTheJob) {
  Observed observed = RunningWorld(2, true);
  observed.report->checkpoint_failure = "write /checkpoints/x: No space left on device; free space there";
  const Condition degraded = Summarize(observed, observed.status.ledger, kT0).Of(ConditionType::kDegraded);
  EXPECT_EQ(degraded.truth, Truth::kTrue);
  EXPECT_EQ(degraded.reason, Reason::kCheckpointFailing);
  EXPECT_NE(degraded.message.find("free space there"), std::string::npos);
  observed.report->checkpoint_failure.clear();
  EXPECT_EQ(Summarize(observed, observed.status.ledger, kT0).Of(ConditionType::kDegraded).reason,
            Reason::kAsWished);
}

}  // namespace
}  // namespace ringmaster::core
