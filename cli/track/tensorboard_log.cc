// SPDX-License-Identifier: Apache-2.0

#include "cli/track/tensorboard_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>

#include "base/file.h"
#include "base/open_file.h"
#include "cli/track/tf_record.h"

namespace ringmaster::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kSuffix = ".ringmaster";

// Returns the event files in the folder, in the order of their names, which begin with a time.
std::vector<fs::path> EventFiles(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

int64_t TimeIn(const fs::path& file) {
  return std::strtoll(file.filename().string().substr(kPrefix.size()).c_str(), nullptr, 10);
}

std::map<int64_t, double> WallTimesIn(const std::vector<fs::path>& files) {
  std::map<int64_t, double> times;
  for (const fs::path& file : files) {
    const auto text = ReadFile(file.string());
    if (!text.ok()) continue;
    std::string_view bytes = *text;
    while (const auto record = TakeTfRecord(bytes)) {
      if (const auto head = ReadEventHead(*record); head && head->step > 0)
        times.emplace(head->step, head->wall_time);
    }
  }
  return times;
}

std::string EventOf(const rendezvous::StepRecord& record, double wall_time) {
  const auto number = [](double value) { return static_cast<float>(value); };
  std::vector<Scalar> scalars = {{"train/loss", number(record.loss)},
                                 {"train/learning_rate", number(record.learning_rate)},
                                 {"train/gradient_norm", number(record.gradient_norm)},
                                 {"gang/workers", static_cast<float>(record.workers)},
                                 {"gang/generation", static_cast<float>(record.generation & 0xffffffff)}};
  if (record.seconds > 0)
    scalars.push_back(
        {"train/samples_per_second", number(static_cast<double>(record.samples) / record.seconds)});
  return ScalarsEvent(wall_time, record.step, scalars);
}

std::string EventOf(const rendezvous::ValidationResult& result, double wall_time) {
  std::vector<Scalar> scalars = {{"validation/loss", static_cast<float>(result.loss)}};
  if (result.accuracy) scalars.push_back({"validation/accuracy", static_cast<float>(*result.accuracy)});
  return ScalarsEvent(wall_time, result.step, scalars);
}

}  // namespace

Result<std::unique_ptr<TensorboardLog>> TensorboardLog::Open(const std::string& folder,
                                                             const std::vector<rendezvous::StepRecord>& steps,
                                                             const std::vector<RunEvent>& events,
                                                             int64_t resume_step, double now) {
  RM_TRY(MakeFolder(folder));
  const std::vector<fs::path> older = EventFiles(folder);
  const std::map<int64_t, double> times = WallTimesIn(older);
  const auto time_of = [&](int64_t step) {
    const auto at = times.find(step);
    return at == times.end() ? now : at->second;
  };
  // TensorBoard reads the files in the order of their names.
  int64_t name = static_cast<int64_t>(now);
  if (!older.empty()) name = std::max(name, TimeIn(older.back()) + 1);
  const std::string path = fmt::format("{}/{}{:010}{}", folder, kPrefix, name, kSuffix);
  std::string text = TfRecord(VersionEvent(now));
  if (!older.empty()) text += TfRecord(RestartEvent(now, 1));
  std::set<int64_t> validated;
  std::map<int64_t, const RunEvent*> validations;
  for (const RunEvent& event : events)
    if (event.reason == "Validated" && event.loss && event.step <= resume_step)
      validations[event.step] = &event;
  auto validation = validations.begin();
  const auto add_validations = [&](int64_t before) {
    for (; validation != validations.end() && validation->first < before; ++validation) {
      const RunEvent& event = *validation->second;
      text += TfRecord(EventOf({event.step, *event.loss, event.accuracy}, time_of(event.step)));
      validated.insert(event.step);
    }
  };
  for (const rendezvous::StepRecord& record : steps) {
    if (record.step > resume_step) break;
    add_validations(record.step);
    text += TfRecord(EventOf(record, time_of(record.step)));
  }
  add_validations(resume_step + 1);
  RM_TRY(WriteFileAtomic(path, text));
  // A TensorBoard that reads an older file advances at its end, and never where the file is missing.
  for (const fs::path& file : older) {
    std::error_code error;
    fs::resize_file(file, 0, error);
    if (error) return Error{Code::kUnavailable, "empty " + file.string() + ": " + error.message()};
  }
  Fd file = OpenFile(path, O_WRONLY | O_APPEND);
  if (!file.valid()) return ErrnoError("open " + path, errno);
  std::unique_ptr<TensorboardLog> log(new TensorboardLog(std::move(file), path));
  log->validated_ = std::move(validated);
  return log;
}

Status TensorboardLog::Write(std::string_view event) {
  const std::string record = TfRecord(event);
  return WriteAll(file_, path_, std::as_bytes(std::span(record)));
}

Status TensorboardLog::Add(const rendezvous::StepRecord& record, double now) {
  return Write(EventOf(record, now));
}

Status TensorboardLog::AddValidation(const rendezvous::ValidationResult& result, double now) {
  if (!validated_.insert(result.step).second) return Ok();
  return Write(EventOf(result, now));
}

}  // namespace ringmaster::cli
