// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/program_progress.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "rendezvous/codec.h"

namespace ringmaster::agent {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 52;  // JSON numbers above are not exact
constexpr size_t kMostDictionaries = 1024;        // of a program that has no progress bar

// Returns the first of these members that is a finite number; nullopt: none.
std::optional<double> NumberIn(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_number()) continue;
    const auto value = found->get<double>();
    if (std::isfinite(value)) return value;
  }
  return std::nullopt;
}

// Python writes a loss that has diverged as NaN or Infinity, which JSON does not have.
std::string WithoutNan(std::string text) {
  for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;)
      text.replace(at, word.size(), "null");
  }
  return text;
}

// Returns 0 for what is no sensible count.
int64_t CountOf(std::optional<double> number) {
  const double value = number.value_or(0);
  return value >= 1 && value <= static_cast<double>(kMostSteps) ? static_cast<int64_t>(value) : 0;
}

// Returns the number of this key in a Python dictionary. Newer releases of the Trainer put it into quotes.
std::optional<double> PythonNumber(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + key.size());
  text.remove_prefix(std::min(text.find_first_not_of(" :'"), text.size()));
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Returns the first metric of these names that is a finite number; nullopt: none. Values are texts.
std::optional<double> MetricIn(const KubeflowStatus& status, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (const auto& [key, text] : status.metrics) {
      if (key != name) continue;
      double value = 0;
      const char* const end = text.data() + text.size();
      const auto [rest, error] = std::from_chars(text.data(), end, value);
      if (error == std::errc() && rest == end && std::isfinite(value)) return value;
    }
  }
  return std::nullopt;
}

struct Bar {
  int64_t done = 0;
  int64_t total = 0;
};

// Reads "| 50/500 [" of a progress bar (tqdm).
std::optional<Bar> ReadBar(std::string_view text) {
  const size_t bracket = text.find(" [");
  if (bracket == std::string_view::npos) return std::nullopt;
  const size_t begin = text.substr(0, bracket).rfind("| ");
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view counts = text.substr(begin + 2, bracket - begin - 2);
  counts.remove_prefix(std::min(counts.find_first_not_of(' '), counts.size()));
  Bar bar;
  const char* const end = counts.data() + counts.size();
  const auto [slash, error] = std::from_chars(counts.data(), end, bar.done);
  if (error != std::errc() || slash == end || *slash != '/') return std::nullopt;
  const auto [rest, wrong] = std::from_chars(slash + 1, end, bar.total);
  if (wrong != std::errc() || rest != end || bar.done < 1 || bar.done > bar.total || bar.total > kMostSteps)
    return std::nullopt;
  return bar;
}

// Removes what launchers put in front of the lines of a rank: "[1]<stdout>:" of horovodrun, and
// "[1,0]<stdout>:" of `mpirun --tag-output`.
std::string_view WithoutTag(std::string_view text) {
  constexpr size_t kLongestTag = 80;
  if (!text.starts_with('[')) return text;
  const size_t end = text.find("]<std");
  const size_t colon = text.find(">:", end);
  if (colon == std::string_view::npos || colon > kLongestTag) return text;
  return text.substr(colon + 2);
}

}  // namespace

void ProgramProgress::Begin(Time now) {
  pending_ = {};
  dictionaries_.clear();
  bar_erased_ = false;
  steps_of_ = StepsOf::kNone;
  complete_ = false;
  newest_ = total_ = 0;
  stepped_at_ = now;
}

bool ProgramProgress::Take(std::string_view text, Time now) {
  text = WithoutTag(text);
  // Most lines report nothing: do not parse them.
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    bar_erased_ = bar_erased_ || !text.empty();
    return false;
  }
  text.remove_prefix(first);
  if (TakeBar(text, now)) return true;
  if (text.starts_with("{'")) return TakeDictionary(text);
  return text.starts_with('{') && TakeJson(text, now);
}

bool ProgramProgress::TakeJson(std::string_view text, Time now) {
  if (text.find("\"step\"") == std::string_view::npos) return false;
  Result<Json> json = ParseJson(text);
  if (!json.ok()) json = ParseJson(WithoutNan(std::string(text)));
  if (!json.ok() || !json->is_object()) return false;
  rendezvous::StepRecord record;
  record.step = CountOf(NumberIn(*json, {"step"}));
  if (record.step == 0) return false;
  record.loss = NumberIn(*json, {"loss"}).value_or(0);
  record.learning_rate = NumberIn(*json, {"lr", "learning_rate", "learningRate"}).value_or(0);
  record.gradient_norm = NumberIn(*json, {"grad_norm", "gradNorm"}).value_or(0);
  record.samples = CountOf(NumberIn(*json, {"samples"}));
  ++reports_;
  steps_of_ = StepsOf::kOutput;
  Add(record, CountOf(NumberIn(*json, {"total_steps", "totalSteps"})), now);
  return true;
}

bool ProgramProgress::TakeDictionary(std::string_view text) {
  const std::optional<double> loss = PythonNumber(text, "'loss'");
  if (!PythonNumber(text, "'epoch'")) return false;
  if (dictionaries_.size() == kMostDictionaries) dictionaries_.pop_front();
  dictionaries_.emplace_back();  // an evaluation erases the bar as well
  if (!loss) return false;
  const auto finite = [](std::optional<double> value) { return value && std::isfinite(*value) ? *value : 0; };
  rendezvous::StepRecord& record = dictionaries_.back().emplace();
  record.loss = finite(loss);
  record.learning_rate = finite(PythonNumber(text, "'learning_rate'"));
  record.gradient_norm = finite(PythonNumber(text, "'grad_norm'"));
  ++reports_;
  return true;
}

bool ProgramProgress::TakeBar(std::string_view text, Time now) {
  if (!bar_erased_) return false;
  const std::optional<Bar> bar = ReadBar(text);
  if (!bar) return false;
  bar_erased_ = false;
  if (dictionaries_.empty()) return false;  // the program printed something else
  std::optional<rendezvous::StepRecord> record = dictionaries_.front();
  dictionaries_.pop_front();
  if (!record) return false;
  record->step = bar->done;
  steps_of_ = StepsOf::kOutput;
  Add(*record, bar->total, now);
  return true;
}

void ProgramProgress::Take(const KubeflowStatus& status, Time now) {
  constexpr int32_t kWhole = 100;
  if (status.seconds_left) pending_.seconds_left = *status.seconds_left;
  if (status.percent) complete_ = *status.percent == kWhole;
  const int64_t step =
      CountOf(MetricIn(status, {"current_step", "global_step", "step", "currentStep", "globalStep"}));
  const int64_t total = CountOf(MetricIn(status, {"total_steps", "max_steps", "totalSteps", "maxSteps"}));
  const bool has_steps = step > 0 || total > 0;
  const StepsOf steps_of = has_steps ? StepsOf::kMetrics : StepsOf::kPercent;
  if (step == 0 && status.percent == 0) {  // it begins: the first step may take longer than the others
    if (has_steps) steps_of_ = std::max(steps_of_, steps_of);
    return;
  }
  ++reports_;
  rendezvous::StepRecord record;
  record.step = has_steps ? step : status.percent.value_or(0);
  if (record.step == 0 || steps_of < steps_of_) return;
  steps_of_ = steps_of;
  record.loss = MetricIn(status, {"loss", "train_loss"}).value_or(0);
  record.learning_rate = MetricIn(status, {"learning_rate", "lr"}).value_or(0);
  record.gradient_norm = MetricIn(status, {"grad_norm"}).value_or(0);
  Add(record, has_steps ? total : kWhole, now);
}

void ProgramProgress::Add(rendezvous::StepRecord record, int64_t total, Time now) {
  record.seconds = ToSeconds(now - std::exchange(stepped_at_, now));
  newest_ = std::max(newest_, record.step);
  if (total > 0) pending_.total_steps = total_ = total;
  if (pending_.records.size() >= rendezvous::kMaxRecords) pending_.records.erase(pending_.records.begin());
  pending_.records.push_back(record);
}

std::optional<rendezvous::Progress> ProgramProgress::Flush(Time now) {
  if (!has_news()) return std::nullopt;
  due_ = now + kPeriod;
  rendezvous::Progress out = pending_;
  pending_.records.clear();
  pending_.seconds_left.reset();
  return out;
}

}  // namespace ringmaster::agent
