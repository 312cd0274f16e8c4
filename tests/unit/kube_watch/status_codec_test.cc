// SPDX-License-Identifier: Apache-2.0

// The write-ahead log must be read as it was written, by the same process and by another one.
#include "operator/kube/backend/status_codec.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/codec.h"
#include "api/fields_status.h"
#include "api/load.h"
#include "api/schema.h"
#include "base/rng.h"
#include "operator/control/convert.h"
#include "tests/sanitized.h"

namespace ringmaster::kube {
namespace {

const WallClock kCodecClock(Time(seconds(5000)), WallTime(seconds(1'700'000'000)));

api::TrainingJob SomeJob() {
  api::TrainingJob job;
  job.metadata.name = "gpt";
  job.spec.framework = "native";
  job.spec.training.emplace();
  job.spec.training->batch.samplesPerStep = 64;
  return job;
}

// ---- random statuses, with all kinds of values in every member

class Dice {
 public:
  explicit Dice(uint64_t seed) : rng_(seed) {}
  bool Flip() { return rng_.Chance(0.5); }
  int64_t Number(int64_t most) { return Flip() ? 0 : static_cast<int64_t>(rng_.Below(most)) + 1; }
  int32_t Small() { return static_cast<int32_t>(Number(1'000'000)); }
  Time At() {
    return Time(std::chrono::microseconds(static_cast<int64_t>(rng_.Below(4'000'000'000'000)) + 1));
  }
  Time AtOrZero() { return Flip() ? Time{} : At(); }
  std::optional<Time> MaybeAt() { return Flip() ? std::nullopt : std::optional(At()); }
  Duration Span() { return std::chrono::microseconds(Number(1'000'000'000'000)); }
  double Real() { return Flip() ? 0 : (rng_.Uniform() - 0.5) * static_cast<double>(Number(1'000'000)); }
  std::string Text(size_t most = 40) {
    static constexpr const char* kBits[] = {"a", "Z", "9", " ", "\"", "\\", "\n", "ü", "名", ":", "{", "'"};
    std::string text;
    for (uint64_t i = Flip() ? 0 : rng_.Below(most); i > 0; --i) text += kBits[rng_.Below(std::size(kBits))];
    return text;
  }
  template <class E>
  E Of(E last) {
    return static_cast<E>(rng_.Below(static_cast<uint64_t>(last) + 1));
  }
  size_t Count() { return rng_.Below(4); }

 private:
  SplitMix64 rng_;
};

core::Status RandomStatus(uint64_t seed) {
  Dice dice(seed);
  core::Status status;
  core::Ledger& l = status.ledger;
  l.attempt = dice.Number(1'000'000);
  l.gang_size = dice.Small();
  l.attempt_since = dice.AtOrZero();
  l.placed = dice.Flip();
  l.withdrawals = dice.Small();
  l.withdrawn_for = dice.Text();
  for (size_t i = dice.Count(); i > 0; --i)
    l.excluded.push_back({"node-" + std::to_string(10 - i), dice.Text(), dice.AtOrZero(),
                          dice.Flip() ? core::NodeEffect::kNoSchedule : core::NodeEffect::kPreferNoSchedule});
  l.restarts = {dice.Small(), dice.Small(), dice.Small()};
  for (size_t i = dice.Count(); i > 0; --i)
    l.succeeded.push_back(
        static_cast<int32_t>((l.succeeded.empty() ? 0 : l.succeeded.back() + 1) + dice.Count()));
  for (size_t i = dice.Count(); i > 0; --i) l.counted.push_back("uid-" + std::to_string(10 - i));
  if (dice.Flip()) {
    core::Failure& failure = l.last_failure.emplace();
    failure.attempt = dice.Number(100);
    failure.pod = dice.Text();
    failure.node = dice.Text();
    failure.exit_code = dice.Small() - 500;
    failure.cause = dice.Of(core::kLastCause);
    failure.message = dice.Text(200);
    failure.ended_reason = dice.Text(10);
    failure.rule = dice.Text();
    failure.at = dice.AtOrZero();
  }
  for (size_t i = dice.Count(); i > 0; --i)
    l.suspects.push_back({dice.Text(), dice.Text(), dice.AtOrZero(), dice.Flip()});
  l.failures_in_row = dice.Small();
  l.step_at_failure = dice.Number(1'000'000'000'000);
  l.not_before = dice.MaybeAt();
  l.worker_failures = dice.Small();
  l.incident = static_cast<uint64_t>(dice.Number(1'000'000'000'000));
  if (dice.Flip())
    l.preemption = core::Preemption{"team/" + dice.Text(), dice.Text(), dice.Small(), dice.Small()};
  l.ready_since = dice.MaybeAt();
  for (size_t i = dice.Count(); i > 0; --i) l.absent.push_back({"uid-" + std::to_string(i), dice.AtOrZero()});
  l.base_step = dice.Number(1'000'000'000'000);
  l.stepped = dice.Flip();
  l.stop_since = dice.MaybeAt();
  l.suspended = dice.Flip();
  if (dice.Flip()) l.report_floor = (static_cast<uint64_t>(dice.Small()) << 32) | 7;
  l.active_since = dice.MaybeAt();
  l.active_before = dice.Span();
  l.outcome = dice.Of(core::Outcome::kFailed);
  const auto& reasons = core::AllReasons();
  l.outcome_reason = dice.Flip() ? core::Reason::kUnknown
                                 : reasons[static_cast<size_t>(dice.Number(1000)) % reasons.size()].reason;
  l.outcome_message = dice.Text(200);
  l.start_time = dice.MaybeAt();
  l.completion_time = dice.MaybeAt();
  l.goodput = {dice.Span(), dice.Span(), dice.Span(), dice.Span(), dice.Span()};
  l.time_accounting = dice.Of(core::TimeAccounting::kProductive);
  l.accounted = dice.AtOrZero();
  l.lost_steps = dice.Number(1'000'000);

  core::Display& d = status.display;
  d.observed_spec_generation = dice.Number(1000);
  d.phase = dice.Of(core::Phase::kFailed);
  for (core::Condition& condition : d.conditions) {
    condition.truth = dice.Of(core::Truth::kTrue);
    condition.reason = reasons[static_cast<size_t>(dice.Number(1000)) % reasons.size()].reason;
    condition.message = dice.Text(100);
    condition.since = dice.AtOrZero();
  }
  if (dice.Flip()) d.conditions[3] = {};
  d.replicas = dice.Small();
  d.ready_replicas = dice.Small();
  d.gang_generation = static_cast<uint64_t>(dice.Number(1'000'000'000'000));
  d.transport = dice.Flip() ? "" : "ucx:cma+rc_mlx5";
  d.devices = dice.Flip() ? "" : "8 x NVIDIA H200";
  if (dice.Flip()) d.topology = core::TopologySpread{"example.com/rack", dice.Small(), "a: 4, b: 4"};
  d.weights_hash = dice.Flip() ? "" : "0123456789abcdef";
  d.progress = {dice.Number(1'000'000), dice.Number(1'000'000), dice.Real(), dice.Real(),
                dice.Number(1000) - 1};
  d.progress_at = dice.MaybeAt();
  return status;
}

core::Status ThroughTheApi(const core::Status& status, const WallClock& writer, const WallClock& reader) {
  const std::string text = DumpJson(api::WriteValue(EncodeStatus(status, SomeJob(), writer)));
  api::Status read;
  auto node = api::NodeFromJson(Json::parse(text));
  EXPECT_TRUE(node.ok());
  api::ReadValue(*node, read);
  return DecodeStatus(read, reader);
}

TEST(StatusCodecTest, RoundTrip) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 500 : 5000); ++seed) {
    const core::Status status = RandomStatus(seed);
    ASSERT_EQ(ThroughTheApi(status, kCodecClock, kCodecClock), status) << "seed " << seed;
  }
}

// The paths below `path` that the object has.
void Collect(const Json& object, const std::string& path, std::set<std::string>& paths) {
  for (const auto& [name, value] : object.items()) {
    const std::string at = path + "." + name;
    paths.insert(at);
    if (value.is_object()) Collect(value, at, paths);
    if (value.is_array())
      for (const Json& item : value)
        if (item.is_object()) Collect(item, at, paths);
  }
}
void Expect(const api::Schema& schema, const std::string& path, const std::set<std::string>& paths) {
  for (const api::Schema& field : schema.fields) {
    const std::string at = path + "." + field.name;
    EXPECT_TRUE(paths.contains(at)) << at
                                    << " is never written: add it to RandomStatus, or to status_fields.h";
    if (field.type == api::Type::kObject) Expect(field, at, paths);
    if (field.type == api::Type::kList && field.item.front().type == api::Type::kObject)
      Expect(field.item.front(), at, paths);
  }
}

// So that RoundTrip compares each of them.
TEST(StatusCodecTest, RandomStatusesHaveEveryField) {
  std::set<std::string> paths;
  api::TrainingJob job = SomeJob();
  job.spec.checkpoint.path = "/checkpoints";
  for (uint64_t seed = 1; seed <= 500; ++seed)
    Collect(api::WriteValue(EncodeStatus(RandomStatus(seed), job, kCodecClock)), "status", paths);
  Expect(*api::JobSchema().Find("status"), "status", paths);
}

// ---- an older version leads while a newer one has written the status

TEST(StatusCodecTest, WhatANewerVersionWroteIsKept) {
  Json stored = api::WriteValue(EncodeStatus(RandomStatus(3), SomeJob(), kCodecClock));
  EXPECT_TRUE(UnknownStatus(stored).is_null());
  const Json known = stored;
  stored["spares"] = {{"ready", 2}};
  stored["ledger"]["spares"] = Json::array({"a", "b"});
  stored["ledger"]["time"]["spare"] = 5;
  stored["conditions"].push_back({{"type", "Preflighted"}, {"status", "True"}, {"reason", "Passed"}});
  const Json unknown = UnknownStatus(stored);
  Json written = known;
  KeepUnknownStatus(unknown, written);
  EXPECT_EQ(written, stored);

  written = api::WriteValue(EncodeStatus(core::Status(), SomeJob(), kCodecClock));
  KeepUnknownStatus(unknown, written);
  EXPECT_EQ(written["spares"], stored["spares"]);
  EXPECT_EQ(written["ledger"]["time"]["spare"], 5);
  EXPECT_EQ(UnknownStatus(written), unknown) << "also for the next write";
}

// This version has removed the object; a part of it would be half of one.
TEST(StatusCodecTest, NothingIsKeptOfAnObjectThatIsRemoved) {
  Json stored = Json::object();
  stored["lastFailure"] = {{"pod", "gpt-1-0"}, {"gpu", 3}};
  const Json unknown = UnknownStatus(stored);
  EXPECT_EQ(unknown, Json({{"lastFailure", {{"gpu", 3}}}}));
  Json written = Json::object();
  KeepUnknownStatus(unknown, written);
  EXPECT_EQ(written, Json::object());
  for (const Json& hostile : {Json(), Json("x"), Json::array({1}), Json({{"conditions", "x"}, {"ledger", 7}}),
                              Json({{"conditions", Json::array({1, Json::object()})}})}) {
    EXPECT_TRUE(UnknownStatus(hostile).is_null()) << hostile;
  }
}

TEST(StatusCodecTest, EncodedStatusIsValid) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    api::TrainingJob job = SomeJob();
    job.spec.training->model.kind = "gpt";
    job.spec.training->data = {"text", "/data", "", "0.05"};
    job.spec.training->steps = 10;
    job.status = EncodeStatus(RandomStatus(seed), job, kCodecClock);
    for (const api::Problem& problem : api::FromJson(api::ToJson(job)).problems)
      EXPECT_FALSE(problem.path.starts_with("status")) << "seed " << seed << ": " << problem.ToString();
  }
}

TEST(StatusCodecTest, SecondRoundTripIsExact) {
  core::Status status;
  status.ledger.ready_since = Time(std::chrono::nanoseconds(123'456'789));
  const core::Status once = ThroughTheApi(status, kCodecClock, kCodecClock);
  EXPECT_LE(*status.ledger.ready_since - *once.ledger.ready_since, std::chrono::microseconds(1));
  EXPECT_GE(*status.ledger.ready_since - *once.ledger.ready_since, std::chrono::microseconds(-1));
  EXPECT_EQ(ThroughTheApi(once, kCodecClock, kCodecClock), once);
}

// Another process has another origin of its steady clock: times stay the same.
TEST(StatusCodecTest, AnotherProcessReadsTheSameTimes) {
  const WallClock other(Time(seconds(70)), WallTime(seconds(1'700'000'100)));
  core::Status status;
  status.ledger.ready_since = Time(seconds(5090));
  const core::Status read = ThroughTheApi(status, kCodecClock, other);
  EXPECT_EQ(*read.ledger.ready_since, Time(seconds(60)));
}

// The writer's wall clock is an hour ahead of the reader's: no backoff of an hour, no time in the future.
TEST(StatusCodecTest, ClockAheadDelaysNothing) {
  const WallClock ahead(Time(seconds(5000)), WallTime(seconds(1'700'000'000 + 36'000)));
  const Time now(seconds(6000));
  core::Job job;
  core::Status status = RandomStatus(7);
  status.ledger.not_before = now + seconds(5);
  status.ledger.active_since = now;
  status.ledger.ready_since = now - seconds(1);
  status.ledger.excluded = {{"node-1", "bad", now + job.node_exclusion}};
  core::Status read = ThroughTheApi(status, ahead, kCodecClock);
  ASSERT_GT(*read.ledger.active_since, now) << "the clocks differ";
  ClampTimes(read, job, now);
  EXPECT_LE(*read.ledger.active_since, now);
  EXPECT_LE(*read.ledger.ready_since, now);
  EXPECT_LE(*read.ledger.not_before, now + std::chrono::hours(1));
  EXPECT_EQ(read.ledger.excluded[0].until, now + job.node_exclusion);
  for (const core::Condition& condition : read.display.conditions) EXPECT_LE(condition.since, now);
}

TEST(StatusCodecTest, ClampingKeepsPlausibleTimes) {
  core::Job job;
  core::Status status = RandomStatus(8);
  const Time late(seconds(5'000'000));
  status.ledger.not_before = late + seconds(100);
  for (auto& node : status.ledger.excluded) node.until = late + seconds(10);
  core::Status clamped = status;
  ClampTimes(clamped, job, late);
  EXPECT_EQ(clamped, status);
}

TEST(StatusCodecTest, InvalidMembersReadAsUnset) {
  api::Status status;
  status.phase = "Dancing";
  status.conditions = {{"Ready", "Perhaps", "Because", "", "yesterday", 1}, {"Shiny", "True", "", "", "", 1}};
  status.progress.loss = "low";
  status.startTime = "noon";
  status.ledger.emplace();
  status.ledger->outcome = "Drawn";
  status.ledger->time.accounting = "Money";
  status.ledger->notBefore = "2024-13-01T00:00:00Z";
  const core::Status read = DecodeStatus(status, kCodecClock);
  EXPECT_EQ(read, core::Status{});
}

TEST(StatusCodecTest, LongTextsAreTruncatedAtACharacter) {
  core::Status status;
  status.ledger.outcome_message = std::string(4095, 'x') + "名名";
  const api::Status written = EncodeStatus(status, SomeJob(), kCodecClock);
  EXPECT_EQ(written.ledger->outcomeMessage, std::string(4095, 'x'));
}

// Unset members are left out, and must be read as unset.
TEST(StatusCodecTest, JsonRoundTrip) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const api::Status status = EncodeStatus(RandomStatus(seed), SomeJob(), kCodecClock);
    api::Status read;
    auto node = api::NodeFromJson(api::WriteValue(status));
    ASSERT_TRUE(node.ok());
    api::ReadValue(*node, read);
    ASSERT_EQ(read, status) << "seed " << seed;
  }
}

TEST(StatusCodecTest, TheTimeLeftOfAProgramIsItsEstimate) {
  api::TrainingJob job = SomeJob();
  job.spec.training.reset();
  core::Status status;
  status.display.progress = {0, 0, 0, 0, -1, 90};
  const api::Status written = EncodeStatus(status, job, kCodecClock);
  EXPECT_EQ(written.progress.etaSeconds, 90);
  EXPECT_EQ(written.progress.eta, "1m30s");
}

TEST(StatusCodecTest, DisplayValuesAreDerived) {
  core::Status status;
  status.display.replicas = 8;
  status.display.ready_replicas = 7;
  status.display.progress = {100, 1100, 2.5, 128, 90};
  status.ledger.goodput.productive = seconds(75);
  status.ledger.goodput.queue = seconds(25);
  const api::Status written = EncodeStatus(status, SomeJob(), kCodecClock);
  EXPECT_EQ(written.ready, "7/8");
  EXPECT_EQ(written.selector, "ringmaster.dev/job=gpt");
  EXPECT_EQ(written.progress.etaSeconds, 500);
  EXPECT_EQ(written.progress.loss, "2.5");
  EXPECT_EQ(written.goodput->ratio, "0.7500");
  EXPECT_EQ(written.goodput->lostSeconds.at("queue"), 25);
}

}  // namespace
}  // namespace ringmaster::kube
