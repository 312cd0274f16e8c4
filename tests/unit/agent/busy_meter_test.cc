// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/busy_meter.h"

#include <gtest/gtest.h>

#include "worker/agent/trainer/shared_page_memory.h"
#include "worker/agent/trainer/trainer_page.h"

namespace ringmaster::agent {
namespace {

TEST(BusyMeter, ReportsTheStepsSinceItsLastResult) {
  auto memory = SharedPageMemory::Create();
  ASSERT_TRUE(memory.ok());
  auto trainer = TrainerPage::Attach(memory->fd());
  ASSERT_TRUE(trainer.ok());
  SharedPage& page = memory->page();
  BusyMeter meter;
  Time now{};
  EXPECT_FALSE(meter.Take(page, now)) << "no step";
  trainer->SetGeneration(5);
  trainer->AddStep(milliseconds(70), 2);
  EXPECT_FALSE(meter.Take(page, now)) << "its first look at a generation";
  trainer->AddStep(milliseconds(10), 3);
  trainer->AddStep(milliseconds(20), 3);
  trainer->SetStep(12);
  EXPECT_FALSE(meter.Take(page, now + milliseconds(900)));
  now += seconds(1);
  const auto busy = meter.Take(page, now);
  ASSERT_TRUE(busy);
  EXPECT_EQ(busy->generation, 5u);
  EXPECT_EQ(busy->step, 12);
  EXPECT_EQ(busy->steps, 2);
  EXPECT_NEAR(busy->seconds, 0.015, 1e-9);
  EXPECT_NEAR(busy->longest, 0.02, 1e-9) << "the step before does not count again";
  EXPECT_EQ(busy->micro_batches, 3);
  EXPECT_FALSE(meter.Take(page, now + seconds(5))) << "no new step";
  trainer->AddStep(milliseconds(5), 3);
  EXPECT_NEAR(meter.Take(page, now + seconds(5))->longest, 0.005, 1e-9);
  trainer->AddStep(seconds(9), 3);
  trainer->SetGeneration(6);
  EXPECT_FALSE(meter.Take(page, now + seconds(9))) << "a step of the last generation";
  trainer->AddStep(milliseconds(-1), 3);  // waited for longer than the step took, as the clock has it
  EXPECT_EQ(meter.Take(page, now + seconds(99))->seconds, 0);
}

}  // namespace
}  // namespace ringmaster::agent
