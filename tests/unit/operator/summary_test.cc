#include "operator/core/summary.h"

#include <gtest/gtest.h>

namespace ringmaster::core {
namespace {

TEST(Summary, AGenerationThatWasRecordedIsNotTakenBack) {
  Observed observed;
  observed.status.display.gang_generation = (uint64_t{3} << 32) | 7;
  observed.report.emplace();  // of a coordinator that has just begun
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{3} << 32) | 7);
  observed.report->generation = (uint64_t{4} << 32) | 1;
  EXPECT_EQ(Summarize(observed, {}, Time{}).gang_generation, (uint64_t{4} << 32) | 1);
}

}  // namespace
}  // namespace ringmaster::core
