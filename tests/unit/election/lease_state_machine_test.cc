// SPDX-License-Identifier: Apache-2.0

// The state machine by tables, and many of them with one Lease under random delays and losses.
#include "operator/election/lease_state_machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace ringmaster::election {
namespace {

using Step = LeaseStateMachine::Step;

Time At(int64_t ms) { return Time{} + milliseconds(ms); }

LeaseStateMachine Make(const std::string& identity, uint64_t seed = 1) {
  LeaseStateMachine::Options options;
  options.identity = identity;
  options.seed = seed;
  return LeaseStateMachine(options);
}

TEST(LeaseStateMachine, CreatesAMissingLease) {
  LeaseStateMachine a = Make("a");
  EXPECT_EQ(a.Next(At(0)).step, Step::kRead);
  a.OnRead(std::nullopt, At(1));
  auto todo = a.Next(At(1));
  ASSERT_EQ(todo.step, Step::kWrite);
  EXPECT_EQ(todo.record.revision, "");
  EXPECT_EQ(todo.record.transitions, 1);
  EXPECT_FALSE(a.Leading(At(1)));
  todo.record.revision = "1";
  a.OnWritten(todo.record, At(5));
  EXPECT_TRUE(a.Leading(At(5)));
  EXPECT_EQ(a.term(), 1);
}

TEST(LeaseStateMachine, ForeignClocksDoNotCount) {
  LeaseStateMachine b = Make("b");
  b.Next(At(0));
  b.OnRead(LeaseRecord{"a", seconds(15), 3, "7"}, At(100));
  // The record is valid for 15 s after we first saw it.
  Time now = At(100);
  for (;;) {
    auto todo = b.Next(now);
    if (todo.step == Step::kWait) {
      ASSERT_GT(todo.until, now);
      now = todo.until;
      continue;
    }
    if (todo.step == Step::kWrite) {
      EXPECT_EQ(todo.record.transitions, 4);
      EXPECT_EQ(todo.record.revision, "7");
      break;
    }
    b.OnRead(LeaseRecord{"a", seconds(15), 3, "7"}, now);
  }
  EXPECT_GE(now, At(15'100));
  EXPECT_LE(now, At(15'100 + 2'500));
}

TEST(LeaseStateMachine, ReleasedLeaseIsTakenAtOnce) {
  LeaseStateMachine b = Make("b");
  b.Next(At(0));
  b.OnRead(LeaseRecord{"", seconds(1), 3, "9"}, At(10));
  const auto todo = b.Next(At(10));
  ASSERT_EQ(todo.step, Step::kWrite);
  EXPECT_EQ(todo.record.transitions, 4);
}

TEST(LeaseStateMachine, LeadershipEndsAtTheRenewDeadlineFromTheStartOfTheWrite) {
  LeaseStateMachine a = Make("a");
  a.Next(At(0));
  a.OnRead(std::nullopt, At(0));
  auto todo = a.Next(At(1000));
  ASSERT_EQ(todo.step, Step::kWrite);
  todo.record.revision = "1";
  a.OnWritten(todo.record, At(4000));  // a slow response
  EXPECT_TRUE(a.Leading(At(10'999)));
  EXPECT_FALSE(a.Leading(At(11'000)));
  a.Next(At(11'000));
  EXPECT_TRUE(a.lost());
  EXPECT_EQ(a.Next(At(50'000)).step, Step::kWait);
}

TEST(LeaseStateMachine, LostResponseKeepsTheTerm) {
  LeaseStateMachine a = Make("a");
  a.Next(At(0));
  a.OnRead(std::nullopt, At(0));
  auto todo = a.Next(At(0));
  a.OnFailed(At(3000));  // executed, but the response is lost
  EXPECT_FALSE(a.Leading(At(3000)));
  const Time later = At(6000);
  EXPECT_EQ(a.Next(later).step, Step::kRead);
  todo.record.revision = "1";
  a.OnRead(todo.record, later);
  const auto again = a.Next(later);
  ASSERT_EQ(again.step, Step::kWrite);
  EXPECT_EQ(again.record.transitions, 1);
}

TEST(LeaseStateMachine, AnotherHolderEndsTheLeadership) {
  LeaseStateMachine a = Make("a");
  a.Next(At(0));
  a.OnRead(std::nullopt, At(0));
  auto todo = a.Next(At(0));
  todo.record.revision = "1";
  a.OnWritten(todo.record, At(0));
  a.Next(At(3000));
  a.OnFailed(At(3001));
  EXPECT_EQ(a.Next(At(6000)).step, Step::kRead);
  a.OnRead(LeaseRecord{"b", seconds(15), 2, "5"}, At(6001));
  EXPECT_TRUE(a.lost());
  EXPECT_FALSE(a.Leading(At(6001)));
  EXPECT_FALSE(a.Release().has_value());
}

TEST(LeaseStateMachine, ReleaseKeepsTheTermAndEndsTheLeadership) {
  LeaseStateMachine a = Make("a");
  a.Next(At(0));
  a.OnRead(LeaseRecord{"", seconds(1), 6, "2"}, At(0));
  auto todo = a.Next(At(0));
  todo.record.revision = "3";
  a.OnWritten(todo.record, At(0));
  const auto release = a.Release();
  ASSERT_TRUE(release.has_value());
  EXPECT_EQ(release->holder, "");
  EXPECT_EQ(release->transitions, 7);
  EXPECT_EQ(release->revision, "3");
  EXPECT_FALSE(a.Leading(At(1)));
}

// One Lease with optimistic locking; requests are late, lost before, or lost after execution.
class World {
 public:
  explicit World(uint64_t seed) : rng_(seed) {
    for (const char* name : {"a", "b", "c"})
      electors_.push_back({name, std::make_unique<LeaseStateMachine>(Options(name))});
  }

  // Never two leaders, terms never fall, and after the faults one leads.
  void Run() {
    for (int64_t ms = 0; ms < 300'000; ms += 100) {
      now_ = At(ms);
      faults_ = ms < 200'000;
      for (auto& candidate : electors_) Advance(candidate);
      int leading = 0;
      for (auto& candidate : electors_) {
        if (candidate.elector->Leading(now_)) {
          ++leading;
          ASSERT_GE(candidate.elector->term(), highest_term_);
          highest_term_ = candidate.elector->term();
        }
      }
      ASSERT_LE(leading, 1) << "at " << ms << " ms";
      led_ = leading == 1;
    }
    EXPECT_TRUE(led_) << "no candidate leads at the end";
  }

 private:
  struct Candidate {
    std::string name;
    std::unique_ptr<LeaseStateMachine> elector;
    std::optional<LeaseStateMachine::Action> request = std::nullopt;
    Time arrives{};  // at the server
    Time answers{};
    bool done = false;
    std::optional<std::optional<LeaseRecord>> answer = std::nullopt;  // unset: failed
    Time asleep_until{};
    int restarts = 0;
  };

  LeaseStateMachine::Options Options(const std::string& name) {
    LeaseStateMachine::Options options;
    options.identity = name;
    options.seed = rng_.Next();
    return options;
  }

  void Advance(Candidate& c) {
    if (c.request && !c.done && now_ >= c.arrives) Serve(c);
    if (faults_ && rng_.Chance(0.0005))
      c.asleep_until = now_ + milliseconds(static_cast<int64_t>(rng_.Below(30'000)));
    if (now_ < c.asleep_until) return;
    if (c.elector->lost()) {
      // The process exits and another one starts.
      const std::string name = c.name.substr(0, 1) + std::to_string(++c.restarts);
      c = Candidate{name,         std::make_unique<LeaseStateMachine>(Options(name)),
                    std::nullopt, {},
                    {},           false,
                    std::nullopt, {},
                    c.restarts};
    }
    if (c.request && c.done && now_ >= c.answers) {
      const auto todo = *std::exchange(c.request, std::nullopt);
      if (!c.answer)
        c.elector->OnFailed(now_);
      else if (todo.step == Step::kRead)
        c.elector->OnRead(*c.answer, now_);
      else
        c.elector->OnWritten(**c.answer, now_);
    }
    if (c.request) {
      c.elector->Next(now_);  // detects that its leadership has ended
      return;
    }
    auto todo = c.elector->Next(now_);
    if (todo.step == Step::kWait) return;
    c.request = todo;
    c.done = false;
    c.arrives =
        now_ + milliseconds(faults_ && rng_.Chance(0.1) ? static_cast<int64_t>(rng_.Below(12'000)) : 50);
  }

  void Serve(Candidate& c) {
    c.done = true;
    c.answer.reset();
    c.answers =
        now_ + milliseconds(faults_ && rng_.Chance(0.1) ? static_cast<int64_t>(rng_.Below(8'000)) : 50);
    if (faults_ && rng_.Chance(0.1)) return;  // not delivered
    if (c.request->step == Step::kRead) {
      c.answer = lease_;
    } else if (c.request->record.revision == (lease_ ? lease_->revision : "")) {
      lease_ = c.request->record;
      lease_->revision = std::to_string(++revision_);
      c.answer = lease_;
      if (faults_ && rng_.Chance(0.1)) c.answer.reset();  // the response is lost
    }
  }

  SplitMix64 rng_;
  std::vector<Candidate> electors_;
  std::optional<LeaseRecord> lease_;
  int64_t revision_ = 0;
  int64_t highest_term_ = 0;
  Time now_{};
  bool faults_ = true;
  bool led_ = false;
};

TEST(LeaseStateMachine, NeverTwoLeadersUnderRandomFaults) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.Run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ringmaster::election
