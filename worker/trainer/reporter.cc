// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/reporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "base/log.h"

namespace ringmaster::trainer {
namespace {

using rendezvous::StepRecord;

constexpr size_t kInCheckpoint = 256;
constexpr Duration kBatch = milliseconds(20);

// Doubles are stored as bit patterns: a record repeated from a checkpoint must equal the first one bit for
// bit.
Json ToJson(const StepRecord& record) {
  return Json::array({record.step, std::bit_cast<uint64_t>(record.loss),
                      std::bit_cast<uint64_t>(record.learning_rate),
                      std::bit_cast<uint64_t>(record.gradient_norm), record.samples, record.generation,
                      record.workers, std::bit_cast<uint64_t>(record.seconds)});
}

std::optional<StepRecord> FromJson(const Json& json) {
  if (!json.is_array() || json.size() != 8) return std::nullopt;
  if (!std::ranges::all_of(json, [](const Json& item) { return item.is_number_integer(); }))
    return std::nullopt;
  StepRecord record;
  record.step = json[0].get<int64_t>();
  record.loss = std::bit_cast<double>(json[1].get<uint64_t>());
  record.learning_rate = std::bit_cast<double>(json[2].get<uint64_t>());
  record.gradient_norm = std::bit_cast<double>(json[3].get<uint64_t>());
  record.samples = json[4].get<int64_t>();
  record.generation = json[5].get<uint64_t>();
  record.workers = json[6].get<int32_t>();
  record.seconds = std::bit_cast<double>(json[7].get<uint64_t>());
  return record;
}

}  // namespace

void Reporter::Send(const rendezvous::Progress& progress) {
  if (channel_ != nullptr) channel_->Send(progress);
}

void Reporter::StartGeneration(int64_t step, bool sends, std::string transport) {
  while (!kept_.empty() && kept_.back().step > step) kept_.pop_back();
  last_ = kept_.empty() ? std::nullopt : std::optional(kept_.back());
  std::erase_if(pending_.records, [step](const StepRecord& record) { return record.step > step; });
  if (sends && (!sends_ || repeat_)) {
    pending_.records.assign(kept_.begin(), kept_.end());
    pending_.validation = validation_;
  }
  repeat_ = false;
  sends_ = sends;
  transport_ = std::move(transport);
  first_of_generation_ = true;
}

void Reporter::Committed(const StepRecord& record) {
  kept_.push_back(record);
  if (kept_.size() > rendezvous::kKeptRecords) kept_.pop_front();
  last_ = record;
  if (!sends_) return;
  pending_.records.push_back(record);
  const Time now = Now();
  if (first_of_generation_ || now - last_flush_ >= kBatch) Flush();
  first_of_generation_ = false;
}

void Reporter::CheckpointPublished(int64_t step) {
  pending_.checkpoint_step = step;
  Flush();
}

void Reporter::CheckpointFailed(const std::string& why) {
  pending_.checkpoint_failure = why;
  Flush();
}

void Reporter::Validated(const rendezvous::ValidationResult& result) {
  validation_ = pending_.validation = result;
  Flush();
}

void Reporter::Note(const std::string& text) {
  pending_.note = text;
  Flush();
}

void Reporter::NoteOfAnyMember(const std::string& text) {
  rendezvous::Progress progress;
  progress.total_steps = total_steps_;
  progress.note = text;
  Send(progress);
}

void Reporter::ContinuedWithChanges(const std::string& path, const std::vector<std::string>& changes) {
  if (changes.empty()) return;
  const std::string text = fmt::format("continues from {}, with changes: {}", path, fmt::join(changes, "; "));
  log::Warn("{}", text);
  NoteOfAnyMember(text);
}

void Reporter::CheckpointSkipped(const std::string& why) {
  log::Warn("checkpoint skipped: {}", why);
  rendezvous::Progress progress;
  progress.total_steps = total_steps_;
  progress.damaged_checkpoint = why;
  Send(progress);
}

void Reporter::Flush() {
  last_flush_ = Now();
  const bool something = !pending_.records.empty() || pending_.checkpoint_step.has_value() ||
                         pending_.checkpoint_failure.has_value() || !pending_.note.empty() ||
                         pending_.validation.has_value();
  if (sends_ && something) {
    pending_.total_steps = total_steps_;
    pending_.transport = transport_;
    Send(pending_);
  }
  pending_ = {};
}

void Reporter::RepeatAll() {
  rendezvous::Progress all;
  all.records.assign(kept_.begin(), kept_.end());
  all.total_steps = total_steps_;
  all.checkpoint_step = pending_.checkpoint_step;
  Send(all);
}

Json Reporter::RecordsForCheckpoint() const {
  Json records = Json::array();
  const size_t count = std::min(kept_.size(), kInCheckpoint);
  for (auto it = kept_.end() - static_cast<ptrdiff_t>(count); it != kept_.end(); ++it)
    records.push_back(ToJson(*it));
  return records;
}

void Reporter::Restore(const Json& records) {
  std::vector<StepRecord> read;
  if (records.is_array()) {
    for (const Json& item : records) {
      const auto record = FromJson(item);
      if (!record.has_value()) break;
      read.push_back(*record);
    }
  }
  Restore(read);
}

void Reporter::Restore(const std::vector<StepRecord>& records) {
  kept_.assign(records.begin(), records.end());
  last_.reset();
  if (!kept_.empty()) last_ = kept_.back();
  repeat_ = true;
}

}  // namespace ringmaster::trainer
