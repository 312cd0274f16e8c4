// SPDX-License-Identifier: Apache-2.0

// The flags of `ringmaster run`. Value type.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/manifest.h"
#include "cli/run/chaos.h"
#include "cli/run/progress_display.h"
#include "cli/ui/page_guard.h"

namespace ringmaster::cli {

struct RunOptions {
  std::string file;
  std::string manifest;  // text to use in place of the file, which is then the name of the command
  int workers = 0;       // 0: spec.workers.replicas of the manifest
  std::string out;
  Sets sets;
  bool fresh = false;
  ChaosOptions chaos;
  ProgressStyle progress = ProgressStyle::kPlain;
  bool tensorboard = false;
  bool digests = false;            // programs of the library record them in DIR/digests
  std::string mlflow_uri;          // empty: nothing is uploaded
  std::string mlflow_token;        // must not be logged
  std::string mlflow_experiment;   // empty: the name of the job
  std::string metrics_address;     // HOST:PORT; empty: no metrics are served
  std::optional<PageAddress> ui;   // serve the live page there
  std::vector<std::string> notes;  // about the environment, for users
};

}  // namespace ringmaster::cli
