// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/progress_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::trainer {
namespace {

std::string ValidationWords(const rendezvous::ValidationResult& result) {
  std::string text = fmt::format(" validation={:.6g} validation_step={}", result.loss, result.step);
  if (result.accuracy) text += fmt::format(" accuracy={:.4g}", *result.accuracy);
  return text;
}

}  // namespace

void ProgressLog::StartGeneration(int rank, std::string transport) {
  rank_ = rank;
  transport_ = std::move(transport);
  StartSums();
}

void ProgressLog::StartSums() {
  samples_ = 0;
  seconds_ = 0;
  busy_steps_ = 0;
  busy_ = longest_ = {};
}

std::optional<std::string> ProgressLog::Committed(const rendezvous::StepRecord& record, Duration busy,
                                                  int32_t micro_batches, Time now) {
  samples_ += record.samples;
  seconds_ += record.seconds;
  if (micro_batches > 0) {
    ++busy_steps_;
    busy_ += busy;
    longest_ = std::max(longest_, busy);
    micro_batches_ = micro_batches;
  }
  if (last_line_ && now - *last_line_ < kPeriod && record.step < total_steps_) return std::nullopt;
  std::string line = Line(record);
  last_line_ = now;
  validation_.reset();
  StartSums();
  return line;
}

std::string ProgressLog::Line(const rendezvous::StepRecord& record) const {
  std::string line = fmt::format("step={} steps={} loss={:.6g} lr={:.6g} grad_norm={:.4g}", record.step,
                                 total_steps_, record.loss, record.learning_rate, record.gradient_norm);
  if (seconds_ > 0)
    line += fmt::format(" samples_per_second={:.4g}", static_cast<double>(samples_) / seconds_);
  if (busy_steps_ > 0)
    line +=
        fmt::format(" busy={:.4g} longest={:.4g} micro_batches={}",
                    ToSeconds(busy_) / static_cast<double>(busy_steps_), ToSeconds(longest_), micro_batches_);
  if (validation_) line += ValidationWords(*validation_);
  return line + fmt::format(" generation={} rank={} world={} transport={}", record.generation, rank_,
                            record.workers, transport_);
}

std::string ProgressLog::LastValidation(const rendezvous::ValidationResult& result) const {
  return fmt::format("step={} steps={}{}", result.step, total_steps_, ValidationWords(result));
}

}  // namespace ringmaster::trainer
