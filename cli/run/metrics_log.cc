// SPDX-License-Identifier: Apache-2.0

#include "cli/run/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <span>

#include "base/file.h"

namespace ringmaster::cli {
namespace {

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

}  // namespace

MetricsLog::MetricsLog(Fd file, std::string path, int64_t last_step, std::optional<double> last_loss,
                       bool may_skip)
    : file_(std::move(file)),
      path_(std::move(path)),
      last_step_(last_step),
      last_loss_(last_loss),
      may_skip_(may_skip) {}

int64_t MetricsLog::LastStepOf(const std::string& path) {
  const auto text = ReadFile(path);
  return text.ok() ? KeepUpTo(*text, std::numeric_limits<int64_t>::max()).last_step : 0;
}

Result<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path, int64_t resume_step,
                                                     bool may_skip) {
  Kept kept;
  if (resume_step > 0) {
    auto text = ReadFile(path);
    if (!text.ok() && text.error().code != Code::kNotFound) return text.error();
    if (text.ok()) kept = KeepUpTo(*text, resume_step);
  }
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (!file.valid()) return ErrnoError("open " + path, errno);
  if (::ftruncate(file.get(), static_cast<off_t>(kept.bytes)) != 0)
    return ErrnoError("truncate " + path, errno);
  // Without a usable line the records before the checkpoint are lost: continue after it.
  const int64_t last = kept.bytes == 0 ? resume_step : kept.last_step;
  return std::unique_ptr<MetricsLog>(new MetricsLog(std::move(file), path, last, kept.last_loss, may_skip));
}

Status MetricsLog::Write(const rendezvous::StepRecord& record) {
  const std::string line = writer_.Line(record) + "\n";
  RM_TRY(WriteAll(file_, path_, std::as_bytes(std::span(line))));
  last_step_ = record.step;
  last_loss_ = record.loss;
  return Ok();
}

Result<std::vector<rendezvous::StepRecord>> MetricsLog::Add(const rendezvous::StepRecord& record) {
  std::vector<rendezvous::StepRecord> written;
  if (record.step > last_step_) waiting_.emplace(record.step, record);  // keeps the first of each step
  const bool give_up = may_skip_ || waiting_.size() > kMaxWaiting;
  while (!waiting_.empty() && (give_up || waiting_.begin()->first == last_step_ + 1)) {
    RM_TRY(Write(waiting_.begin()->second));
    written.push_back(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
  return written;
}

Result<std::vector<rendezvous::StepRecord>> MetricsLog::Finish() {
  std::vector<rendezvous::StepRecord> written;
  for (const auto& [step, record] : waiting_) {
    RM_TRY(Write(record));
    written.push_back(record);
  }
  waiting_.clear();
  if (::fdatasync(file_.get()) != 0 && !HasNoFsync(errno)) return ErrnoError("sync " + path_, errno);
  return written;
}

}  // namespace ringmaster::cli
