// SPDX-License-Identifier: Apache-2.0

// DataHash computes the hash of the data's content that a trainer sends with its Join. It works on a separate
// thread, while the device and the model are created.
//
// Not thread-safe: main thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/work_counter.h"
#include "worker/data/dataset.h"
#include "worker/trainer/root_work.h"

namespace ringmaster::trainer {

// Returns the folder in which hashes of files are kept: in the checkpoints' folder, so that a worker on
// another machine finds them, or else in the user's cache. Empty: there is neither.
std::string DataHashFolder(const std::string& checkpoint_path);

class DataHash {
 public:
  // Starts the work. REQUIRES: `dataset` outlives it.
  DataHash(const data::Dataset* dataset, const std::string& checkpoint_path);
  // Ends the work at the next opportunity: within the read of one block.
  ~DataHash();

  // Waits up to `limit` and returns whether the work is done. Throws std::bad_alloc.
  bool Wait(Duration limit) { return work_.Wait(limit); }

  // Bytes of files that are not in memory, and how much of them; -1: there are none.
  int64_t Done() const { return counter_.done.load(std::memory_order_relaxed); }
  int Percent() const { return counter_.Percent(); }

  // REQUIRES: Wait returned true.
  const Result<data::ContentHash>& result() const { return *result_; }

 private:
  void Run();

  const data::Dataset* const dataset_;
  data::ContentHashOptions options_;
  std::atomic<bool> cancel_{false};
  WorkCounter counter_;
  std::optional<Result<data::ContentHash>> result_;
  BackgroundWork work_;  // last: it uses all other members
};

}  // namespace ringmaster::trainer
