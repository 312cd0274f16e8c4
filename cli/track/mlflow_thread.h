// SPDX-License-Identifier: Apache-2.0

// Uploads a run to an MLflow server while it trains. One thread follows metrics.jsonl and events.jsonl and
// sends what is new, at most once per second. So a step costs nothing, values that wait need no memory while
// the server is away, and what one process could not upload is uploaded by the next run in the same folder.
//
// Public methods: one caller thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "cli/track/mlflow_upload.h"

namespace ringmaster::cli {

struct MlflowOptions {
  std::string uri;    // http://host:port/path; user and password in it are not supported
  std::string token;  // bearer token; empty: none. Must not be logged
  MlflowJob job;
  std::string folder;   // of the run
  bool resume = false;  // continue the MLflow run of an earlier process in this folder
  // Called on the upload's thread, when the server stops and starts to answer, when the upload is given up,
  // and once when a parameter is too long for a server.
  std::function<void(bool warning, const std::string& text)> say;
};

// Returns an error that names `source` (a flag or a variable) when the URI is not http or https, or has a
// user.
Status CheckMlflowUri(const std::string& source, const std::string& uri);

class MlflowThread {
 public:
  // Does not wait for the server. Errors: kInvalid for an invalid URI.
  static Result<std::unique_ptr<MlflowThread>> Start(MlflowOptions options);
  ~MlflowThread();  // ends the thread at once; what it has not sent stays in the files

  // Sends the rest and the end. Returns false when that takes longer than `limit`: a later run in the folder
  // sends it.
  bool Finish(const MlflowEnd& end, Duration limit);

 private:
  class Impl;
  explicit MlflowThread(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::cli
