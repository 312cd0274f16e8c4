// SPDX-License-Identifier: Apache-2.0

#include "cli/track/mlflow_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;

rendezvous::StepRecord MlflowStep(int64_t step) {
  rendezvous::StepRecord record;
  record.step = step;
  record.loss = 2;
  record.samples = 8;
  record.seconds = 0.5;
  record.workers = 2;
  return record;
}

MlflowSaved Fresh() {
  MlflowSaved saved;
  saved.server = "http://tracker";
  saved.started_ms = 1000;
  return saved;
}

MlflowUpload Upload(MlflowSaved saved = Fresh()) {
  return {{"experiment one", "gpt", {{"seed", "1"}}, {{"a", "b"}}}, std::move(saved)};
}

// Answers as a server does until nothing is left. Returns the paths of the requests.
std::vector<std::string> Serve(MlflowUpload& upload, std::vector<Json>* batches = nullptr) {
  std::vector<std::string> paths;
  while (const auto request = upload.Next()) {
    paths.push_back(request->path);
    std::string body = "{}";
    int status = 200;
    if (request->path.starts_with("experiments/get-by-name")) {
      status = 404;
      body = R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})";
    }
    if (request->path == "experiments/create") body = R"({"experiment_id":"7"})";
    if (request->path == "runs/create") body = R"({"run":{"info":{"run_id":"r1"}}})";
    if (request->path == "runs/log-batch" && batches != nullptr) batches->push_back(request->body);
    EXPECT_TRUE(upload.OnResponse(status, body).ok()) << request->path;
  }
  return paths;
}

TEST(MlflowUpload, CreatesExperimentAndRunThenLogsAndEnds) {
  MlflowUpload upload = Upload();
  upload.Add(MlflowStep(1));
  upload.Add(MlflowStep(2));
  upload.Add(rendezvous::ValidationResult{2, 1.5, 0.5});
  upload.End({"FINISHED", 9000, {{"weights_hash", "abc"}}});
  std::vector<Json> batches;
  EXPECT_THAT(
      Serve(upload, &batches),
      testing::ElementsAre("experiments/get-by-name?experiment_name=experiment%20one", "experiments/create",
                           "runs/create", "runs/log-batch", "runs/log-batch", "runs/update"));
  EXPECT_TRUE(upload.ended());
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0]["run_id"], "r1");
  EXPECT_EQ(batches[0]["params"][0]["key"], "seed");
  EXPECT_EQ(batches[0]["tags"].size(), 1U);
  EXPECT_EQ(batches[1]["tags"].size(), 1U);
  EXPECT_EQ(batches[1]["metrics"].size(), 2 * 5 + 2U);
  EXPECT_EQ(batches[1]["metrics"][5]["timestamp"], 2000) << "the start, and two steps of half a second";
}

TEST(MlflowUpload, ManyParametersGoInBatchesThatTheServerAccepts) {
  MlflowJob job{"e", "gpt", {}, {{"a", "b"}}};
  for (int i = 0; i < 250; ++i) job.parameters.emplace_back("p" + std::to_string(i), std::to_string(i));
  job.parameters[7].second = std::string(499, 'x') + "\u00e4" + "y";
  MlflowUpload upload(job, Fresh());
  for (int64_t step = 1; step <= 400; ++step) upload.Add(MlflowStep(step));
  upload.Add(rendezvous::ValidationResult{2, 1.5, 0.5});
  upload.End({"FINISHED", 9000, {{"weights_hash", "abc"}}});
  std::vector<Json> batches;
  Serve(upload, &batches);
  EXPECT_TRUE(upload.ended());
  std::map<std::string, std::string> parameters;
  size_t tags = 0;
  for (const Json& batch : batches) {
    size_t items = 0;
    for (const char* kind : {"metrics", "params", "tags"}) items += json::Items(batch, kind).size();
    EXPECT_LE(items, 1000U) << "of a batch, in all";
    EXPECT_LE(json::Items(batch, "params").size(), 100U);
    tags += json::Items(batch, "tags").size();
    for (const Json& parameter : json::Items(batch, "params"))
      EXPECT_TRUE(parameters.emplace(parameter["key"], parameter["value"]).second) << "sent once";
  }
  EXPECT_EQ(tags, 2U);
  ASSERT_EQ(parameters.size(), 250U);
  EXPECT_EQ(parameters["p249"], "249");
  EXPECT_EQ(parameters["p7"], std::string(499, 'x')) << "cut between two characters";
  EXPECT_THAT(upload.Shortened(), testing::ElementsAre("p7"));
}

TEST(MlflowUpload, ARequestWithoutAnAnswerIsSentAgainUnchanged) {
  MlflowUpload upload = Upload();
  Serve(upload);
  upload.Add(MlflowStep(1));
  const Json first = upload.Next()->body;
  EXPECT_EQ(upload.OnResponse(503, "busy").error().code, Code::kUnavailable);
  EXPECT_EQ(upload.Next()->body, first);
  EXPECT_EQ(upload.saved().step, 0);
  EXPECT_TRUE(upload.OnResponse(200, "{}").ok());
  EXPECT_EQ(upload.saved().step, 1);
  EXPECT_FALSE(upload.Next().has_value());
}

TEST(MlflowUpload, ManyStepsGoInBatchesThatTheServerAccepts) {
  MlflowUpload upload = Upload();
  for (int64_t step = 1; step <= 1000; ++step) upload.Add(MlflowStep(step));
  std::vector<Json> batches;
  Serve(upload, &batches);
  size_t metrics = 0;
  for (const Json& batch : batches) {
    EXPECT_LE(json::Items(batch, "metrics").size(), 1000U);
    metrics += json::Items(batch, "metrics").size();
  }
  EXPECT_EQ(metrics, 5000U);
  EXPECT_EQ(upload.saved().step, 1000);
}

TEST(MlflowUpload, ARunThatContinuesSendsOnlyWhatIsMissing) {
  MlflowSaved saved = Fresh();
  saved.experiment_id = "7";
  saved.run_id = "r1";
  saved.step = 5;
  saved.seconds = 2.5;
  saved.validated_step = 4;
  saved.described = true;
  MlflowUpload upload = Upload(MlflowSavedFrom(ToJson(saved)).value());
  for (int64_t step = 1; step <= 6; ++step) upload.Add(MlflowStep(step));
  upload.Add(rendezvous::ValidationResult{4, 1, {}});
  std::vector<Json> batches;
  EXPECT_THAT(Serve(upload, &batches),
              testing::ElementsAre("runs/update", "runs/get?run_id=r1", "runs/log-batch"))
      << "it runs again";
  EXPECT_EQ(batches[0]["metrics"].size(), 5U);
  EXPECT_EQ(batches[0]["metrics"][0]["step"], 6);
  EXPECT_EQ(batches[0]["metrics"][0]["timestamp"], 4000);
}

// The server got steps 6 and 7 and the validation of step 6 from a process that was killed before the
// response came. They are trained again, in another time.
TEST(MlflowUpload, WhatAKilledProcessHadSentIsNotSentAgain) {
  MlflowSaved saved = Fresh();
  saved.experiment_id = "7";
  saved.run_id = "r1";
  saved.step = 5;
  saved.seconds = 2.5;
  saved.validated_step = 4;
  saved.described = true;
  MlflowUpload upload = Upload(saved);
  for (int64_t step = 1; step <= 8; ++step) upload.Add(MlflowStep(step));
  upload.Add(rendezvous::ValidationResult{6, 1, {}});
  upload.Add(rendezvous::ValidationResult{8, 1, {}});
  ASSERT_TRUE(upload.Next().has_value());
  ASSERT_TRUE(upload.OnResponse(200, "{}").ok());
  EXPECT_EQ(upload.Next()->path, "runs/get?run_id=r1");
  ASSERT_TRUE(upload
                  .OnResponse(200, R"({"run":{"data":{"metrics":[
                      {"key":"train/loss","value":2,"timestamp":5100,"step":7},
                      {"key":"gang/workers","value":2,"timestamp":5100,"step":7},
                      {"key":"validation/loss","value":1,"timestamp":1006,"step":6}]}}})")
                  .ok());
  std::vector<Json> batches;
  EXPECT_THAT(Serve(upload, &batches), testing::ElementsAre("runs/log-batch"));
  ASSERT_EQ(batches[0]["metrics"].size(), 5U + 1U);
  EXPECT_EQ(batches[0]["metrics"][0]["step"], 8);
  EXPECT_EQ(batches[0]["metrics"][0]["timestamp"], 5600) << "no earlier than what the server has";
  EXPECT_EQ(batches[0]["metrics"][5]["step"], 8);
}

TEST(MlflowUpload, StepsThatBeginAgainAreSentOnce) {
  MlflowUpload upload = Upload();
  Serve(upload);
  for (int64_t step = 1; step <= 3; ++step) upload.Add(MlflowStep(step));
  Serve(upload);
  for (int64_t step = 4; step <= 9; ++step) upload.Add(MlflowStep(step));
  upload.StepsBeginAgain();
  for (int64_t step = 1; step <= 5; ++step) upload.Add(MlflowStep(step));
  std::vector<Json> batches;
  Serve(upload, &batches);
  ASSERT_EQ(batches.size(), 1U);
  ASSERT_EQ(batches[0]["metrics"].size(), 10U);
  EXPECT_EQ(batches[0]["metrics"][0]["step"], 4);
  EXPECT_EQ(batches[0]["metrics"][5]["step"], 5);
}

// The server stored steps 1 to 3, and its response was lost.
TEST(MlflowUpload, StepsThatBeginAgainAreComparedWithTheServer) {
  MlflowUpload upload = Upload();
  Serve(upload);
  for (int64_t step = 1; step <= 3; ++step) upload.Add(MlflowStep(step));
  EXPECT_EQ(upload.Next()->path, "runs/log-batch");
  EXPECT_EQ(upload.OnResponse(503, "busy").error().code, Code::kUnavailable);
  upload.StepsBeginAgain();
  for (int64_t step = 1; step <= 4; ++step) upload.Add(MlflowStep(step));
  EXPECT_THAT(upload.Next()->path, HasSubstr("runs/get?run_id="));
  ASSERT_TRUE(upload
                  .OnResponse(200, R"({"run":{"data":{"metrics":[
                      {"key":"train/loss","value":2,"timestamp":2500,"step":3}]}}})")
                  .ok());
  std::vector<Json> batches;
  EXPECT_THAT(Serve(upload, &batches), testing::ElementsAre("runs/log-batch"));
  ASSERT_EQ(batches[0]["metrics"].size(), 5U);
  EXPECT_EQ(batches[0]["metrics"][0]["step"], 4);
}

TEST(MlflowUpload, AnotherRunMayCreateTheExperimentFirst) {
  MlflowUpload upload = Upload();
  upload.Next();
  ASSERT_TRUE(upload.OnResponse(404, "{}").ok());
  EXPECT_EQ(upload.Next()->path, "experiments/create");
  ASSERT_TRUE(upload.OnResponse(400, R"({"error_code":"RESOURCE_ALREADY_EXISTS"})").ok());
  EXPECT_THAT(upload.Next()->path, HasSubstr("get-by-name"));
}

TEST(MlflowUpload, ARefusalEndsTheUpload) {
  MlflowUpload upload = Upload();
  upload.Next();
  const Status refused = upload.OnResponse(403, R"({"message":"no access"})");
  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_THAT(refused.error().message, HasSubstr("no access"));
  EXPECT_FALSE(upload.Next().has_value());
  EXPECT_FALSE(upload.ended());
}

TEST(MlflowUpload, AServerThatIsSomethingElseIsNoticed) {
  MlflowUpload upload = Upload();
  upload.Next();
  EXPECT_THAT(upload.OnResponse(200, "<html>").error().message, HasSubstr("not an MLflow server"));
}

TEST(MlflowUpload, WhatIsNotANumberHasAName) {
  MlflowUpload upload = Upload();
  rendezvous::StepRecord record = MlflowStep(1);
  record.loss = std::nan("");
  record.gradient_norm = std::numeric_limits<double>::infinity();
  upload.Add(record);
  std::vector<Json> batches;
  Serve(upload, &batches);
  EXPECT_EQ(batches[1]["metrics"][0]["value"], "NaN");
  EXPECT_EQ(batches[1]["metrics"][2]["value"], "Infinity");
}

TEST(FlattenParameters, NamesArePathsAndEmptyMembersAreLeftOut) {
  const Json json = {
      {"model", {{"kind", "gpt"}, {"layers", 4}}}, {"empty", ""}, {"none", nullptr}, {"on", true}};
  EXPECT_THAT(FlattenParameters(json),
              testing::ElementsAre(std::pair<std::string, std::string>("model.kind", "gpt"),
                                   std::pair<std::string, std::string>("model.layers", "4"),
                                   std::pair<std::string, std::string>("on", "true")));
}

}  // namespace
}  // namespace ringmaster::cli
