// SPDX-License-Identifier: Apache-2.0

#include "cli/run/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <span>

#include "base/file.h"
#include "base/log.h"
#include "base/open_file.h"

namespace ringmaster::cli {
namespace {

constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max();

struct Kept {
  size_t bytes = 0;       // length of the kept part of the file
  int64_t last_step = 0;  // step of its last line
  std::optional<double> last_loss;
};

// Keeps whole lines in order up to `resume_step`. The first torn or invalid line ends the kept part.
Kept KeepUpTo(const std::string& text, int64_t resume_step) {
  Kept kept;
  StepLineReader reader;
  while (kept.bytes < text.size()) {
    const size_t end = text.find('\n', kept.bytes);
    if (end == std::string::npos) break;
    std::vector<rendezvous::StepRecord> line;
    auto read = reader.Read(std::string_view(text).substr(kept.bytes, end + 1 - kept.bytes), &line);
    if (!read.ok() || line.empty()) break;
    const rendezvous::StepRecord& record = line.front();
    if (record.step <= kept.last_step || record.step > resume_step) break;
    kept = {end + 1, record.step, std::isfinite(record.loss) ? std::optional(record.loss) : std::nullopt};
  }
  return kept;
}

// The text of the file; empty if it does not exist.
Result<std::string> TextOf(const std::string& path) {
  auto text = ReadFile(path);
  if (!text.ok() && text.error().code == Code::kNotFound) return std::string();
  return text;
}

}  // namespace

Result<int64_t> MetricsLog::LastStepOf(const std::string& path) {
  RM_ASSIGN(const std::string text, TextOf(path));
  return KeepUpTo(text, kAllSteps).last_step;
}

Result<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path,
                                                     std::optional<int64_t> resume_step, bool may_skip) {
  std::unique_ptr<MetricsLog> log(new MetricsLog(path, may_skip));
  log->undecided_ = !resume_step.has_value();
  if (resume_step == 0) {
    RM_TRY(WriteFileAtomic(path, ""));
  } else {
    RM_TRY(log->Keep(resume_step.value_or(kAllSteps)));
  }
  // Without a usable line the records before the checkpoint are lost: continue after it.
  if (log->last_step_ == 0) log->last_step_ = resume_step.value_or(0);
  RM_TRY(log->Reopen());
  return log;
}

// A process that follows the file sees another file, and reads it from the beginning.
Status MetricsLog::Keep(int64_t last_step) {
  RM_ASSIGN(const std::string text, TextOf(path_));
  const Kept kept = KeepUpTo(text, last_step);
  if (kept.bytes < text.size()) RM_TRY(WriteFileAtomic(path_, std::string_view(text).substr(0, kept.bytes)));
  size_ = kept.bytes;
  last_step_ = kept.last_step;
  last_loss_ = kept.last_loss;
  return Ok();
}

// Cuts the file before the first record of this run. After an error the next call tries again: `undecided_`
// stays true until the file ends where the run continues.
Status MetricsLog::Decide() {
  if (!undecided_ || waiting_.empty()) return Ok();
  const int64_t first = waiting_.begin()->first;
  if (first <= last_step_ || !file_.valid()) {
    RM_TRY(Keep(first - 1));
    RM_TRY(Reopen());
  }
  undecided_ = false;
  return Ok();
}

Status MetricsLog::Reopen() {
  file_ = OpenFile(path_, O_WRONLY | O_CREAT | O_APPEND, 0644);
  return file_.valid() ? Ok() : Status(ErrnoError("open " + path_, errno));
}

Status MetricsLog::Write(const rendezvous::StepRecord& record) {
  StepLineWriter writer = writer_;
  const std::string line = writer.Line(record) + "\n";
  const Status written = WriteAll(file_, path_, std::as_bytes(std::span(line)));
  if (!written.ok()) {
    // Without the part that was written, the line can be written again.
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
      log::Warn("metrics: {}", ErrnoError("truncate " + path_, errno).message);
    return written;
  }
  writer_ = writer;
  size_ += line.size();
  last_step_ = record.step;
  last_loss_ = record.loss;
  return Ok();
}

Result<std::vector<rendezvous::StepRecord>> MetricsLog::Add(const rendezvous::StepRecord& record) {
  std::vector<rendezvous::StepRecord> written;
  // Keeps the first of each step.
  if (undecided_ || record.step > last_step_) waiting_.emplace(record.step, record);
  RM_TRY(Decide());
  const bool give_up = may_skip_ || waiting_.size() > kMaxWaiting;
  while (!waiting_.empty() && (give_up || waiting_.begin()->first == last_step_ + 1)) {
    const Status wrote = Write(waiting_.begin()->second);
    if (!wrote.ok() && written.empty()) return wrote.error();
    if (!wrote.ok()) return written;  // the next call tries again
    written.push_back(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  return written;
}

Result<std::vector<rendezvous::StepRecord>> MetricsLog::Finish() {
  std::vector<rendezvous::StepRecord> written;
  RM_TRY(Decide());
  while (!waiting_.empty()) {
    RM_TRY(Write(waiting_.begin()->second));
    written.push_back(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  if (WithoutInterrupts([&] { return ::fdatasync(file_.get()); }) != 0 && !HasNoFsync(errno))
    return ErrnoError("sync " + path_, errno);
  return written;
}

}  // namespace ringmaster::cli
