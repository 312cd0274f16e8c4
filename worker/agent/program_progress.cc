// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program_progress.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/json.h"
#include "rendezvous/codec.h"

namespace ringmaster::agent {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 52;  // JSON numbers above are not exact

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
int64_t CountIn(const Json& object, std::initializer_list<const char*> names) {
  const double value = NumberIn(object, names).value_or(0);
  return value >= 1 && value <= static_cast<double>(kMostSteps) ? static_cast<int64_t>(value) : 0;
}

}  // namespace

void ProgramProgress::Begin(Time now) {
  pending_ = {};
  stepped_at_ = now;
}

bool ProgramProgress::Take(std::string_view text, Time now) {
  // Most lines are no JSON: do not parse them.
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos || text[first] != '{' ||
      text.find("\"step\"") == std::string_view::npos)
    return false;
  Result<Json> json = ParseJson(text);
  if (!json.ok()) json = ParseJson(WithoutNan(std::string(text)));
  if (!json.ok() || !json->is_object()) return false;
  rendezvous::StepRecord record;
  record.step = CountIn(*json, {"step"});
  if (record.step == 0) return false;
  record.loss = NumberIn(*json, {"loss"}).value_or(0);
  record.learning_rate = NumberIn(*json, {"lr", "learning_rate", "learningRate"}).value_or(0);
  record.gradient_norm = NumberIn(*json, {"grad_norm", "gradNorm"}).value_or(0);
  record.samples = CountIn(*json, {"samples"});
  record.seconds = ToSeconds(now - std::exchange(stepped_at_, now));
  if (const int64_t total = CountIn(*json, {"total_steps", "totalSteps"}); total > 0)
    pending_.total_steps = total;
  if (pending_.records.size() >= rendezvous::kMaxRecords) pending_.records.erase(pending_.records.begin());
  pending_.records.push_back(record);
  return true;
}

std::optional<rendezvous::Progress> ProgramProgress::Flush(Time now) {
  if (pending_.records.empty()) return std::nullopt;
  due_ = now + kPeriod;
  rendezvous::Progress out = pending_;
  pending_.records.clear();
  return out;
}

}  // namespace ringmaster::agent
