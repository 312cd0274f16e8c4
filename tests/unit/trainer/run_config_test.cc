// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/run_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/temp_folder.h"
#include "worker/compute/device/build.h"
#include "worker/compute/device/host_device.h"
#include "worker/compute/numerics/revision.h"
#include "worker/trainer/agree.h"

namespace ringmaster::trainer {
namespace {

api::TrainingJob Job() {
  api::TrainingJob job;
  job.spec.framework = "native";
  job.spec.training.emplace();
  job.spec.training->model.kind = "gpt";
  job.spec.training->data.kind = "text";
  job.spec.training->data.path = "/nowhere/at/all";
  job.spec.training->steps = 10;
  return job;
}

TEST(RunConfig, ConvertsTheWholeJob) {
  api::TrainingJob job = Job();
  job.spec.training->optimizer.learningRate = "0.25";
  job.spec.training->optimizer.clipNorm = "1.5";
  job.spec.training->batch = {96, 12};
  const auto config = MakeRunConfig(job, 2);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->schedule.base, 0.25);
  EXPECT_EQ(config->optimizer.clip_norm, 1.5);
  EXPECT_EQ(config->SamplesPerMicroBatch(), 8);
  EXPECT_EQ(config->model.max_samples, 8);
  EXPECT_EQ(config->model.vocabulary, 256);
}

TEST(RunConfig, NamesTheFieldOfABadNumber) {
  api::TrainingJob job = Job();
  job.spec.training->optimizer.beta2 = "much";
  const auto config = MakeRunConfig(job, 1);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("spec.training.optimizer.beta2"), std::string::npos);
}

TEST(RunConfig, MissingDataNamesThePath) {
  auto config = MakeRunConfig(Job(), 1).value();
  const auto data = OpenData(&config);
  ASSERT_FALSE(data.ok());
  EXPECT_NE(data.error().message.find("/nowhere/at/all"), std::string::npos);
}

// With `steps` the manifest is refused; how many steps `epochs` are, only the data says.
TEST(RunConfig, AWarmUpLongerThanTheEpochsIsRefused) {
  const TempFolder folder;
  api::TrainingJob job = Job();
  api::Training& training = *job.spec.training;
  training.data.path = folder.Write("a.txt", std::string(1281, 'a'));
  training.data.validationFraction = "0";
  training.batch = {4, 4};
  training.steps = 0;
  training.epochs = 2;  // of 10 samples: 3 steps each
  training.optimizer.warmupSteps = 6;
  auto config = MakeRunConfig(job, 1).value();
  ASSERT_TRUE(OpenData(&config).ok());
  training.optimizer.warmupSteps = 7;
  config = MakeRunConfig(job, 1).value();
  const auto data = OpenData(&config);
  ASSERT_FALSE(data.ok());
  EXPECT_THAT(data.error().message, testing::HasSubstr("warmupSteps: must be at most the 6 steps"));
}

TEST(RunConfig, NotesThatNothingIsValidated) {
  const TempFolder folder;
  api::TrainingJob job = Job();
  api::Training& training = *job.spec.training;
  const auto notes = [&](const char* share, int64_t every) {
    training.data.validationFraction = share;
    training.validateEverySteps = every;
    auto config = MakeRunConfig(job, 1).value();
    const auto data = OpenData(&config).value();
    return DataNotes(config, *data);
  };
  training.data.path = folder.Write("a.txt", std::string(1281, 'a'));
  EXPECT_THAT(notes("0.05", 0), testing::ElementsAre(testing::HasSubstr("less than one sample")));
  EXPECT_THAT(notes("0", 1), testing::ElementsAre(testing::HasSubstr("validateEverySteps")));
  EXPECT_THAT(notes("0", 0), testing::IsEmpty());
  EXPECT_THAT(notes("0.2", 1), testing::IsEmpty());
}

TEST(RunConfig, DescriptionsSurviveARoundTrip) {
  const auto config = MakeRunConfig(Job(), 1).value();
  engine::Layout layout;
  const Json meta = DescribeRun(config, layout, {3, 77});
  EXPECT_EQ(CursorFromDescription(meta).value(), (data::Cursor{3, 77}));
  engine::ModelConfig model = ModelFromDescription(meta).value();
  model.max_samples = config.model.max_samples;
  EXPECT_EQ(model, config.model);
  EXPECT_EQ(TokenizerFromDescription(meta).value(), "bytes");
}

TEST(RunConfig, APodThatRequestsGpusOnANodeMayNotUseTheCpu) {
  const auto on_node = [](const api::TrainingJob& job) { return DeviceOnNode(job, "node-1"); };
  api::TrainingJob job = Job();
  job.spec.training->device = "auto";
  EXPECT_EQ(on_node(job), "auto");
  job.spec.workers.slots = "gpu";
  EXPECT_EQ(on_node(job), "cuda");
  job.spec.workers.slots = "1";
  for (const char* const kind : {"limits", "requests"}) {
    job.spec.workers.template_ = Json::parse(fmt::format(
        R"({{"spec": {{"containers": [{{"name": "worker", "resources": {{"{}": {{"nvidia.com/gpu": 1}}}}}}]}}}})",
        kind));
    EXPECT_EQ(on_node(job), "cuda") << kind;
    EXPECT_EQ(DeviceOnNode(job, ""), "auto") << kind;
  }
  job.spec.training->device = "cpu";
  EXPECT_EQ(on_node(job), "cpu");
}

TEST(RunConfig, NumericsChooseTheSums) {
  const auto make = [](const char* numerics) {
    api::TrainingJob job = Job();
    job.spec.training->numerics = numerics;
    return MakeRunConfig(job, 1).value();
  };
  EXPECT_TRUE(make("exact").exact);
  EXPECT_FALSE(make("exact").wide_sums);
  EXPECT_TRUE(make("exact64").exact);
  EXPECT_TRUE(make("exact64").wide_sums);
  EXPECT_FALSE(make("fast").exact);
  EXPECT_FALSE(make("fast").wide_sums);
}

TEST(RunConfig, TheFingerprintCoversWhatDeterminesTheBits) {
  const auto config = MakeRunConfig(Job(), 1).value();
  const engine::Layout layout;
  const std::string base = Fingerprint(config, layout, 1);
  EXPECT_NE(Fingerprint(config, layout, 2), base);
  auto other = config;
  other.seed = 99;
  EXPECT_NE(Fingerprint(other, layout, 1), base);
  other = config;
  other.wide_sums = true;
  EXPECT_NE(Fingerprint(other, layout, 1), base);
  other = config;
  other.schedule.base *= 2;
  EXPECT_NE(Fingerprint(other, layout, 1), base);
  other = config;
  other.optimizer.clip_norm += 1;
  EXPECT_NE(Fingerprint(other, layout, 1), base);
  other = config;
  other.run = "default/another-job";
  EXPECT_NE(Fingerprint(other, layout, 1), base);
  other = config;
  other.schedule.kind = optimizer::ScheduleKind::kCosine;
  const checkpoint::Identity cosine = IdentityOf(other, layout, 1);
  other.schedule.total_steps += 1;  // the run is extended, which is reported, since the rate depends on it
  EXPECT_EQ(IdentityOf(other, layout, 1).model, cosine.model);
  EXPECT_NE(IdentityOf(other, layout, 1).notes, cosine.notes);
  other = config;
  other.model.threads = 7;  // neither threads nor the length of the run affect the bits
  other.steps = 1000;
  EXPECT_EQ(Fingerprint(other, layout, 1), base);
}

// Two builds may add different last bits to the same gradient: the coordinator refuses the smaller group and
// names the words that differ.
TEST(RunConfig, MembersShareTheBuildThatComputes) {
  const auto config = MakeRunConfig(Job(), 1).value();
  const std::string members = FingerprintOfMembers(config, engine::Layout{});
  EXPECT_THAT(members, testing::EndsWith(" " + device::BuildOfNumerics()));
  EXPECT_THAT(members, testing::HasSubstr(fmt::format(" numerics={} ", numerics::kRevision)));
  EXPECT_THAT(members, testing::ContainsRegex(" onednn=[0-9.]+ compiler=[a-z]+-[0-9.]+$"));
}

TEST(RunConfig, ACheckpointOfAnotherBuildIsNoticed) {
  const auto device = device::NewHostDevice(1);
  Json meta = {{"device", DescribeDevice(*device)}};
  EXPECT_EQ(DifferentBuild(meta), "");
  meta["device"]["build"] = "numerics=1 onednn=2.6.3";
  EXPECT_THAT(DifferentBuild(meta), testing::HasSubstr("numerics=1 onednn=2.6.3, this build has numerics="));
  meta["device"].erase("build");
  EXPECT_THAT(DifferentBuild(meta), testing::HasSubstr("another revision"));
}

TEST(RunConfig, MembersShareAlsoWhatMayChangeBetweenRuns) {
  const auto config = MakeRunConfig(Job(), 1).value();
  const engine::Layout layout;
  const std::string base = FingerprintOfMembers(config, layout);
  auto other = config;
  other.model.threads = 7;
  other.data.path = "/another/mount";
  other.checkpoint_every_steps += 1;
  EXPECT_EQ(FingerprintOfMembers(other, layout), base);
  other = config;
  other.steps += 1;
  EXPECT_NE(FingerprintOfMembers(other, layout), base);
  other = config;
  other.schedule.base *= 2;
  EXPECT_NE(FingerprintOfMembers(other, layout), base);
  other = config;
  other.seed = 99;
  EXPECT_NE(FingerprintOfMembers(other, layout), base);
}

TEST(RunConfig, ForeignDescriptionsAreRefused) {
  EXPECT_FALSE(ModelFromDescription(Json::object()).ok());
  EXPECT_FALSE(ModelFromDescription({{"kind", 7}}).ok());
  const auto of_program = ModelFromDescription({{"kind", "program"}, {"arrays", Json::object()}});
  ASSERT_FALSE(of_program.ok());
  EXPECT_NE(of_program.error().message.find("libringmaster"), std::string::npos);
  EXPECT_FALSE(ModelFromDescription({{"model", {{"kind", "gpt"}}}}).ok());
  EXPECT_FALSE(CursorFromDescription({{"cursor", {{"epoch", -1}, {"position", 0}}}}).ok());
}

}  // namespace
}  // namespace ringmaster::trainer
