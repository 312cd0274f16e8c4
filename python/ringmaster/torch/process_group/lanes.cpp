// SPDX-License-Identifier: Apache-2.0

#include "lanes.h"

#include <ATen/core/grad_mode.h>

#include "dense.h"

namespace ringmaster {
namespace {

constexpr auto kWatchPeriod = std::chrono::milliseconds(100);
constexpr auto kReasonPeriod = std::chrono::milliseconds(300);  // for the reason of another rank
constexpr double kFabricTimeoutSeconds = 60;
constexpr const char* kFailureKey = "ringmaster/failure";
constexpr const char* kClosedKey = "ringmaster/closed/";

// Returns a separate connection where the release of PyTorch has Store::clone: another thread may wait in
// the one that it shares.
template <class Store>
c10::intrusive_ptr<c10d::Store> CloneIfPossible(c10::intrusive_ptr<Store> store) {
  if constexpr (requires { store->clone(); })
    return store->clone();
  else
    return store;
}

// In front of the bytes of a transfer.
struct Header {
  uint64_t tag = 0;
  uint64_t bytes = 0;
};

}  // namespace

// ---- Lane ----

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Lane::Submit(OperationPtr operation, std::function<void(Link&)> body) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(operation), std::move(body)});
  }
  changed_.notify_all();
}

void Lane::WaitForConnection() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_; });
}

void Lane::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (link_ != nullptr) link_->Abort();
}

int Lane::Lost(int first) {
  const std::lock_guard lock(mutex_);
  return link_ == nullptr || !ready_ ? -1 : link_->Lost(first);
}

void Lane::Connect() {
  const double timeout =
      std::min(kFabricTimeoutSeconds, std::chrono::duration<double>(lanes_.timeout()).count());
  auto link = std::make_unique<Link>(lanes_.library(), lanes_.transport(), std::max(timeout, 0.001));
  Link& connecting = *link;
  {
    const std::lock_guard lock(mutex_);
    link_ = std::move(link);
    if (aborted_) link_->Abort();
  }
  const auto deadline = Clock::now() + std::min<std::chrono::milliseconds>(lanes_.timeout(), kLongest);
  connecting.Connect(lanes_.store(), keys_, rank_, world_, [&] {
    if (const auto failure = lanes_.failure()) throw LinkError(*failure);
    if (Clock::now() > deadline) throw LinkError("timed out waiting for the addresses of the other ranks");
    const std::lock_guard lock(mutex_);
    if (closing_ && tasks_.empty()) throw LinkError("closed before it was connected");
  });
}

std::optional<Lane::Task> Lane::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
  if (tasks_.empty()) return std::nullopt;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

void Lane::Run() {
  const at::NoGradGuard no_grad;
  try {
    Connect();
  } catch (const std::exception& error) {
    lanes_.LinkFailed(error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  changed_.notify_all();
  while (auto task = Next()) {
    std::optional<std::string> failure = lanes_.failure();
    if (!failure) {
      try {
        task->body(*link_);
      } catch (const std::exception& error) {
        lanes_.LinkFailed(error.what());
        failure = lanes_.failure();
      }
    }
    task->body = nullptr;  // releases its tensors
    lanes_.Finished(task->operation);
    if (failure)
      task->operation->Fail(*failure);
    else
      task->operation->Succeed();
  }
}

// ---- Lanes ----

Lanes::Lanes(const Settings& settings, c10::intrusive_ptr<c10d::Store> store, int rank, int world,
             std::chrono::milliseconds timeout)
    : settings_(settings),
      library_(LoadLibrary(settings.library)),
      store_(CloneIfPossible(std::move(store))),
      rank_(rank),
      world_(world),
      timeout_(timeout) {
  {
    const std::lock_guard lock(mutex_);  // the thread of the lane reads collectives_
    collectives_ = std::make_unique<Lane>(*this, "ringmaster/all/", rank, world);
  }
  collectives_->WaitForConnection();
  if (const auto failed = failure()) {
    collectives_.reset();
    throw std::runtime_error("ringmaster: rank " + std::to_string(rank) + " cannot connect: " + *failed);
  }
  watchdog_ = std::thread([this] { Watch(); });
}

Lanes::~Lanes() {
  if (collectives_ == nullptr) return;
  // The watchdog still runs: it ends operations that can never complete.
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_.empty(); });
    closing_ = true;
  }
  changed_.notify_all();
  watchdog_.join();
  if (!failure()) {
    try {
      store_->set(kClosedKey + std::to_string(rank_), std::string("1"));
    } catch (const std::exception&) {
      // The process with the store has ended: no rank reads it any more.
    }
  }
  directions_.clear();
  collectives_.reset();
}

std::optional<std::string> Lanes::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Lanes::idle() {
  const std::lock_guard lock(mutex_);
  return pending_.empty();
}

OperationPtr Lanes::Begin(Operation::Description description) {
  if (description.timeout.count() < 0) description.timeout = timeout();
  const uint64_t number = ++numbers_;
  auto operation = c10::make_intrusive<Operation>(
      rank_, number, std::move(description), [this] { Fail("rank " + std::to_string(rank_) + " aborted"); });
  {
    const std::lock_guard lock(mutex_);
    pending_.emplace(number, operation);
  }
  changed_.notify_all();
  return operation;
}

void Lanes::Finished(const OperationPtr& operation) {
  {
    const std::lock_guard lock(mutex_);
    pending_.erase(operation->getSequencenumber());
  }
  changed_.notify_all();
}

c10::intrusive_ptr<c10d::Work> Lanes::Collective(Operation::Description description,
                                                 std::function<void(Link&)> body) {
  auto operation = Begin(std::move(description));
  collectives_->Submit(operation, std::move(body));
  return operation;
}

Lanes::Direction& Lanes::To(int source, int destination) {
  const std::lock_guard lock(mutex_);
  Direction& direction = directions_[{source, destination}];
  if (direction.lane == nullptr) {
    direction.lane = std::make_unique<Lane>(
        *this, "ringmaster/" + std::to_string(source) + "-" + std::to_string(destination) + "/",
        source == rank_ ? 0 : 1, 2);
    if (failure_) direction.lane->Abort();
  }
  return direction;
}

c10::intrusive_ptr<c10d::Work> Lanes::Send(Operation::Description description, at::Tensor tensor, int peer,
                                           int tag) {
  auto operation = Begin(std::move(description));
  To(rank_, peer).lane->Submit(operation, [tensor = std::move(tensor), tag](Link& link) {
    const Dense dense(tensor);
    const Header header = {static_cast<uint64_t>(tag), dense.bytes()};
    link.Send(reinterpret_cast<const char*>(&header), sizeof header, 1);
    link.Send(dense.data(), dense.bytes(), 1);
  });
  return operation;
}

c10::intrusive_ptr<c10d::Work> Lanes::Receive(Operation::Description description, at::Tensor tensor, int peer,
                                              int tag) {
  auto operation = Begin(std::move(description));
  Direction& direction = To(peer, rank_);
  direction.lane->Submit(operation, [&direction, tensor = std::move(tensor), peer, tag](Link& link) {
    Dense dense(tensor);
    const auto check = [&](uint64_t bytes) {
      if (bytes != dense.bytes())
        throw LinkError("rank " + std::to_string(peer) + " sent " + std::to_string(bytes) +
                        " bytes with tag " + std::to_string(tag) + ", and " + std::to_string(dense.bytes()) +
                        " were expected");
    };
    auto& early = direction.early[static_cast<uint64_t>(tag)];
    if (!early.empty()) {
      check(early.front().size());
      std::copy(early.front().begin(), early.front().end(), dense.data());
      early.pop_front();
      dense.Write();
      return;
    }
    while (true) {
      Header header;
      link.Receive(reinterpret_cast<char*>(&header), sizeof header, 0);
      if (header.tag == static_cast<uint64_t>(tag)) {
        check(header.bytes);
        link.Receive(dense.data(), dense.bytes(), 0);
        dense.Write();
        return;
      }
      std::vector<char> message(header.bytes);
      link.Receive(message.data(), message.size(), 0);
      direction.early[header.tag].push_back(std::move(message));
    }
  });
  return operation;
}

void Lanes::Fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = reason;
    if (collectives_ != nullptr) collectives_->Abort();
    for (auto& [pair, direction] : directions_)
      if (direction.lane != nullptr) direction.lane->Abort();
  }
  changed_.notify_all();
  try {
    if (!store_->check({kFailureKey})) store_->set(kFailureKey, reason);
  } catch (const std::exception&) {
    // The process with the store has ended: others find their own reason.
  }
}

void Lanes::LinkFailed(const std::string& message) {
  if (failure()) return;
  std::string reason = message;
  // The rank that gave up first knows why, but this one may see its end before its reason.
  const auto end = Clock::now() + kReasonPeriod;
  while (Clock::now() < end) {
    if (const auto death = Death()) {
      reason = *death;
      break;
    }
    try {
      if (store_->check({kFailureKey})) {
        reason += ": " + store_->get_to_str(kFailureKey);
        break;
      }
    } catch (const std::exception&) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Fail(reason);
}

std::optional<std::string> Lanes::Death() {
  for (int first = 0;; ++first) {
    {
      const std::lock_guard lock(mutex_);
      first = collectives_ == nullptr ? -1 : collectives_->Lost(first);
    }
    if (first < 0) return std::nullopt;
    try {
      if (store_->check({kClosedKey + std::to_string(first)})) continue;
    } catch (const std::exception&) {
      // The store was in that process, or the process with the store has ended, too.
    }
    return "the process of rank " + std::to_string(first) + " has died";
  }
}

void Lanes::Watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || (!pending_.empty() && !failure_); });
    if (closing_) return;
    changed_.wait_for(lock, kWatchPeriod, [&] { return closing_; });
    std::optional<std::string> reason;
    for (const auto& [number, operation] : pending_) {
      if (Clock::now() <= operation->deadline()) continue;
      reason = operation->Name() + " of rank " + std::to_string(rank_) + " timed out after " +
               std::to_string(operation->timeout().count()) + " ms";
      break;
    }
    const bool watch = !pending_.empty() && !failure_;
    lock.unlock();
    if (!reason && watch) reason = Death();
    if (reason) Fail(*reason);
    lock.lock();
  }
}

}  // namespace ringmaster
