// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/status_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "api/display.h"
#include "api/schema.h"
#include "base/json.h"
#include "operator/kube/backend/status_fields.h"

namespace ringmaster::kube {
namespace {

constexpr Duration kLongestBackoff = std::chrono::hours(1);  // unless the job allows more

// Returns at most `limit` bytes, and does not split a UTF-8 character.
std::string Truncate(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  text.resize(limit);
  return text;
}

// Returns the shortest text that parses to the same number; empty for zero.
std::string NumberText(double value) { return value == 0 ? std::string() : fmt::format("{}", value); }
double ReadNumber(const std::string& text) {
  if (text.empty()) return 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? value : 0;
}

// Returns "0-3,7" for {0, 1, 2, 3, 7}.
std::string RanksText(const std::vector<int32_t>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

// Drops what is not such a text. The result is sorted and has no duplicates.
std::vector<int32_t> ReadRanks(std::string_view text) {
  constexpr int32_t kMaxRank = 1 << 20;
  std::vector<int32_t> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int32_t first = 0;
    auto read = std::from_chars(at, end, first);
    int32_t last = first;
    if (read.ec == std::errc() && read.ptr < end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    const int32_t least = ranks.empty() ? 0 : ranks.back() + 1;
    if (read.ec != std::errc() || first < least || last < first || last > kMaxRank) break;
    for (int32_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (read.ptr == end || *read.ptr != ',') break;
    at = read.ptr + 1;
  }
  return ranks;
}

// Copies from the core to the API.
class StatusEncoder {
 public:
  explicit StatusEncoder(const WallClock& clock) : clock_(clock) {}

  template <class T>
  void Plain(T& to, const T& from) const {
    to = from;
  }
  void Text(std::string& to, const std::string& from, size_t limit) const { to = Truncate(from, limit); }
  void At(std::string& to, Time from) const {
    to = from == Time{} ? std::string() : WallTimeText(clock_.ToWall(from));
  }
  void At(std::string& to, const std::optional<Time>& from) const {
    to = from ? WallTimeText(clock_.ToWall(*from)) : std::string();
  }
  void Span(int64_t& to, Duration from) const {
    to = std::chrono::duration_cast<std::chrono::microseconds>(from).count();
  }
  void Number(std::string& to, double from) const { to = NumberText(from); }
  void Generation(int64_t& to, rendezvous::Generation from) const { to = static_cast<int64_t>(from); }
  void Generation(std::optional<int64_t>& to, const std::optional<rendezvous::Generation>& from) const {
    if (from) to = static_cast<int64_t>(*from);
  }
  template <class E>
  void Word(std::string& to, E from, const char* (*name_of)(E), E, E) const {
    to = name_of(from);
  }
  template <class E>
  void WordOrNone(std::string& to, E from, const char* (*name_of)(E), E, E none) const {
    if (from != none) to = name_of(from);
  }
  void Ranks(std::string& to, const std::vector<int32_t>& from) const { to = RanksText(from); }
  void Reason(std::string& to, core::Reason from) const {
    if (from != core::Reason::kUnknown) to = core::ReasonName(from);
  }
  template <class T, class U, class F>
  void List(std::vector<T>& to, const std::vector<U>& from, F fields) const {
    for (const U& item : from) fields(to.emplace_back(), item);
  }
  template <class T, class U, class F>
  void Maybe(std::optional<T>& to, const std::optional<U>& from, F fields) const {
    if (from) fields(to.emplace(), *from);
  }

 private:
  const WallClock& clock_;
};

// Copies from the API to the core. Enum names are looked up by the functions that write them.
class StatusDecoder {
 public:
  explicit StatusDecoder(const WallClock& clock) : clock_(clock) {}

  template <class T>
  void Plain(const T& from, T& to) const {
    to = from;
  }
  void Text(const std::string& from, std::string& to, size_t) const { to = from; }
  void At(const std::string& from, std::optional<Time>& to) const {
    to.reset();
    if (from.empty()) return;
    if (const auto time = ParseWallTime(from); time.ok()) to = clock_.ToSteady(*time);
  }
  void At(const std::string& from, Time& to) const {
    std::optional<Time> time;
    At(from, time);
    to = time.value_or(Time{});
  }
  void Span(int64_t from, Duration& to) const { to = std::chrono::microseconds(from); }
  void Number(const std::string& from, double& to) const { to = ReadNumber(from); }
  void Generation(int64_t from, rendezvous::Generation& to) const {
    to = static_cast<rendezvous::Generation>(from);
  }
  void Generation(const std::optional<int64_t>& from, std::optional<rendezvous::Generation>& to) const {
    if (from) to = static_cast<rendezvous::Generation>(*from);
  }
  template <class E>
  void Word(const std::string& from, E& to, const char* (*name_of)(E), E last, E otherwise) const {
    to = otherwise;
    for (int i = 0; i <= static_cast<int>(last); ++i)
      if (from == name_of(static_cast<E>(i))) to = static_cast<E>(i);
  }
  template <class E>
  void WordOrNone(const std::string& from, E& to, const char* (*name_of)(E), E last, E none) const {
    Word(from, to, name_of, last, none);
  }
  void Ranks(const std::string& from, std::vector<int32_t>& to) const { to = ReadRanks(from); }
  void Reason(const std::string& from, core::Reason& to) const {
    to = core::Reason::kUnknown;
    for (const core::ReasonText& row : core::AllReasons())
      if (from == core::ReasonName(row.reason)) to = row.reason;
  }
  template <class T, class U, class F>
  void List(const std::vector<T>& from, std::vector<U>& to, F fields) const {
    for (const T& item : from) fields(item, to.emplace_back());
  }
  template <class T, class U, class F>
  void Maybe(const std::optional<T>& from, std::optional<U>& to, F fields) const {
    to.reset();
    if (from) fields(*from, to.emplace());
  }

 private:
  const WallClock& clock_;
};

std::optional<api::Goodput> GoodputOf(const core::Goodput& goodput) {
  const Duration lost = goodput.queue + goodput.startup + goodput.restart + goodput.redone;
  const Duration all = goodput.productive + lost;
  if (all == Duration{0}) return std::nullopt;
  const auto whole = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  api::Goodput result;
  result.ratio = fmt::format("{:.4f}", ToSeconds(goodput.productive) / ToSeconds(all));
  result.productiveSeconds = whole(goodput.productive);
  result.lostSeconds = {{"queue", whole(goodput.queue)},
                        {"startup", whole(goodput.startup)},
                        {"restart", whole(goodput.restart)},
                        {"redone", whole(goodput.redone)}};
  return result;
}

int64_t SecondsLeft(const core::ProgressView& progress, const api::TrainingJob& job) {
  const int64_t steps = progress.total_steps - progress.step;
  if (!job.spec.training) return progress.seconds_left;
  if (steps <= 0 || !(progress.samples_per_second > 0)) return 0;
  const double left =
      static_cast<double>(steps) * job.spec.training->batch.samplesPerStep / progress.samples_per_second;
  constexpr double kTooFar = 1e12;
  return left < kTooFar ? static_cast<int64_t>(std::ceil(left)) : 0;
}

}  // namespace

api::Status EncodeStatus(const core::Status& status, const api::TrainingJob& job, const WallClock& clock) {
  const StatusEncoder coder(clock);
  const core::Ledger& ledger = status.ledger;
  const core::Display& display = status.display;
  api::Status to;
  StatusFields(coder, to, status);
  for (size_t i = 0; i < core::kConditionTypes; ++i) {
    const core::Condition& condition = display.conditions[i];
    if (condition == core::Condition{}) continue;
    api::Condition& written = to.conditions.emplace_back();
    written.type = core::ConditionName(static_cast<core::ConditionType>(i));
    written.status = core::TruthName(condition.truth);
    written.reason = core::ReasonName(condition.reason);
    coder.Text(written.message, condition.message, kMaxMessage);
    coder.At(written.lastTransitionTime, condition.since);
    written.observedGeneration = display.observed_spec_generation;
  }
  api::Ledger& log = to.ledger.emplace();
  LedgerFields(coder, log, ledger);
  coder.At(log.progressAt, display.progress_at);
  if (ledger.last_failure) {
    FailureFields(coder, to.lastFailure.emplace(), *ledger.last_failure);
    coder.Text(log.endedReason, ledger.last_failure->ended_reason, kMaxReason);
  }
  if (display.progress.checkpoint_step >= 0)
    to.checkpoint = api::CheckpointStatus{display.progress.checkpoint_step, job.spec.checkpoint.path};
  to.selector = "ringmaster.dev/job=" + job.metadata.name;
  to.progress.etaSeconds = SecondsLeft(display.progress, job);
  to.goodput = GoodputOf(ledger.goodput);
  api::FillDisplay(to);
  return to;
}

core::Status DecodeStatus(const api::Status& from, const WallClock& clock) {
  const StatusDecoder coder(clock);
  core::Status status;
  core::Ledger& ledger = status.ledger;
  core::Display& display = status.display;
  StatusFields(coder, from, status);
  for (const api::Condition& condition : from.conditions) {
    auto type = static_cast<core::ConditionType>(core::kConditionTypes);
    coder.Word(condition.type, type, core::ConditionName, core::kLastCondition, type);
    if (static_cast<size_t>(type) >= core::kConditionTypes) continue;  // of a newer version
    core::Condition& read = display.conditions[static_cast<size_t>(type)];
    coder.Word(condition.status, read.truth, core::TruthName, core::Truth::kTrue, core::Truth::kUnknown);
    coder.Reason(condition.reason, read.reason);
    read.message = condition.message;
    coder.At(condition.lastTransitionTime, read.since);
  }
  if (from.ledger) {
    LedgerFields(coder, *from.ledger, ledger);
    coder.At(from.ledger->progressAt, display.progress_at);
  }
  if (from.lastFailure) {
    FailureFields(coder, *from.lastFailure, ledger.last_failure.emplace());
    if (from.ledger) ledger.last_failure->ended_reason = from.ledger->endedReason;
  }
  if (from.checkpoint) display.progress.checkpoint_step = from.checkpoint->step;
  std::sort(ledger.counted.begin(), ledger.counted.end());
  std::sort(ledger.excluded.begin(), ledger.excluded.end(),
            [](const core::ExcludedNode& a, const core::ExcludedNode& b) { return a.name < b.name; });
  return status;
}

// ---- what a newer version has written

namespace {

constexpr const char* kConditions = "conditions";

const api::Schema& StatusSchema() {
  static const api::Schema& schema = *api::JobSchema().Find("status");
  return schema;
}

bool KnowsCondition(const Json& condition) {
  for (size_t i = 0; i < core::kConditionTypes; ++i)
    if (json::Text(condition, "type") == core::ConditionName(static_cast<core::ConditionType>(i)))
      return true;
  return false;
}

Json UnknownMembers(const Json& object, const api::Schema& schema) {
  Json unknown;
  if (!object.is_object()) return unknown;
  for (const auto& [name, value] : object.items()) {
    const api::Schema* field = schema.Find(name);
    if (field == nullptr) {
      unknown[name] = value;
    } else if (field->type == api::Type::kObject) {
      if (Json inner = UnknownMembers(value, *field); !inner.is_null()) unknown[name] = std::move(inner);
    }
  }
  return unknown;
}

void KeepMembers(const Json& unknown, const api::Schema& schema, Json& object) {
  for (const auto& [name, value] : unknown.items()) {
    const api::Schema* field = schema.Find(name);
    const bool missing = !object.contains(name);
    if (field == nullptr) {
      object[name] = value;
    } else if (field->type == api::Type::kObject && !(missing && field->optional)) {
      // Of an optional object that this version has removed nothing remains.
      if (missing) object[name] = Json::object();
      KeepMembers(value, *field, object[name]);
    }
  }
}

}  // namespace

Json UnknownStatus(const Json& status) {
  Json unknown = UnknownMembers(status, StatusSchema());
  for (const Json& condition : json::Items(status, kConditions))
    if (condition.is_object() && !json::Text(condition, "type").empty() && !KnowsCondition(condition))
      unknown[kConditions].push_back(condition);
  return unknown;
}

void KeepUnknownStatus(const Json& unknown, Json& status) {
  KeepMembers(unknown, StatusSchema(), status);
  for (const Json& condition : json::Items(unknown, kConditions)) status[kConditions].push_back(condition);
}

void ClampTimes(core::Status& status, const core::Job& job, Time now) {
  const auto past = [now](Time& time) { time = std::min(time, now); };
  const auto past_if = [&](std::optional<Time>& time) {
    if (time) past(*time);
  };
  core::Ledger& ledger = status.ledger;
  past(ledger.attempt_since);
  if (ledger.last_failure) past(ledger.last_failure->at);
  past_if(ledger.ready_since);
  for (core::Absence& absence : ledger.absent) past(absence.since);
  for (core::Suspect& suspect : ledger.suspects) past(suspect.since);
  past_if(ledger.stop_since);
  past_if(ledger.active_since);
  past_if(ledger.start_time);
  past_if(ledger.completion_time);
  past(ledger.accounted);
  past_if(status.display.progress_at);
  for (core::Condition& condition : status.display.conditions) past(condition.since);
  if (ledger.not_before) {
    const Duration limit = std::max<Duration>({job.backoff_max, job.gang_timeout, kLongestBackoff});
    ledger.not_before = std::min(*ledger.not_before, now + limit);
  }
  for (core::ExcludedNode& node : ledger.excluded)
    node.until = std::min(node.until, now + job.node_exclusion);
}

}  // namespace ringmaster::kube
