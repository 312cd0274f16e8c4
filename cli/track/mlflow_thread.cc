// SPDX-License-Identifier: Apache-2.0

#include "cli/track/mlflow_thread.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/file.h"
#include "base/mutex.h"
#include "cli/history/run_event.h"
#include "cli/history/step_history.h"
#include "operator/kube/cpprest_http.h"
#include "operator/kube/url.h"

namespace ringmaster::cli {
namespace {

constexpr Duration kUploadPeriod = seconds(1);
constexpr Duration kRequestLimit = seconds(20);
constexpr Duration kFirstRetry = milliseconds(500);
constexpr Duration kLastRetry = seconds(15);
constexpr size_t kMostWaiting = 2000;  // steps in memory; the rest stays in the file
constexpr size_t kReadBytes = size_t{1} << 18;

int64_t EpochMs() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class FixedToken : public kube::TokenSource {
 public:
  explicit FixedToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> Token() override { return token_; }

 private:
  const std::string token_;
};

// Reads whole lines of a file that grows.
class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) { Open(); }
  // Returns whether another file has taken the place of the one that was read, which is then read from its
  // beginning.
  bool Replaced() {
    struct stat now {};
    if (::stat(path_.c_str(), &now) != 0 || now.st_ino == inode_) return false;
    Open();
    return true;
  }
  // Returns the bytes that were not skipped yet, at most kReadBytes.
  std::string Peek() const {
    std::string bytes(kReadBytes, '\0');
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset_));
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  void Skip(size_t bytes) { offset_ += bytes; }

 private:
  void Open() {
    file_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat now {};
    inode_ = ::fstat(file_.get(), &now) == 0 ? now.st_ino : 0;
    offset_ = 0;
  }

  const std::string path_;
  Fd file_;
  ino_t inode_ = 0;
  size_t offset_ = 0;
};

}  // namespace

Status CheckMlflowUri(const std::string& source, const std::string& uri) {
  const auto url = kube::ParseUrl(uri);
  if (!url.ok())
    return Error{Code::kInvalid, source + ": expected http://HOST:PORT or https://HOST of an MLflow server"};
  if (!url->user.empty() || !url->password.empty())
    return Error{Code::kInvalid,
                 source + ": must not contain a user or a password; set MLFLOW_TRACKING_TOKEN"};
  return Ok();
}

class MlflowThread::Impl {
 public:
  explicit Impl(MlflowOptions options)
      : options_(std::move(options)),
        saved_path_(options_.folder + "/mlflow.json"),
        upload_(options_.job, Restore()),
        steps_(options_.folder + "/metrics.jsonl"),
        events_(options_.folder + "/events.jsonl") {}

  Status Start() {
    kube::ClientConfig config;
    config.server = options_.uri;
    config.user_agent = "ringmaster";
    if (!options_.token.empty()) config.token = std::make_shared<FixedToken>(options_.token);
    RM_ASSIGN(http_, kube::MakeHttpClient(config));
    thread_ = std::thread([this] { Loop(); });
    return Ok();
  }

  ~Impl() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }

  bool Finish(const MlflowEnd& end, Duration limit) {
    const Time deadline = Now() + limit;
    MutexLock lock(mutex_);
    end_ = end;
    changed_.NotifyAll();
    while (!over_ && Now() < deadline) changed_.WaitUntil(lock, deadline);
    return complete_;
  }

 private:
  MlflowSaved Restore() const {
    MlflowSaved fresh;
    fresh.server = options_.uri;
    fresh.started_ms = EpochMs();
    if (!options_.resume) return fresh;
    const auto text = ReadFile(saved_path_, size_t{1} << 16);
    if (!text.ok()) return fresh;
    const auto json = ParseJson(*text);
    if (!json.ok()) return fresh;
    auto saved = MlflowSavedFrom(*json);
    return saved.ok() && saved->server == options_.uri ? std::move(*saved) : fresh;
  }

  void Loop() {
    Duration retry = kFirstRetry;
    bool away = false;
    if (const auto names = upload_.Shortened(); !names.empty() && !upload_.saved().described)
      options_.say(true,
                   fmt::format("MLflow: gets only the beginning of {}, which is longer than a server accepts",
                               fmt::join(names, ", ")));
    while (!Stopped()) {
      if (const Status read = ReadFiles(); !read.ok()) return GiveUp(read.error().message);
      const auto request = upload_.Next();
      if (!request) {
        if (upload_.ended()) return Over(true);
        Pause(kUploadPeriod, true);
        continue;
      }
      const Status sent = Send(*request);
      if (Stopped()) return;
      if (sent.ok()) {
        if (away) options_.say(false, "MLflow: the server answers again");
        away = false;
        retry = kFirstRetry;
        if (const Status saved = WriteFileAtomic(saved_path_, ToJson(upload_.saved()).dump() + "\n");
            !saved.ok())
          return GiveUp(saved.error().message);
        continue;
      }
      if (sent.error().code != Code::kUnavailable) return GiveUp(sent.error().message);
      if (!away)
        options_.say(
            true, "MLflow: " + sent.error().message + "; the run continues, and the upload is tried again");
      away = true;
      Pause(retry, false);
      retry = std::min(2 * retry, kLastRetry);
    }
  }

  // Reads what is new in the files, and the end once it has read everything before it.
  Status ReadFiles() {
    std::optional<MlflowEnd> end;
    {
      MutexLock lock(mutex_);
      end = end_;
    }
    bool more = false;
    // A program that continues from an earlier step trains again what the file had after it.
    if (steps_.Replaced()) {
      reader_.emplace();
      upload_.StepsBeginAgain();
    }
    if (upload_.waiting() < kMostWaiting) {
      std::vector<rendezvous::StepRecord> records;
      auto read = reader_->Read(steps_.Peek(), &records);
      if (!read.ok()) return read.error().In("metrics.jsonl");
      steps_.Skip(*read);
      more = *read > 0;
      for (const rendezvous::StepRecord& record : records) upload_.Add(record);
      const std::string text = events_.Peek();
      size_t begin = 0;
      for (size_t line = 0; (line = text.find('\n', begin)) != std::string::npos; begin = line + 1) {
        const auto event = ParseEventLine(std::string_view(text).substr(begin, line - begin));
        if (event.ok() && event->reason == "Validated" && event->loss)
          upload_.Add(rendezvous::ValidationResult{event->step, *event->loss, event->accuracy});
      }
      events_.Skip(begin);
      more = more || begin > 0;
    } else {
      more = true;
    }
    if (end && !more) upload_.End(*end);
    return Ok();
  }

  Status Send(const MlflowUpload::Request& request) {
    struct Answer {
      Mutex mutex;
      std::optional<Result<kube::HttpResponse>> result RM_GUARDED_BY(mutex);
    };
    const auto answer = std::make_shared<Answer>();
    kube::HttpRequest http;
    http.target = "/api/2.0/mlflow/" + request.path;
    http.limit = kRequestLimit;
    if (!request.body.is_null()) {
      http.method = "POST";
      http.body = DumpJson(request.body);
    }
    http_->Send(std::move(http), [this, answer](Result<kube::HttpResponse> result) {
      {
        MutexLock lock(answer->mutex);
        answer->result = std::move(result);
      }
      MutexLock lock(mutex_);
      ++answers_;
      changed_.NotifyAll();
    });
    MutexLock lock(mutex_);
    ++asked_;
    while (answers_ < asked_ && !stop_) changed_.Wait(lock);
    if (answers_ < asked_) return Error{Code::kCancelled, "stopped"};
    lock.Unlock();
    MutexLock answered(answer->mutex);
    if (!answer->result->ok()) return Error{Code::kUnavailable, answer->result->error().message};
    return upload_.OnResponse((*answer->result)->status, (*answer->result)->body);
  }

  // Waits; with `news`, the end of the run ends it too.
  void Pause(Duration time, bool news) {
    const Time deadline = Now() + time;
    MutexLock lock(mutex_);
    const bool ending = end_.has_value();
    while (!stop_ && !(news && end_ && !ending) && Now() < deadline) changed_.WaitUntil(lock, deadline);
  }

  void GiveUp(const std::string& why) {
    options_.say(true, "MLflow: " + why + "; nothing more is uploaded in this run");
    Over(false);
  }
  void Over(bool complete) {
    MutexLock lock(mutex_);
    over_ = true;
    complete_ = complete;
    changed_.NotifyAll();
  }
  bool Stopped() {
    MutexLock lock(mutex_);
    return stop_;
  }

  const MlflowOptions options_;
  const std::string saved_path_;
  MlflowUpload upload_;
  LineFollower steps_;
  LineFollower events_;
  std::optional<StepLineReader> reader_ = StepLineReader();  // always set
  Mutex mutex_;
  CondVar changed_;
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  bool over_ RM_GUARDED_BY(mutex_) = false;      // the thread sends nothing more
  bool complete_ RM_GUARDED_BY(mutex_) = false;  // the server has everything
  std::optional<MlflowEnd> end_ RM_GUARDED_BY(mutex_);
  int64_t asked_ RM_GUARDED_BY(mutex_) = 0;
  int64_t answers_ RM_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
  std::unique_ptr<kube::HttpClient> http_;  // last: its callbacks use the others
};

Result<std::unique_ptr<MlflowThread>> MlflowThread::Start(MlflowOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RM_TRY(impl->Start());
  return std::unique_ptr<MlflowThread>(new MlflowThread(std::move(impl)));
}

MlflowThread::MlflowThread(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MlflowThread::~MlflowThread() = default;
bool MlflowThread::Finish(const MlflowEnd& end, Duration limit) { return impl_->Finish(end, limit); }

}  // namespace ringmaster::cli
