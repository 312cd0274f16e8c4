// SPDX-License-Identifier: Apache-2.0

// Lane: a thread that runs operations on one Link in the order in which they were submitted. Lanes: all lanes
// of a process group, which fail together.
//
// A process group has one lane for its collectives, and one for the transfers from a rank to another, which
// begins with the first of them: a receive that waits does not hold up anything but later receives from that
// rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "link.h"
#include "operation.h"

namespace ringmaster {

using OperationPtr = c10::intrusive_ptr<Operation>;

class Lanes;

class Lane {
 public:
  // `keys`: the prefix of the addresses in the store.
  Lane(Lanes& lanes, std::string keys, int rank, int world)
      : lanes_(lanes), keys_(std::move(keys)), rank_(rank), world_(world), thread_([this] { Run(); }) {}
  // Ends the thread after the operations that were submitted.
  ~Lane();

  void Submit(OperationPtr operation, std::function<void(Link&)> body);
  // Waits until the lane is connected, or its group has failed.
  void WaitForConnection();
  void Abort();
  int Lost(int first);

 private:
  struct Task {
    OperationPtr operation;
    std::function<void(Link&)> body;
  };
  void Run();
  void Connect();
  std::optional<Task> Next();

  Lanes& lanes_;
  const std::string keys_;
  const int rank_;
  const int world_;
  std::unique_ptr<Link> link_;  // set once, with mutex_ held

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ready_ = false;  // connected, or failed
  bool aborted_ = false;
  bool closing_ = false;
  std::thread thread_;
};

struct Settings {
  std::string library;    // path of libringmaster.so
  std::string transport;  // empty: auto
};

class Lanes {
 public:
  // Connects with all ranks. Throws std::runtime_error.
  Lanes(const Settings& settings, c10::intrusive_ptr<c10d::Store> store, int rank, int world,
        std::chrono::milliseconds timeout);
  // Runs the submitted operations to their end.
  ~Lanes();

  int rank() const { return rank_; }
  int world() const { return world_; }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  uint64_t submitted() const { return numbers_.load(); }

  c10::intrusive_ptr<c10d::Work> Collective(Operation::Description description,
                                            std::function<void(Link&)> body);
  // `tag` chooses among the messages of one sender.
  c10::intrusive_ptr<c10d::Work> Send(Operation::Description description, at::Tensor tensor, int peer,
                                      int tag);
  c10::intrusive_ptr<c10d::Work> Receive(Operation::Description description, at::Tensor tensor, int peer,
                                         int tag);

  // Fails all operations, now and later, with this reason. The first call counts. Thread-safe.
  void Fail(const std::string& reason);
  bool idle();

  // --- for Lane ---
  const Library& library() const { return library_; }
  const std::string& transport() const { return settings_.transport; }
  c10d::Store& store() { return *store_; }
  std::optional<std::string> failure();
  // An operation on a link failed: adds what is known of the reason, and fails all operations.
  void LinkFailed(const std::string& message);
  void Finished(const OperationPtr& operation);

 private:
  // The direction of a transfer: its lane has the sender as rank 0 and the receiver as rank 1.
  struct Direction {
    std::unique_ptr<Lane> lane;
    std::map<uint64_t, std::deque<std::vector<char>>> early;  // messages by tag; used by the lane's thread
  };
  Direction& To(int source, int destination);
  OperationPtr Begin(Operation::Description description);
  void Watch();
  // Returns why a rank of this host counts as dead, unless all of them live or ended in order.
  std::optional<std::string> Death();

  const Settings settings_;
  const Library library_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int world_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> numbers_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> failure_;
  std::map<uint64_t, OperationPtr> pending_;             // by number
  std::map<std::pair<int, int>, Direction> directions_;  // by (source, destination)
  bool closing_ = false;

  std::unique_ptr<Lane> collectives_;
  std::thread watchdog_;
};

}  // namespace ringmaster
