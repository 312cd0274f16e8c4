// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/progress_log.h"

#include <gtest/gtest.h>

namespace ringmaster::trainer {
namespace {

rendezvous::StepRecord Record(int64_t step, double loss = 2.5) {
  return {step, loss, 6e-4, 1.25, 32, 4294967297, 4, 0.25};
}

class ProgressLogTest : public testing::Test {
 protected:
  std::optional<std::string> Commit(int64_t step, Duration after, int32_t micro_batches = 2) {
    now_ += after;
    return log_.Committed(Record(step), milliseconds(10 * step), micro_batches, now_);
  }

  ProgressLog log_{100};
  Time now_ = Time() + seconds(1000);
};

TEST_F(ProgressLogTest, ALineIsDueAfterTheFirstStepAfterFiveSecondsAndAfterTheLastStep) {
  log_.StartGeneration(1, "shm");
  EXPECT_EQ(
      Commit(1, {}),
      "step=1 steps=100 loss=2.5 lr=0.0006 grad_norm=1.25 samples_per_second=128 busy=0.01 longest=0.01 "
      "micro_batches=2 generation=4294967297 rank=1 world=4 transport=shm");
  EXPECT_FALSE(Commit(2, seconds(2)));
  EXPECT_FALSE(Commit(3, milliseconds(2999)));
  const auto line = Commit(4, milliseconds(1));
  ASSERT_TRUE(line);
  EXPECT_NE(line->find(" busy=0.03 longest=0.04 "), std::string::npos) << "of three steps: " << *line;
  EXPECT_FALSE(Commit(99, seconds(1)));
  EXPECT_TRUE(Commit(100, seconds(1)));
}

TEST_F(ProgressLogTest, AMembershipStartsTheSumsAgainAndCausesNoLine) {
  log_.StartGeneration(0, "shm");
  EXPECT_TRUE(Commit(1, {}));
  EXPECT_FALSE(Commit(50, seconds(1)));
  log_.StartGeneration(3, "shm");
  EXPECT_FALSE(Commit(2, seconds(1)));
  const auto line = Commit(3, seconds(3));
  ASSERT_TRUE(line);
  EXPECT_NE(line->find(" busy=0.025 longest=0.03 "), std::string::npos) << *line;
  EXPECT_NE(line->find(" rank=3 "), std::string::npos) << *line;
}

TEST_F(ProgressLogTest, AMemberWithoutMicroBatchesHasNoBusyTime) {
  log_.StartGeneration(0, "shm");
  const auto line = Commit(1, {}, 0);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->find("busy"), std::string::npos) << *line;
  EXPECT_EQ(line->find("micro_batches"), std::string::npos) << *line;
}

TEST_F(ProgressLogTest, AValidationIsInOneLine) {
  log_.StartGeneration(0, "shm");
  EXPECT_TRUE(Commit(1, {}));
  log_.Validated({1, 2.25, 0.5});
  log_.Validated({2, 2.125, std::nullopt});
  const auto line = Commit(3, seconds(5));
  ASSERT_TRUE(line);
  EXPECT_NE(line->find(" validation=2.125 validation_step=2 generation="), std::string::npos) << *line;
  const auto next = Commit(4, seconds(5));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->find("validation"), std::string::npos) << *next;
  EXPECT_EQ(log_.LastValidation({100, 2, 0.5}),
            "step=100 steps=100 validation=2 validation_step=100 accuracy=0.5");
}

}  // namespace
}  // namespace ringmaster::trainer
