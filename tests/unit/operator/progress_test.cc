// SPDX-License-Identifier: Apache-2.0

// What many jobs that train at once cost the API server: the controller with the real decisions, in virtual
// time, on a view that takes every write at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "operator/control/controller.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::control {
namespace {

class World final : public View {
 public:
  std::optional<Snapshot> Observe(const Key& key) const override {
    const auto it = jobs.find(key);
    return it == jobs.end() ? std::nullopt : std::optional(Snapshot{it->second, revision});
  }
  Revision Seen(Kind, const Key&) const override { return revision; }
  std::vector<Key> Keys() const override { return {}; }

  std::map<Key, core::Observed> jobs;
  Revision revision = 1;
};

class ManyJobs : public testing::Test {
 protected:
  static constexpr int kJobs = 1000;

  void SetUp() override {
    for (int i = 0; i < kJobs; ++i) {
      core::Observed& observed = world_.jobs[Key{"ml", "job-" + std::to_string(i)}];
      observed = core::RunningWorld(2);
      Settle(observed, now_);
    }
  }
  void Carry(std::vector<Command> commands) {
    while (!commands.empty()) {
      for (const Command& command : commands) {
        const auto* write = std::get_if<DoWrite>(&command);
        ASSERT_NE(write, nullptr);
        const auto& set = std::get<core::SetStatus>(write->write.action);
        world_.jobs.at(write->write.key).status = set.status;
        writes_[write->write.key] += 1;
        controller_.On(WriteDone{write->id, ++world_.revision}, now_);
      }
      commands = controller_.TakeCommands(now_);
    }
  }
  // All jobs commit steps and report it, as a backend notifies of progress.
  void Train(Duration span) {
    const Time end = now_ + span;
    for (Time report_at = now_; now_ < end;) {
      if (now_ >= report_at) {
        report_at += seconds(5);
        for (auto& [key, observed] : world_.jobs) {
          observed.report->step += 1;
          controller_.On(Changed{key}, now_);
        }
      }
      Carry(controller_.TakeCommands(now_));
      now_ = std::max(now_, std::min(controller_.NextWakeup(), report_at));
    }
  }

  Time now_ = core::kT0;
  World world_;
  Controller controller_{world_, {}};
  std::map<Key, int> writes_;
};

TEST_F(ManyJobs, WriteTheirProgressWithinOneBudgetAndFairly) {
  Train(seconds(300));
  int total = 0;
  int least = 1 << 30;
  int most = 0;
  for (const auto& [key, count] : writes_) {
    total += count;
    least = std::min(least, count);
    most = std::max(most, count);
  }
  EXPECT_EQ(writes_.size(), size_t{kJobs});
  EXPECT_LE(total, 300 * 20 + 20) << "20 per second for all jobs, whatever their number";
  EXPECT_GE(total, 300 * 20 * 9 / 10) << "the budget is used";
  EXPECT_LE(most - least, 1) << "the jobs take turns";
}

TEST_F(ManyJobs, AFailureOrANewPhaseIsWrittenAtOnce) {
  Train(seconds(60));
  writes_.clear();
  const Key key{"ml", "job-7"};
  world_.jobs.at(key).report->generation += 1;
  controller_.On(Changed{key}, now_);
  Carry(controller_.TakeCommands(now_));
  EXPECT_EQ(writes_.at(key), 1);
}

TEST_F(ManyJobs, AFewJobsWriteOncePerInterval) {
  while (world_.jobs.size() > 3) world_.jobs.erase(world_.jobs.begin());
  Train(seconds(60));
  for (const auto& [key, count] : writes_) EXPECT_GE(count, 10) << "every 5 s";
}

}  // namespace
}  // namespace ringmaster::control
