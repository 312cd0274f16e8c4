// SPDX-License-Identifier: Apache-2.0

// DIR/.run: the resolved job and the secret of this run, which agents and trainers read at start. Only the
// current user can read the folder; the destructor removes it.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/result.h"

namespace ringmaster::cli {

class RunFolder {
 public:
  // Replaces the folder of a run that was killed. REQUIRES: the caller holds the lock of DIR.
  static Result<RunFolder> Create(const std::string& output_folder, const api::TrainingJob& job);

  RunFolder(RunFolder&& other) noexcept
      : folder_(std::move(other.folder_)), secret_(std::move(other.secret_)) {
    other.folder_.clear();
  }
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();

  const std::string& secret() const { return secret_; }
  std::string secret_file() const { return folder_ + "/secret"; }
  std::string job_file() const { return folder_ + "/job.json"; }

 private:
  RunFolder(std::string folder, std::string secret)
      : folder_(std::move(folder)), secret_(std::move(secret)) {}

  std::string folder_;
  std::string secret_;
};

}  // namespace ringmaster::cli
