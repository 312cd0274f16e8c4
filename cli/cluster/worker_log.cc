// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/worker_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>

#include "cli/ui/plain_text.h"

namespace ringmaster::cli {
namespace {

// Returns the text after `key`; nullopt without the key.
std::optional<std::string_view> After(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return text.substr(at + key.size());
}

// Parses the number at the start of the text after `key`.
template <class T>
std::optional<T> NumberAfter(std::string_view text, std::string_view key) {
  const auto rest = After(text, key);
  if (!rest) return std::nullopt;
  T number{};
  const auto [end, error] = std::from_chars(rest->data(), rest->data() + rest->size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

constexpr int kMaxWorld = 100'000;
constexpr size_t kMarksCompared = 100;
constexpr int64_t kMaxStep = int64_t{1} << 53;  // exact in a page
constexpr double kMaxSeconds = 1e9;

double ValueAfter(std::string_view text, std::string_view key) {
  return NumberAfter<double>(text, key).value_or(NAN);
}

bool IsTime(double seconds) { return seconds >= 0 && seconds < kMaxSeconds; }

// Returns the busy times of a line about `step`.
std::optional<BusyReport> BusyIn(std::string_view text, int64_t step) {
  const auto generation = NumberAfter<uint64_t>(text, " generation=");
  const auto rank = NumberAfter<int>(text, " rank="),
             micro_batches = NumberAfter<int>(text, " micro_batches=");
  const double seconds = ValueAfter(text, " busy="), longest = ValueAfter(text, " longest=");
  if (!generation || !rank || *rank < 0 || *rank >= kMaxWorld || !micro_batches || *micro_batches < 1 ||
      !IsTime(seconds) || !IsTime(longest))
    return std::nullopt;
  return BusyReport{*generation, *rank, step, seconds, longest, *micro_batches};
}

// Of one failure there are up to two marks, and the end of a training without a failure has one.
constexpr size_t kFailures = 3;
constexpr auto kReportedWithin = std::chrono::seconds(20);

bool IsFailure(const LogMark& mark) {
  return mark.kind == LogMark::Kind::kLost || (mark.kind == LogMark::Kind::kEnded && mark.exit_code != 0);
}

std::optional<LogMark> MarkIn(std::string_view text) {
  LogMark mark;
  const auto member = [&](std::optional<uint64_t> generation, const char* rank, const char* world) {
    const auto of = NumberAfter<int>(text, rank), size = NumberAfter<int>(text, world);
    if (!generation || !of || !size || *of < 0 || *of >= *size || *size > kMaxWorld) return false;
    mark.kind = LogMark::Kind::kMember;
    mark.generation = *generation;
    mark.rank = *of;
    mark.world = *size;
    return true;
  };
  if (After(text, " transport=") && member(NumberAfter<uint64_t>(text, " generation="), " rank=", " world="))
    return mark;
  if (After(text, "program pid=")) {
    if (member(NumberAfter<uint64_t>(text, " started, incarnation "), " rank=", " of ")) return mark;
    if (const auto code = NumberAfter<int>(text, " ended code=")) {
      mark.kind = LogMark::Kind::kEnded;
      mark.exit_code = *code;
      return mark;
    }
  }
  if (After(text, "trainer member=")) {
    if (const auto lost = After(text, " lost evidence=")) {
      const size_t space = std::min(lost->find(' '), lost->size());
      mark.kind = LogMark::Kind::kLost;
      mark.evidence = lost->substr(0, space);
      if (space < lost->size()) mark.text = lost->substr(space + 1);
      return mark;
    }
    if (const auto code = NumberAfter<int>(text, " ended code=")) {
      mark.kind = LogMark::Kind::kEnded;
      mark.exit_code = *code;
      return mark;
    }
  }
  if (const auto ended = After(text, " ended: "); ended && After(text, " generation ")) {
    if (const auto generation = NumberAfter<uint64_t>(text, " generation ")) {
      mark.kind = LogMark::Kind::kPeerLost;
      mark.generation = *generation;
      mark.text = *ended;
      return mark;
    }
  }
  if (const auto signal = NumberAfter<int>(text, " signal "); signal && text.ends_with(": leaving")) {
    mark.kind = LogMark::Kind::kLeaving;
    mark.text = fmt::format("signal {}", *signal);
    return mark;
  }
  return std::nullopt;
}

}  // namespace

void WorkerLog::Add(std::string_view line, kube::WallTime known) {
  const size_t space = line.find(' ');
  const auto time = kube::ParseWallTime(line.substr(0, std::min(space, line.size())));
  if (time.ok()) {
    if (*time <= known) return;
    newest_ = std::max(newest_, *time);
    line.remove_prefix(std::min(space, line.size() - 1) + 1);
  }
  line = line.substr(0, kLineBytes);
  const uint64_t marked = marked_;
  // A space before the first word, so that a key at the start of the line is found like the others.
  const std::string text = " " + std::string(line);
  ReadStep(text);
  Mark(text);
  tail_.push_back({newest_, std::string(line)});
  if (tail_.size() > kLines) tail_.pop_front();
  if (marked_ == marked || !IsFailure(marks_.back())) return;
  failures_.push_back(tail_);
  if (failures_.size() > kFailures) failures_.pop_front();
}

void WorkerLog::ReadStep(std::string_view text) {
  const auto step = NumberAfter<int64_t>(text, " step="), steps = NumberAfter<int64_t>(text, " steps=");
  if (!step || !steps || *step < 1 || *step > *steps || *steps > kMaxStep) return;
  LogStep read{*step};
  read.loss = ValueAfter(text, " loss=");
  read.learning_rate = ValueAfter(text, " lr=");
  read.samples_per_second = ValueAfter(text, " samples_per_second=");
  if (const auto of = NumberAfter<int64_t>(text, " validation_step="); of && *of >= 1 && *of <= *steps) {
    read.validation = ValueAfter(text, " validation=");
    read.validation_step = *of;
  }
  if (steps_.size() == kSteps) steps_.erase(steps_.begin(), steps_.begin() + kSteps / 4);
  steps_.push_back(read);
  if (const auto busy = BusyIn(text, *step)) {
    if (busy_.size() == kBusy) busy_.pop_front();
    busy_.push_back(*busy);
    ++busy_read_;
  }
}

void WorkerLog::Mark(std::string_view text) {
  auto mark = MarkIn(text);
  if (!mark) return;
  mark->at = newest_;
  // The trainer logs a membership again when it knows the transport of its devices, and with its progress.
  if (mark->kind == LogMark::Kind::kMember) {
    const auto newest = marks_.end() - static_cast<std::ptrdiff_t>(std::min(marks_.size(), kMarksCompared));
    if (std::any_of(newest, marks_.end(), [&](const LogMark& known) {
          return known.kind == mark->kind && known.generation == mark->generation && known.rank == mark->rank;
        }))
      return;
  }
  if (marks_.size() == kMarks) marks_.erase(marks_.begin(), marks_.begin() + kMarks / 4);
  marks_.push_back(*std::move(mark));
  ++marked_;
}

std::string WorkerLog::Tail() const {
  std::string text;
  for (const Line& line : tail_) text += line.text + "\n";
  return PlainText(text);
}

std::string WorkerLog::TailOfFailure(kube::WallTime reported) const {
  // The log has the failure before the operator reports it, but for the fraction of the second.
  const kube::WallTime latest = reported + std::chrono::seconds(1);
  kube::WallTime until = latest;
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark) {
    if (!IsFailure(*mark) || mark->at > latest) continue;
    if (latest - mark->at < kReportedWithin) until = mark->at;
    break;
  }
  const Lines* lines = &tail_;
  // After many more lines only the copies have those of the failure.
  for (const Lines& copy : failures_)
    if ((tail_.empty() || tail_.front().at > until) && copy.back().at <= until) lines = &copy;
  std::string text;
  for (const Line& line : *lines)
    if (line.at <= until) text += line.text + "\n";
  return PlainText(text);
}

}  // namespace ringmaster::cli
