// SPDX-License-Identifier: Apache-2.0

// Decodes TrainingJobs: of this version and of newer ones, valid and not.
#include "operator/kube/backend/decode_job.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "operator/kube/backend/status_codec.h"

namespace ringmaster::kube {
namespace {

// Steady second 10000 is 2026-01-01T00:00:00Z.
const WallClock kJobClock(Time(seconds(10'000)), *ParseWallTime("2026-01-01T00:00:00Z"));
constexpr Time kJobNow = Time(seconds(10'000));

TEST(DecodeJobTest, ValidInvalidAndForeignJobs) {
  Json job = {
      {"metadata",
       {{"name", "gpt"},
        {"namespace", "ml"},
        {"uid", "u"},
        {"resourceVersion", "9"},
        {"generation", 4},
        {"labels", {{"a", "b"}}},
        {"finalizers", Json::array({"x/y"})}}},
      {"spec",
       {{"framework", "pytorch"},
        {"launch", {{"kind", "none"}}},
        {"workers",
         {{"replicas", 8},
          {"template", {{"spec", {{"containers", Json::array({{{"name", "worker"}, {"image", "i"}}})}}}}}}}}},
      {"status", {{"attempt", 3}, {"conditions", "nonsense"}, {"ledger", {{"gangSize", 8}}}}}};
  const auto decode = [](const Json& json) {
    return DecodeJob(json, ReadMeta(json), nullptr, kJobClock, kJobNow);
  };
  const auto good = decode(job);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->spec->problem, "");
  EXPECT_EQ(good->revision, 9U);
  EXPECT_EQ(good->spec->job.uid, "u");
  EXPECT_EQ(good->spec->job.spec_generation, 4);
  EXPECT_EQ(good->spec->job.replicas, 8);
  EXPECT_EQ(good->status.ledger.attempt, 3);
  EXPECT_EQ(good->status.ledger.gang_size, 8);
  EXPECT_EQ(good->ToApi().status, api::Status{});
  EXPECT_EQ(good->ToApi().spec.workers.template_, job["spec"]["workers"]["template"]);
  EXPECT_FALSE(good->deleted);

  job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_TRUE(decode(job)->deleted);

  Json bad = job;
  bad["spec"]["workers"]["replicas"] = -1;
  EXPECT_NE(decode(bad)->spec->problem, "");
  EXPECT_EQ(decode(bad)->key, (control::Key{"ml", "gpt"}));
  bad["spec"] = "nonsense";
  EXPECT_NE(decode(bad)->spec->problem, "");

  Json deep = Json::object();
  for (int i = 0; i < 70; ++i) deep = Json{{"k", std::move(deep)}};
  bad = job;
  bad["spec"]["workers"]["template"]["x"] = deep;
  EXPECT_NE(decode(bad)->spec->problem, "");

  job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  EXPECT_EQ(decode(job), nullptr);
}

// Upgrades update the CustomResourceDefinition before the operator, and the server adds its new defaults to
// stored jobs.
TEST(DecodeJobTest, FieldsOfANewerVersionInvalidateNothing) {
  Json job = {
      {"metadata", {{"name", "gpt"}, {"namespace", "ml"}, {"uid", "u"}, {"generation", 4}, {"newField", 1}}},
      {"spec",
       {{"framework", "pytorch"},
        {"launch", {{"kind", "none"}, {"newField", "x"}}},
        {"workers",
         {{"replicas", 8}, {"spares", 2}, {"template", {{"spec", {{"containers", Json::array()}}}}}}}}},
      {"status", {{"attempt", 3}, {"spares", 1}}}};
  const auto record = DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow);
  EXPECT_EQ(record->spec->problem, "");
  EXPECT_EQ(record->spec->job.replicas, 8);
  EXPECT_EQ(record->spec->unknown, "metadata.newField, spec.launch.newField, spec.workers.spares");
  ASSERT_TRUE(record->unknown_status);
  EXPECT_EQ(*record->unknown_status, Json({{"spares", 1}}));

  for (int i = 0; i < 1000; ++i) job["spec"]["unknown-" + std::to_string(i)] = std::string(1000, 'x');
  job["spec"][std::string(5000, 'y')] = 1;
  const auto many = DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow);
  EXPECT_EQ(many->spec->problem, "");
  EXPECT_LT(many->spec->unknown.size(), 4000U);
}

// The API server admits them; other controllers set them while the job runs.
TEST(DecodeJobTest, MetadataOfOthersInvalidatesNothing) {
  Json job = {{"metadata",
               {{"name", "gpt"},
                {"namespace", "ml"},
                {"uid", "u"},
                {"annotations", {{"Example.COM/y", "1"}, {"x", std::string(200'000, 'x')}}},
                {"labels", {{"example.com/team", "A"}}}}},
              {"spec",
               {{"framework", "pytorch"},
                {"launch", {{"kind", "none"}}},
                {"workers", {{"replicas", 1}, {"template", {{"spec", {{"containers", Json::array()}}}}}}}}}};
  EXPECT_EQ(DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow)->spec->problem, "");
}

TEST(DecodeJobTest, AnInvalidSpecKeepsItsLifecycle) {
  const Json job = {
      {"metadata", {{"name", "gpt"}, {"namespace", "ml"}, {"uid", "u"}}},
      {"spec",
       {{"framework", "no"},
        {"suspend", true},
        {"lifecycle",
         {{"ttlSecondsAfterFinished", 60}, {"activeDeadlineSeconds", 70}, {"cleanPods", "All"}}}}}};
  const auto record = DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow);
  EXPECT_NE(record->spec->problem, "");
  EXPECT_TRUE(record->spec->job.suspend);
  EXPECT_EQ(record->spec->job.ttl, seconds(60));
  EXPECT_EQ(record->spec->job.active_deadline, seconds(70));
  EXPECT_EQ(record->spec->job.clean_pods, core::CleanPods::kAll);
}

// They change without a new generation.
TEST(DecodeJobTest, KeepsWhatItsWorkloadHas) {
  Json job = {{"metadata",
               {{"name", "gpt"},
                {"namespace", "ml"},
                {"uid", "u"},
                {"labels", {{"kueue.x-k8s.io/max-exec-time-seconds", "60"}}},
                {"annotations",
                 {{"kueue.x-k8s.io/admission-gated-by", "example.com/budget"},
                  {"provreq.kueue.x-k8s.io/zone", "a"},
                  {"other", "x"}}}}},
              {"spec", {{"framework", "pytorch"}}}};
  const auto decode = [&] { return DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow); };
  EXPECT_EQ(decode()->maximum_time, "60");
  EXPECT_EQ(decode()->passed_on,
            (std::map<std::string, std::string>{{"kueue.x-k8s.io/admission-gated-by", "example.com/budget"},
                                                {"provreq.kueue.x-k8s.io/zone", "a"}}));
  job["metadata"]["annotations"] = {{"kueue.x-k8s.io/admission-gated-by", ""}};
  EXPECT_TRUE(decode()->passed_on.empty()) << "an empty one is none";
}

TEST(DecodeJobTest, TheOperatorsFlagIsForJobsThatPreemptNothing) {
  const auto autoscaled = [](const Json& scheduling, bool flag) {
    const Json job = {
        {"metadata", {{"name", "gpt"}, {"namespace", "ml"}, {"uid", "u"}, {"generation", 1}}},
        {"spec",
         {{"framework", "pytorch"},
          {"launch", {{"kind", "none"}}},
          {"workers", {{"replicas", 8}, {"template", {{"spec", {{"containers", Json::array()}}}}}}},
          {"scheduling", scheduling}}}};
    const auto record = DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow, flag);
    EXPECT_EQ(record->spec->problem, "");
    return record->spec->job.autoscaler;
  };
  EXPECT_FALSE(autoscaled(Json::object(), false));
  EXPECT_TRUE(autoscaled(Json::object(), true));
  EXPECT_TRUE(autoscaled({{"autoscaler", true}}, false));
  EXPECT_FALSE(autoscaled({{"preempt", true}}, true)) << "it waits at the gate for the room of others";
}

TEST(StatusCodecTest, RanksAreRanges) {
  core::Status status;
  status.ledger.succeeded = {0, 1, 2, 5, 7, 8};
  const api::Status written = EncodeStatus(status, {}, kJobClock);
  EXPECT_EQ(written.ledger->succeeded, "0-2,5,7-8");
  const auto read = [&](const char* text) {
    api::Status edited = written;
    edited.ledger->succeeded = text;
    return DecodeStatus(edited, kJobClock).ledger.succeeded;
  };
  EXPECT_EQ(read("0-2,5,7-8"), status.ledger.succeeded);
  EXPECT_EQ(read("3,1"), std::vector<int32_t>{3});
  for (const char* bad : {"", "x", "-1", "2-1", ",", "0-2147483647", "99999999999"})
    EXPECT_TRUE(read(bad).empty()) << bad;
}

TEST(DecodeJobTest, TheTimeLeftIsReadOfProgramsOnly) {
  Json job = {{"metadata", {{"name", "gpt"}, {"namespace", "ml"}, {"uid", "u"}, {"generation", 1}}},
              {"spec",
               {{"framework", "pytorch"},
                {"workers",
                 {{"replicas", 8},
                  {"template",
                   {{"spec",
                     {{"containers",
                       Json::array({{{"name", "worker"}, {"image", "i"}, {"command", {"python"}}}})}}}}}}}}},
              {"status", {{"progress", {{"etaSeconds", 90}}}}}};
  const auto time_left = [&](bool programs) {
    const auto record = DecodeJob(job, ReadMeta(job), nullptr, kJobClock, kJobNow);
    EXPECT_EQ(record->spec->problem, "");
    EXPECT_EQ(record->spec->job.programs, programs);
    return record->status.display.progress.seconds_left;
  };
  EXPECT_EQ(time_left(true), 90);
  job["spec"]["launch"] = {{"kind", "none"}};
  EXPECT_EQ(time_left(false), 0);
}

TEST(DecodeJobTest, SpecIsParsedOncePerGeneration) {
  Json job = {{"metadata", {{"name", "gpt"}, {"namespace", "ml"}, {"uid", "u"}, {"generation", 4}}},
              {"spec",
               {{"framework", "pytorch"},
                {"launch", {{"kind", "none"}}},
                {"workers", {{"replicas", 8}, {"template", {{"spec", {{"containers", Json::array()}}}}}}}}}};
  const auto decode = [&](const std::shared_ptr<const JobRecord>& before) {
    return DecodeJob(job, ReadMeta(job), before, kJobClock, kJobNow);
  };
  const auto first = decode(nullptr);
  job["status"] = {{"attempt", 3}};
  job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  const auto second = decode(first);
  EXPECT_EQ(second->spec, first->spec);
  EXPECT_EQ(second->status.ledger.attempt, 3);
  EXPECT_TRUE(second->Job().deleted);
  EXPECT_FALSE(first->Job().deleted);

  job["spec"]["workers"]["replicas"] = 9;
  job["metadata"]["generation"] = 5;
  const auto third = decode(second);
  EXPECT_EQ(third->spec->job.replicas, 9);
  // Another job of the same name, and a server without generations.
  job["metadata"]["uid"] = "v";
  EXPECT_NE(decode(third)->spec, third->spec);
  job["metadata"].erase("generation");
  const auto uncounted = decode(third);
  EXPECT_NE(decode(uncounted)->spec, uncounted->spec);
}

}  // namespace
}  // namespace ringmaster::kube
