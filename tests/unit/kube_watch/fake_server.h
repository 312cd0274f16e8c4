// SPDX-License-Identifier: Apache-2.0

// An HttpClient that takes the part of an API server for lists and watches: the test writes the responses.
// e2e tests check the behaviour of a real server.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "operator/kube/http_client.h"

namespace ringmaster::kube {

class FakeServer final : public HttpClient {
 public:
  ~FakeServer() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }

  // An open stream. The test writes its lines.
  struct OpenStream {
    std::string target;
    StreamHandlers handlers;
    bool gone = false;
  };

  // The responses to lists, by target.
  std::function<Result<HttpResponse>(const HttpRequest&)> answer;

  void Send(HttpRequest request, std::function<void(Result<HttpResponse>)> done) override {
    Post([this, request = std::move(request), done = std::move(done)] { done(answer(request)); });
  }

  std::unique_ptr<HttpStream> Stream(HttpRequest request, StreamHandlers handlers) override {
    auto open = std::make_shared<OpenStream>();
    open->target = request.target;
    open->handlers = std::move(handlers);
    std::lock_guard lock(mutex_);
    streams_.push_back(open);
    changed_.notify_all();
    return std::make_unique<Handle>(*this, open);
  }

  // The n-th opened stream.
  std::shared_ptr<OpenStream> AwaitStream(size_t n) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(60), [&] { return streams_.size() > n; });
    CHECK(came, "no stream {}", n);
    return streams_[n];
  }
  // The first open stream whose target has this text.
  std::shared_ptr<OpenStream> AwaitStreamOf(const std::string& text) {
    std::unique_lock lock(mutex_);
    const auto find = [&] {
      return std::find_if(streams_.begin(), streams_.end(), [&](const auto& stream) {
        return !stream->gone && stream->target.find(text) != std::string::npos;
      });
    };
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return find() != streams_.end(); });
    CHECK(came, "no stream of {}", text);
    return *find();
  }
  void Line(const std::shared_ptr<OpenStream>& stream, std::string text) {
    Post([this, stream, text = std::move(text)] {
      if (!Gone(stream)) stream->handlers.on_line(text);
    });
  }
  void End(const std::shared_ptr<OpenStream>& stream, Result<HttpResponse> how) {
    Post([this, stream, how = std::move(how)] {
      if (!Gone(stream)) stream->handlers.on_end(how);
    });
  }
  // Waits until all posted calls have run.
  void Settle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
  }

 private:
  class Handle final : public HttpStream {
   public:
    Handle(FakeServer& server, std::shared_ptr<OpenStream> open) : server_(server), open_(std::move(open)) {}
    ~Handle() override {
      std::unique_lock lock(server_.mutex_);
      open_->gone = true;
      server_.changed_.wait(lock, [&] { return !server_.busy_; });
    }

   private:
    FakeServer& server_;
    std::shared_ptr<OpenStream> open_;
  };

  bool Gone(const std::shared_ptr<OpenStream>& stream) {
    std::lock_guard lock(mutex_);
    return stream->gone;
  }
  void Post(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_all();
  }
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
      if (closed_) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      task();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::shared_ptr<OpenStream>> streams_;
  bool busy_ = false;
  bool closed_ = false;
  std::thread thread_{[this] { Run(); }};
};

}  // namespace ringmaster::kube
