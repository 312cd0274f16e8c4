// SPDX-License-Identifier: Apache-2.0

// The controller around the core: queue, freshness gate, back-off, error handling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "operator/control/controller.h"
#include "operator/control/last_reasons.h"

namespace ringmaster::control {
namespace {

constexpr Time kT0 = Time{} + seconds(10'000);
const Key kKey{"default", "job"};
const Key kOther{"default", "other"};

TEST(WorkQueue, AKeyThatChangesDuringProcessingIsTakenAgain) {
  WorkQueue<std::string> queue;
  queue.Add("a", kT0);
  queue.Add("a", kT0);
  EXPECT_EQ(queue.NextWakeup(), Time::min());
  EXPECT_EQ(queue.Take(kT0), "a");
  EXPECT_EQ(queue.Take(kT0), std::nullopt);
  queue.Add("a", kT0);
  EXPECT_EQ(queue.Take(kT0), std::nullopt);  // not while it is processed
  queue.Done("a", kT0);
  EXPECT_EQ(queue.Take(kT0), "a");
  queue.Done("a", kT0);
  EXPECT_EQ(queue.NextWakeup(), kNever);
  EXPECT_EQ(queue.added(), 2);
}

TEST(WorkQueue, MeasuresWaitingAndProcessingTime) {
  WorkQueue<std::string> queue;
  queue.Add("a", kT0);
  queue.Add("a", kT0 + seconds(1));  // it has waited since the first Add
  queue.AddAt("b", kT0 + seconds(2));
  EXPECT_EQ(queue.waiting(), 1U);
  EXPECT_EQ(queue.Take(kT0 + seconds(3)), "a");
  EXPECT_EQ(queue.Take(kT0 + seconds(3)), "b");
  EXPECT_EQ(queue.waiting(), 0U);
  const auto a = queue.Done("a", kT0 + seconds(7));
  EXPECT_EQ(a.waited, seconds(3));
  EXPECT_EQ(a.worked, seconds(4));
  EXPECT_EQ(queue.Done("b", kT0 + seconds(3)).waited, seconds(1)) << "from when it was due";
}

TEST(WorkQueue, TheEarliestDueTimeCounts) {
  WorkQueue<std::string> queue;
  queue.AddAt("a", kT0 + seconds(5));
  queue.AddAt("a", kT0 + seconds(9));
  queue.AddAt("b", kT0 + seconds(7));
  queue.AddAt("b", kT0 + seconds(3));
  EXPECT_EQ(queue.NextWakeup(), kT0 + seconds(3));
  EXPECT_EQ(queue.Take(kT0 + seconds(2)), std::nullopt);
  EXPECT_EQ(queue.Take(kT0 + seconds(3)), "b");
  EXPECT_EQ(queue.NextWakeup(), kT0 + seconds(5));
  queue.DropDue("a");
  EXPECT_EQ(queue.NextWakeup(), kNever);
}

TEST(WorkQueue, FirstComeFirstServed) {
  WorkQueue<std::string> queue;
  for (const char* key : {"c", "a", "b"}) queue.Add(key, kT0);
  for (const char* key : {"c", "a", "b"}) EXPECT_EQ(queue.Take(kT0), key);
}

TEST(Backoff, DoublesWithJitterUpToItsLimitAndResets) {
  Backoff<std::string> backoff(3);
  Duration due = Backoff<std::string>::kFirst;
  for (int i = 0; i < 40; ++i) {
    const Duration delay = backoff.Next("a");
    EXPECT_GE(delay, due / 2);
    EXPECT_LE(delay, due);
    due = std::min<Duration>(2 * due, Backoff<std::string>::kLast);
  }
  backoff.Reset("a");
  EXPECT_LE(backoff.Next("a"), Backoff<std::string>::kFirst);
}

// A view that a test controls.
class FakeView final : public View {
 public:
  std::optional<Snapshot> Observe(const Key& key) const override {
    if (!exists || (key != kKey && !any_key)) return std::nullopt;
    Snapshot snapshot;
    snapshot.observed.job.uid = "uid-1";
    snapshot.observed.job.spec_generation = spec_generation;
    snapshot.job_revision = 17;
    snapshot.observed.pods.resize(pods);
    return snapshot;
  }
  Revision Seen(Kind kind, const Key&) const override { return seen[static_cast<size_t>(kind)]; }
  std::vector<Key> Keys() const override { return {kKey}; }

  bool exists = true;
  bool any_key = false;
  size_t pods = 0;
  int64_t spec_generation = 1;
  Revision seen[kKinds] = {100, 100, 100};
};

class ControllerTest : public testing::Test {
 protected:
  ControllerTest() {
    Controller::Options options;
    options.max_in_flight = 16;
    options.max_writes = 32;
    options.decide = [this](const core::Observed& observed, Time) {
      seen = observed;
      decided += 1;
      return decision;
    };
    options.on_failed_write = [this](const FailedWrite& write) {
      failed.emplace_back(write.routine, write.error.code);
    };
    controller.emplace(view, std::move(options));
  }

  std::vector<Command> Step(ControlEvent event) {
    controller->On(event, now);
    return controller->TakeCommands(now);
  }
  // The commands of one decision about kKey.
  std::vector<Command> Ask() { return Step(Changed{kKey}); }
  static uint64_t IdOf(const Command& command) {
    if (const auto* write = std::get_if<DoWrite>(&command)) return write->id;
    return std::get<DoRead>(command).id;
  }

  FakeView view;
  core::Decision decision{{}, {}, std::nullopt, "test"};
  int decided = 0;
  std::vector<std::pair<bool, Code>> failed;  // whether it is routine, and why
  core::Observed seen;
  Time now = kT0;
  std::optional<Controller> controller;
};

const core::Action kCreate = core::CreatePod{"job-1-0", 1, 0};

TEST_F(ControllerTest, AStatusWriteCarriesTheRevisionOfItsDecision) {
  decision.actions = {core::SetStatus{}};
  const auto commands = Ask();
  ASSERT_EQ(commands.size(), 1U);
  const auto& write = std::get<DoWrite>(commands[0]).write;
  EXPECT_EQ(write.if_revision, 17U);
  EXPECT_EQ(write.job_uid, "uid-1");
  EXPECT_EQ(write.key, kKey);
}

TEST_F(ControllerTest, AStatusThatCannotBeWrittenIsReportedByAnEvent) {
  decision.actions = {core::SetStatus{}};
  std::vector<core::Event> events;
  std::vector<Command> commands = Ask();
  for (int writes = 0; writes < 20;) {
    std::vector<Command> next;
    const auto step = [&](ControlEvent event) {
      for (Command& command : Step(std::move(event))) next.push_back(std::move(command));
    };
    for (const Command& command : commands) {
      if (const auto* record = std::get_if<DoRecord>(&command)) {
        events.push_back(record->event);
      } else if (const auto* read = std::get_if<DoRead>(&command)) {
        step(ReadDone{read->id, Ok()});
      } else {
        // A conflict is not a failure: another write came first.
        const Code code = writes++ == 0 ? Code::kConflict : Code::kInvalid;
        step(WriteDone{IdOf(command), Error{code, "the status is too large"}});
      }
    }
    if (next.empty()) {
      now = std::max(now, controller->NextWakeup());
      next = controller->TakeCommands(now);
    }
    commands = std::move(next);
  }
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].reason, "StatusNotWritten");
  EXPECT_EQ(events[0].message, "the status is too large");
  int routine = 0;
  for (const auto& [is_routine, code] : failed) routine += is_routine ? 1 : 0;
  EXPECT_EQ(failed.size(), 20U);
  EXPECT_EQ(routine, 1);
}

TEST_F(ControllerTest, NoSecondDecisionWhileTheFirstIsCarriedOut) {
  decision.actions = {kCreate, kCreate};
  const auto commands = Ask();
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_TRUE(Ask().empty());
  EXPECT_TRUE(Step(WriteDone{IdOf(commands[0]), Revision{0}}).empty());
  EXPECT_EQ(decided, 1);
  decision.actions.clear();
  Step(WriteDone{IdOf(commands[1]), Revision{0}});
  EXPECT_EQ(decided, 2);  // the change during the first decision is not lost
}

TEST_F(ControllerTest, ALargeGangIsNotReconciledForEachPodEvent) {
  view.pods = 512;
  Ask();
  for (int i = 0; i < 512; ++i) {
    now += std::chrono::microseconds(50);
    Ask();
  }
  EXPECT_EQ(decided, 1);
  // The last change is not lost.
  now = controller->NextWakeup();
  ASSERT_LT(now, kT0 + seconds(1));
  controller->TakeCommands(now);
  EXPECT_EQ(decided, 2);
  // Actions are carried out at once, and so are those of the next decision.
  now += seconds(1);
  decision.actions = {kCreate};
  const auto commands = Ask();
  EXPECT_EQ(decided, 3);
  decision.actions.clear();
  Step(WriteDone{IdOf(commands[0]), Revision{0}});
  Ask();
  EXPECT_EQ(decided, 4);
  // A small gang is reconciled for each event.
  now += seconds(1);
  view.pods = 8;
  Ask();
  Ask();
  EXPECT_EQ(decided, 6);
}

TEST_F(ControllerTest, NoDecisionFromAViewWithoutTheControllersWrite) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Revision{101}});
  EXPECT_TRUE(Ask().empty());
  EXPECT_EQ(decided, 1);
  view.seen[static_cast<size_t>(Kind::kPod)] = 101;
  Ask();
  EXPECT_EQ(decided, 2);
}

TEST_F(ControllerTest, FreshnessIsPerKind) {
  decision.actions = {core::SetStatus{}};
  auto commands = Ask();
  view.seen[static_cast<size_t>(Kind::kPod)] = 500;
  Step(WriteDone{IdOf(commands[0]), Revision{101}});
  Ask();
  EXPECT_EQ(decided, 1);
}

TEST_F(ControllerTest, AStaleViewIsReadThrough) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Revision{101}});
  EXPECT_TRUE(Ask().empty());
  EXPECT_EQ(controller->NextWakeup(), now + seconds(10));
  now += seconds(10);
  commands = controller->TakeCommands(now);
  ASSERT_EQ(commands.size(), 1U);
  ASSERT_TRUE(std::holds_alternative<DoRead>(commands[0]));
  Step(ReadDone{IdOf(commands[0]), Ok()});
  EXPECT_EQ(decided, 2);
}

// A server whose watches are late is not loaded with list requests as well.
TEST_F(ControllerTest, AStaleViewThatMakesProgressIsNotReadThrough) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Revision{110}});
  EXPECT_TRUE(Ask().empty());
  for (const Revision step : {103U, 107U}) {
    view.seen[static_cast<size_t>(Kind::kPod)] = step;
    now += seconds(10);
    EXPECT_TRUE(controller->TakeCommands(now).empty());
    EXPECT_EQ(controller->NextWakeup(), now + seconds(10));
  }
  view.seen[static_cast<size_t>(Kind::kJob)] = 500;  // not the awaited kind
  now += seconds(10);
  commands = controller->TakeCommands(now);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<DoRead>(commands[0]));
}

TEST_F(ControllerTest, ErrorsOfAStaleViewAreFollowedByALiveRead) {
  for (const Code code : {Code::kAmbiguous, Code::kConflict, Code::kAlreadyExists, Code::kNotFound}) {
    decision.actions = {kCreate};
    auto commands = Ask();
    ASSERT_EQ(commands.size(), 1U) << CodeName(code);
    const int before = decided;
    EXPECT_TRUE(Step(WriteDone{IdOf(commands[0]), Error{code, "x"}}).empty());
    now = controller->NextWakeup();
    commands = controller->TakeCommands(now);
    ASSERT_EQ(commands.size(), 1U);
    ASSERT_TRUE(std::holds_alternative<DoRead>(commands[0])) << CodeName(code);
    EXPECT_EQ(decided, before);
    decision.actions.clear();
    Step(ReadDone{IdOf(commands[0]), Ok()});
    EXPECT_EQ(decided, before + 1);
  }
}

TEST_F(ControllerTest, AFailedLiveReadIsRepeated) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Error{Code::kAmbiguous, "x"}});
  for (int i = 0; i < 3; ++i) {
    now = std::max(now, controller->NextWakeup());
    commands = controller->TakeCommands(now);
    ASSERT_EQ(commands.size(), 1U);
    ASSERT_TRUE(std::holds_alternative<DoRead>(commands[0]));
    Step(ReadDone{IdOf(commands[0]), Error{Code::kUnavailable, "x"}});
  }
  EXPECT_EQ(decided, 1);
}

TEST_F(ControllerTest, AFailedWriteIsRetriedWithGrowingDelays) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Duration last{0};
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(commands.size(), 1U);
    Step(WriteDone{IdOf(commands[0]), Error{Code::kUnavailable, "x"}});
    const Duration delay = controller->NextWakeup() - now;
    EXPECT_GT(delay, last / 2);
    last = delay;
    now += delay;
    commands = controller->TakeCommands(now);
  }
  EXPECT_GT(last, milliseconds(200));
}

TEST_F(ControllerTest, EventsAreSentWhenTheirDecisionIsDone) {
  decision.actions = {kCreate};
  decision.events = {{true, "Exit", "job-1-0 ended"}};
  auto commands = Ask();
  ASSERT_EQ(commands.size(), 1U);
  auto after = Step(WriteDone{IdOf(commands[0]), Revision{0}});
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(std::get<DoRecord>(after[0]).event.reason, "Exit");

  decision.events = {{false, "Preempting", "makes room", "ml/big"}};
  commands = Ask();
  after = Step(WriteDone{IdOf(commands[0]), Revision{0}});
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(std::get<DoRecord>(after[0]).key, (Key{"ml", "big"}));
  EXPECT_EQ(std::get<DoRecord>(after[0]).event.message, "default/job makes room");

  commands = Ask();
  after = Step(WriteDone{IdOf(commands[0]), Error{Code::kConflict, "x"}});
  EXPECT_TRUE(after.empty());
}

TEST_F(ControllerTest, WritesInFlightAreLimitedAndTheRestFollows) {
  decision.actions.assign(40, kCreate);
  auto commands = Ask();
  EXPECT_EQ(commands.size(), 16U);
  const auto next = Step(WriteDone{IdOf(commands[0]), Revision{0}});
  ASSERT_EQ(next.size(), 1U);  // one ends, the next begins
  commands.push_back(next[0]);
  EXPECT_EQ(decided, 1);
  for (size_t i = 1; i < 16; ++i)
    for (Command& command : Step(WriteDone{IdOf(commands[i]), Revision{0}})) commands.push_back(command);
  for (size_t i = 16; i < commands.size(); ++i) Step(WriteDone{IdOf(commands[i]), Revision{0}});
  EXPECT_EQ(decided, 2);  // for the actions beyond max_writes
}

TEST_F(ControllerTest, JobsTakeTurns) {
  controller.reset();
  Controller::Options options;
  options.max_in_flight = 4;
  options.decide = [this](const core::Observed&, Time) { return decision; };
  view.any_key = true;
  controller.emplace(view, std::move(options));
  decision.actions.assign(100, kCreate);
  auto commands = Ask();
  EXPECT_EQ(commands.size(), 4U);
  controller->On(Changed{kOther}, now);
  std::set<Key> served;
  for (size_t i = 0; i < 2; ++i)
    for (const Command& command : Step(WriteDone{IdOf(commands[i]), Revision{0}}))
      served.insert(std::get<DoWrite>(command).write.key);
  EXPECT_TRUE(served.contains(kOther));
}

TEST_F(ControllerTest, ReportsItsLoad) {
  controller.reset();
  Controller::Options options;
  std::vector<std::pair<Duration, Duration>> turns;
  options.on_turn = [&](Duration waited, Duration worked) { turns.emplace_back(waited, worked); };
  options.decide = [this](const core::Observed&, Time) { return decision; };
  controller.emplace(view, std::move(options));
  decision.actions = {kCreate, kCreate};
  const auto commands = Step(Changed{kKey, now - seconds(2)});
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_EQ(controller->load().writing, 2U);
  EXPECT_EQ(controller->load().waiting, 0U);
  controller->On(Changed{kKey}, now);
  EXPECT_EQ(controller->load().waiting, 1U);
  now += seconds(5);
  Step(WriteDone{IdOf(commands[0]), Revision{0}});
  EXPECT_TRUE(turns.empty());
  controller->On(WriteDone{IdOf(commands[1]), Error{Code::kUnavailable, "away"}}, now);
  ASSERT_EQ(turns.size(), 1U);
  EXPECT_EQ(turns[0], std::pair(Duration(seconds(2)), Duration(seconds(5))));
  EXPECT_EQ(controller->load().writing, 0U);
  EXPECT_EQ(controller->load().added, 2);
  EXPECT_EQ(controller->load().retried, 1);
}

TEST_F(ControllerTest, ARefusalIsPassedToDecisionsUntilAWriteSucceeds) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Error{Code::kForbidden, "exceeded quota: gpus"}});
  EXPECT_EQ(decided, 1);
  now = controller->NextWakeup();
  commands = controller->TakeCommands(now);
  ASSERT_TRUE(seen.refusal.has_value());
  EXPECT_EQ(seen.refusal->kind, core::RefusalKind::kQuota);
  const Time first = seen.refusal->since;
  const Duration pause = seen.refusal->retry_at - first;
  EXPECT_GE(pause, seconds(1));
  ASSERT_EQ(commands.size(), 1U);
  now += seconds(5);
  Step(WriteDone{IdOf(commands[0]), Error{Code::kForbidden, "exceeded quota: gpus"}});
  now = controller->NextWakeup();
  commands = controller->TakeCommands(now);
  EXPECT_EQ(seen.refusal->since, first);
  EXPECT_GT(seen.refusal->retry_at, now);
  Step(WriteDone{IdOf(commands[0]), Revision{0}});
  Ask();
  EXPECT_FALSE(seen.refusal.has_value());
}

TEST_F(ControllerTest, AChangedSpecIsTriedAtOnce) {
  decision.actions = {kCreate};
  auto commands = Ask();
  Step(WriteDone{IdOf(commands[0]), Error{Code::kInvalid, "spec.containers[0].image: bad"}});
  view.spec_generation += 1;
  now = controller->NextWakeup();
  controller->TakeCommands(now);
  EXPECT_FALSE(seen.refusal.has_value());
}

TEST_F(ControllerTest, ATakenPodNameIsDetected) {
  decision.actions = {kCreate};
  auto commands = Ask();
  for (int i = 0; i < 2; ++i) {
    Step(WriteDone{IdOf(commands[0]), Error{Code::kAlreadyExists, "exists"}});
    now = controller->NextWakeup();
    commands = controller->TakeCommands(now);
    ASSERT_TRUE(std::holds_alternative<DoRead>(commands[0]));
    commands = Step(ReadDone{IdOf(commands[0]), Ok()});
  }
  ASSERT_TRUE(seen.refusal.has_value());
  EXPECT_EQ(seen.refusal->kind, core::RefusalKind::kNameTaken);
  EXPECT_NE(seen.refusal->message.find("job-1-0"), std::string::npos);
}

TEST_F(ControllerTest, AfterARefusalTheRestOfTheDecisionIsDropped) {
  decision.actions.assign(32, kCreate);
  auto commands = Ask();
  ASSERT_EQ(commands.size(), 16U);
  EXPECT_TRUE(Step(WriteDone{IdOf(commands[0]), Error{Code::kForbidden, "exceeded quota"}}).empty());
  for (size_t i = 1; i < 16; ++i) EXPECT_TRUE(Step(WriteDone{IdOf(commands[i]), Revision{0}}).empty());
  EXPECT_GT(controller->NextWakeup(), now);
}

TEST_F(ControllerTest, AJobMayDisappearWhileTheRestOfItsDecisionIsDropped) {
  decision.actions.assign(32, kCreate);
  auto commands = Ask();
  for (size_t i = 0; i < 16; ++i) Step(WriteDone{IdOf(commands[i]), Error{Code::kNotFound, "no such job"}});
  view.exists = false;
  now = controller->NextWakeup();
  commands = controller->TakeCommands(now);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(Step(ReadDone{IdOf(commands[0]), Ok()}).empty());
  EXPECT_EQ(controller->NextWakeup(), kNever);
}

TEST_F(ControllerTest, ARequeueTimeIsKeptAndOneInThePastDoesNotSpin) {
  decision.requeue_at = now + seconds(30);
  Ask();
  EXPECT_EQ(controller->NextWakeup(), now + seconds(30));
  decision.requeue_at = now - seconds(30);
  Ask();
  EXPECT_GT(controller->NextWakeup(), now);
}

TEST_F(ControllerTest, AJobThatIsGoneIsForgotten) {
  decision.requeue_at = now + seconds(30);
  Ask();
  view.exists = false;
  Ask();
  EXPECT_EQ(controller->NextWakeup(), kNever);
  EXPECT_TRUE(Step(Changed{kOther}).empty());
  EXPECT_EQ(decided, 1);
}

TEST(LastReasonsTest, OfJobsThatExist) {
  LastReasons reasons;
  EXPECT_TRUE(reasons.Change(kKey, "waits"));
  EXPECT_FALSE(reasons.Change(kKey, "waits"));
  EXPECT_TRUE(reasons.Change(kOther, "waits"));
  EXPECT_TRUE(reasons.Change(kKey, "runs"));
  reasons.Forget(kKey);
  EXPECT_EQ(reasons.size(), 1U);
  EXPECT_TRUE(reasons.Change(kKey, "runs"));
}

TEST_F(ControllerTest, AnUnknownAnswerIsIgnored) {
  EXPECT_TRUE(Step(WriteDone{4711, Revision{1}}).empty());
  EXPECT_TRUE(Step(ReadDone{4711, Ok()}).empty());
}

}  // namespace
}  // namespace ringmaster::control
