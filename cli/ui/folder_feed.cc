// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/folder_feed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/open_file.h"
#include "cli/ui/log_file.h"
#include "cli/ui/page_json.h"
#include "cli/ui/plain_text.h"

namespace ringmaster::cli {
namespace {

constexpr auto kPause = milliseconds(500);
constexpr auto kPeriod = seconds(2);  // where inotify sees no writes, such as those of other hosts
// Between two messages with what changes in each step: a page draws no faster, and each message wakes a
// browser.
constexpr auto kPauseOfSteps = seconds(2);
constexpr size_t kMaxEvents = 2000;
constexpr size_t kMaxGenerations = 400;
constexpr size_t kLogBytes = 64 << 10;
constexpr size_t kLogLines = 300;

// Returns whether a process holds a lock of the file (`ringmaster run` locks its folder). It reads the
// kernel's list: taking the lock, even for a moment, could refuse a run that starts.
bool IsLocked(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  auto locks = ReadFile("/proc/locks");
  return locks.ok() && locks->find(fmt::format(":{} 0 EOF", status.st_ino)) != std::string::npos;
}

bool IsEnd(const std::string& reason) {
  return reason == "Succeeded" || reason == "Failed" || reason == "Interrupted";
}

http::Response PlainResponse(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text)};
}

}  // namespace

Result<std::unique_ptr<FolderFeed>> FolderFeed::Open(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/events.jsonl", ignored) &&
      !std::filesystem::exists(folder + "/metrics.jsonl", ignored))
    return Error{Code::kNotFound,
                 folder + ": has no metrics.jsonl; expected the output folder of `ringmaster run`"};
  return OpenEarly(folder);
}

Result<std::unique_ptr<FolderFeed>> FolderFeed::OpenEarly(const std::string& folder) {
  std::unique_ptr<FolderFeed> feed(new FolderFeed(folder));
  feed->watch_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // Without inotify the feed reads the files periodically.
  if (feed->watch_.valid())
    ::inotify_add_watch(feed->watch_.get(), folder.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE);
  FeedThread::Options options;
  options.tick = [raw = feed.get()] { raw->Tick(); };
  options.watch_fd = feed->watch_.get();
  options.pause = kPause;
  options.period = kPeriod;
  feed->thread_.Start(std::move(options));
  return feed;
}

FolderFeed::FolderFeed(std::string folder) : folder_(std::move(folder)) {
  std::filesystem::path path = std::filesystem::absolute(folder_).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  name_ = path.filename().string();
  metrics_.path = folder_ + "/metrics.jsonl";
  log_of_events_.path = folder_ + "/events.jsonl";
  log_of_busy_times_.path = folder_ + "/busy_times.jsonl";
  reader_ = std::make_unique<StepLineReader>();
}

FolderFeed::~FolderFeed() { Finish(); }

void FolderFeed::Finish() {
  thread_.Stop();
  subscribers_.clear();
}

void FolderFeed::Subscribe(const std::string&, http::BodyStream stream) {
  thread_.Post([this, stream = std::move(stream)] {
    Refresh();
    Subscriber subscriber{stream};
    if (Send(subscriber, RunMessage())) subscribers_.push_back(std::move(subscriber));
  });
}

void FolderFeed::Steps(const std::string&, int64_t from, int64_t to, http::Responder reply) {
  thread_.Post([this, from, to, reply = std::move(reply)] {
    Refresh();
    reply({200, "application/json", buckets_.JsonOfRange(from, to)});
  });
}

void FolderFeed::Log(const std::string&, const std::string& worker, const std::string& until,
                     http::Responder reply) {
  thread_.Post([this, worker, until, reply = std::move(reply)] {
    Refresh();
    // Only names of workers in the events: a request must not choose a path.
    const bool known = std::any_of(events_.begin(), events_.end(), [&](const RunEvent& event) {
      return event.pod == worker ||
             std::find(event.workers.begin(), event.workers.end(), worker) != event.workers.end();
    });
    if (!known || worker.empty() || worker.find('/') != std::string::npos)
      return reply(PlainResponse(404, "no such worker\n"));
    const std::string path = folder_ + "/logs/" + worker + ".log";
    const auto text = until.empty() ? EndOfLog(path, kLogBytes) : LogUntil(path, until, kLogBytes);
    if (!text.ok() && text.error().code == Code::kInvalid)
      return reply(PlainResponse(400, text.error().message + "\n"));
    if (!text.ok()) return reply(PlainResponse(404, "this worker has no log\n"));
    reply(PlainResponse(200, std::string(LastLines(PlainText(*text), kLogLines))));
  });
}

// Appends new bytes to tail.rest. Returns whether there are any. `restarted`: the file was replaced or
// truncated, so its content begins again.
bool FolderFeed::ReadMore(Tail& tail, bool* restarted) {
  *restarted = false;
  const Fd file = OpenFile(tail.path, O_RDONLY);
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return false;
  const auto size = static_cast<uint64_t>(std::max<off_t>(0, status.st_size));
  if (status.st_ino != tail.inode || size < tail.offset) {
    *restarted = tail.inode != 0;
    tail.inode = status.st_ino;
    tail.offset = 0;
    tail.rest.clear();
  }
  if (size == tail.offset) return false;
  const size_t kept = tail.rest.size();
  tail.rest.resize(kept + (size - tail.offset));
  size_t filled = kept;
  while (filled < tail.rest.size()) {
    const ssize_t n = ::pread(file.get(), tail.rest.data() + filled, tail.rest.size() - filled,
                              static_cast<off_t>(tail.offset + (filled - kept)));
    if (n <= 0) break;
    filled += static_cast<size_t>(n);
  }
  tail.rest.resize(filled);
  tail.offset += filled - kept;
  return filled > kept;
}

void FolderFeed::ReadSteps() {
  bool restarted = false;
  const bool more = ReadMore(metrics_, &restarted);
  if (restarted) {
    buckets_.Clear();
    reader_ = std::make_unique<StepLineReader>();
    damage_.clear();
    for (Subscriber& subscriber : subscribers_) subscriber.stride = subscriber.steps = 0;
  }
  if (!more || !damage_.empty()) return;
  std::vector<rendezvous::StepRecord> records;
  auto read = reader_->Read(metrics_.rest, &records);
  if (!read.ok()) damage_ = "metrics.jsonl: " + read.error().message;
  metrics_.rest.erase(0, read.ok() ? *read : metrics_.rest.size());
  metrics_.rest.shrink_to_fit();
  if (!records.empty()) buckets_.Add(std::move(records));
}

void FolderFeed::ReadEvents() {
  bool restarted = false;
  const bool more = ReadMore(log_of_events_, &restarted);
  if (restarted) {
    events_.clear();
    for (Subscriber& subscriber : subscribers_) subscriber.events = 0, subscriber.gang = false;
  }
  if (!more) return;
  std::string& text = log_of_events_.rest;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto event = ParseEventLine(std::string_view(text).substr(begin, end - begin));
    if (event.ok()) events_.push_back(*std::move(event));
  }
  text.erase(0, begin);
  gang_ = TimelineOf(events_);
  std::map<rendezvous::Generation, double> formed;
  int64_t resumed_from = 0;
  for (const RunEvent& event : events_) {
    if (event.reason == "Started") formed.clear(), resumed_from = event.step;
    if (event.reason == "GenerationFormed") formed[event.generation] = event.monotonic_seconds;
  }
  buckets_.SetGenerations(std::move(formed), resumed_from);
}

void FolderFeed::ReadBusyTimes() {
  bool restarted = false;
  const bool more = ReadMore(log_of_busy_times_, &restarted);
  if (restarted) {
    busy_ = {};
    for (Subscriber& subscriber : subscribers_) subscriber.busy = 0;
  }
  if (!more) return;
  std::string& text = log_of_busy_times_.rest;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    busy_.Read(std::string_view(text).substr(begin, end - begin));
  text.erase(0, begin);
}

std::string FolderFeed::RunMessage() {
  Json run{{"kind", "folder"}, {"name", name_}, {"goodput", buckets_.Goodput()}};
  int64_t total = 0;
  std::string phase;
  for (const RunEvent& event : events_) {
    if (event.reason == "Started") phase.clear(), total = event.total_steps;
    if (IsEnd(event.reason)) phase = event.reason, run["message"] = event.message;
  }
  const bool running = phase.empty() && IsLocked(folder_ + "/.lock");
  run["phase"] = !phase.empty() ? phase : running ? "Running" : "Unfinished";
  if (phase.empty() && !running) run["message"] = "the run ended without a summary";
  run["live"] = running_ = running;
  if (!damage_.empty()) run["message"] = damage_;
  run["totalSteps"] = total;
  if (!buckets_.steps().empty()) {
    const rendezvous::StepRecord& last = buckets_.steps().back();
    run["step"] = last.step;
    if (std::isfinite(last.loss)) run["loss"] = last.loss;
    run["workers"] = last.workers;
    run["samplesPerSecond"] = buckets_.SamplesPerSecond();
  }
  run["failure"] = LastFailureJson(events_);
  run["validation"] = ValidationJson(events_);
  if (!phase.empty()) {
    auto text = ReadFile(folder_ + "/summary.json", 1U << 20);
    auto summary = text.ok() ? ParseJson(*text) : Result<Json>(Json());
    if (summary.ok() && summary->is_object()) run["summary"] = *std::move(summary);
  }
  return DumpJson(run);
}

void FolderFeed::Refresh() {
  ReadEvents();  // first: a step belongs to a generation
  ReadSteps();
  ReadBusyTimes();
}

void FolderFeed::Tick() {
  std::array<char, 4096> ignored{};
  while (watch_.valid() && ::read(watch_.get(), ignored.data(), ignored.size()) > 0) {
  }
  // Without a page, only the first tick reads: the first page finds a long run loaded.
  if (loaded_ && subscribers_.empty()) return;
  loaded_ = true;
  ReadEvents();
  // A request may have read the newest events before this tick.
  const bool due =
      std::any_of(subscribers_.begin(), subscribers_.end(), [this, now = Now()](const Subscriber& one) {
        return one.steps_due <= now || one.events < events_.size();
      });
  // Of a run that only makes steps, nothing more is read until they are due.
  if (running_ && !due) return;
  ReadSteps();
  ReadBusyTimes();
  SendAll();
}

void FolderFeed::SendAll() {
  if (subscribers_.empty()) return;
  const std::string run = RunMessage();
  std::erase_if(subscribers_, [&](Subscriber& subscriber) { return !Send(subscriber, run); });
}

bool FolderFeed::Send(Subscriber& subscriber, const std::string& run) {
  std::string text;
  // An event and the end of a run are sent at once, with the steps that belong to them.
  const bool news = !running_ || subscriber.events < events_.size() || !subscriber.gang;
  if (!news && Now() < subscriber.steps_due) return subscriber.stream.Write({});
  subscriber.steps_due = Now() + kPauseOfSteps;
  if (run != subscriber.run) {
    text += ServerSentEvent("run", run);
    subscriber.run = run;
  }
  if (const size_t count = buckets_.steps().size(); subscriber.stride == 0 || count > subscriber.steps) {
    const size_t stride = StepBuckets::StrideFor(count);
    const size_t first = stride == subscriber.stride ? subscriber.steps : 0;
    text += ServerSentEvent("steps", buckets_.Json(first, stride));
    subscriber.stride = stride;
    subscriber.steps = count;
  }
  if (subscriber.events < events_.size() || !subscriber.gang) {
    const Json events{{"reset", subscriber.events == 0},
                      {"items", EventsJson(events_, subscriber.events, kMaxEvents)}};
    text += ServerSentEvent("events", DumpJson(events));
    Json gang = TimelineJson(gang_, kMaxGenerations);
    // The newest event may be old: without this the page would continue the timeline from there.
    if (running_) gang["now"] = ToSeconds(Now().time_since_epoch()) - gang_.zero;
    text += ServerSentEvent("gang", DumpJson(gang));
    subscriber.events = events_.size();
    subscriber.gang = true;
  }
  if (subscriber.busy < busy_.count()) {
    text += ServerSentEvent("busy", DumpJson(busy_.ToJson(subscriber.busy)));
    subscriber.busy = busy_.count();
  }
  // The piece may be empty: then this only asks whether the client is still there.
  return subscriber.stream.Write(std::move(text));
}

}  // namespace ringmaster::cli
