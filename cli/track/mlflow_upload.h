// SPDX-License-Identifier: Apache-2.0

// Uploads a run to an MLflow server through its REST API: decides which request is next, and what a response
// means. Pure: knows no clock, socket or thread; mlflow_thread.h is the shell.
//
// Nothing is lost and nothing is logged twice:
//  M1. A request changes the state only with its response; a request without a response is sent again.
//  M2. A batch that is sent again has the same names and times: a server that has it already stores it once.
//  M3. Saved() is written before the next request, so a run that is killed continues the same MLflow run.
//  M4. A run that continues asks the server first what it has: the response to the last batch of a killed
//      process may never have come, and steps that are trained again take another time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

// The part that survives this process: DIR/mlflow.json. It has no secret.
struct MlflowSaved {
  std::string server;  // without user, password and query
  std::string experiment_id;
  std::string run_id;
  int64_t started_ms = 0;      // since the epoch; the times of values count from here
  int64_t step = 0;            // the newest that the server has
  double seconds = 0;          // of all steps up to it
  int64_t validated_step = 0;  // the newest validation that the server has
  bool described = false;      // the server has parameters and tags
  bool operator==(const MlflowSaved&) const = default;
};
Json ToJson(const MlflowSaved& saved);
Result<MlflowSaved> MlflowSavedFrom(const Json& json);

struct MlflowJob {
  std::string experiment;
  std::string run_name;
  std::vector<std::pair<std::string, std::string>> parameters;
  std::vector<std::pair<std::string, std::string>> tags;
};

// How the run ended.
struct MlflowEnd {
  std::string status;  // FINISHED | FAILED | KILLED
  int64_t ended_ms = 0;
  std::vector<std::pair<std::string, std::string>> tags;  // the hash of the weights
};

class MlflowUpload {
 public:
  // A `saved` without a run id starts a new run.
  MlflowUpload(MlflowJob job, MlflowSaved saved);

  // Steps and validations up to the saved ones are ignored. REQUIRES: steps increase.
  void Add(const rendezvous::StepRecord& record);
  void Add(const rendezvous::ValidationResult& result);
  // The steps that come next begin with the first one again: forgets those that wait. Asks the server what it
  // has, since it may have stored a batch whose response was lost.
  void StepsBeginAgain();
  void End(MlflowEnd end) { end_ = std::move(end); }

  // Values that wait. The caller reads no more of the files while there are many.
  size_t waiting() const { return steps_.size() + validations_.size(); }

  struct Request {
    std::string path;  // below /api/2.0/mlflow/, with the query
    Json body;         // null: a GET
  };
  // Returns the request to send now; nullopt: nothing is left, or the upload was given up. The same request
  // comes again until OnResponse accepts it.
  std::optional<Request> Next();

  // An HTTP response to Next(). Returns kUnavailable when the request has to be sent again later, and another
  // code when the upload is given up: the server will never accept it.
  Status OnResponse(int status, const std::string& body);

  // The names of the parameters whose values are too long for a server, which gets their beginning.
  std::vector<std::string> Shortened() const;

  const MlflowSaved& saved() const { return saved_; }
  bool ended() const { return ended_; }  // the server knows the end

 private:
  enum class Stage : uint8_t {
    kNone,
    kFindExperiment,
    kCreateExperiment,
    kCreateRun,
    kReopen,
    kCompare,
    kBatch,
    kEnd
  };
  Request DescriptionRequest();
  Request BatchRequest();
  void CompareWith(const Json& metrics);

  const MlflowJob job_;
  MlflowSaved saved_;
  bool reopened_;  // the server shows the run as running
  bool compared_;  // saved_ has what the server has
  bool experiment_missing_ = false;
  bool given_up_ = false;
  bool ended_ = false;
  std::deque<rendezvous::StepRecord> steps_;
  std::deque<rendezvous::ValidationResult> validations_;
  std::optional<MlflowEnd> end_;
  bool end_tagged_ = false;
  size_t parameters_sent_ = 0;  // the server has them

  // Of the request in flight:
  Stage stage_ = Stage::kNone;
  MlflowSaved after_;  // saved_ once the server has the batch
  size_t parameters_in_flight_ = 0;
  size_t steps_sent_ = 0;
  size_t validations_sent_ = 0;
  bool tags_of_end_sent_ = false;
};

// Flattens JSON to "optimizer.kind" = "adamw". Leaves out empty members.
std::vector<std::pair<std::string, std::string>> FlattenParameters(const Json& json);

}  // namespace ringmaster::cli
