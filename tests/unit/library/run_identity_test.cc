// SPDX-License-Identifier: Apache-2.0

#include "worker/library/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ringmaster::library {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A model of so many layers, each of so many elements.
Config Model(int layers, int64_t elements) {
  Config config;
  for (int i = 0; i < layers; ++i)
    config.tensors.push_back({.name = "layer." + std::to_string(i), .elements = elements});
  return config;
}

TEST(PlainName, KeepsTheDifferencesOfLongTexts) {
  EXPECT_EQ(PlainName("torch \"2\"\n"), "torch _2__");
  const std::string text(480, 'a');
  EXPECT_EQ(PlainName(text), text);
  const std::string one = PlainName(text + "1");
  EXPECT_LE(one.size(), text.size());
  EXPECT_NE(PlainName(text + "2"), one);
}

TEST(MembersFingerprint, NamesTheIntervalOfCheckpoints) {
  Config config = Model(1, 10);
  config.checkpoint_every_steps = 5;
  EXPECT_THAT(MembersFingerprint(config), HasSubstr(" checkpoints=0")) << "there is no folder";
  config.checkpoint_folder = "/some/folder";
  EXPECT_THAT(MembersFingerprint(config), HasSubstr(" checkpoints=5"));
}

TEST(DifferencesFrom, ListsWhatAPersonCanRead) {
  const Config here = Model(3, 10);
  EXPECT_EQ(DifferencesFrom(DescribeTensors(Model(2, 10).tensors), here), "layer.2 is missing");
  EXPECT_EQ(DifferencesFrom(DescribeTensors(Model(4, 10).tensors), here), "layer.3 is not in this model");
  EXPECT_THAT(DifferencesFrom(DescribeTensors(Model(3, 11).tensors), here),
              HasSubstr("layer.0 has 11 elements, here 10; layer.1 has"));
  EXPECT_EQ(DifferencesFrom(DescribeTensors(here.tensors), here), "");
}

TEST(DifferencesFrom, ListsTwentyAndCountsTheRest) {
  const auto differences = [](int layers) {
    return DifferencesFrom(DescribeTensors(Model(layers, 11).tensors), Model(layers, 10));
  };
  EXPECT_THAT(differences(20), HasSubstr("layer.9 has 11 elements, here 10"));
  EXPECT_THAT(differences(20), Not(HasSubstr("more")));
  EXPECT_THAT(differences(25), HasSubstr("; and 5 more"));
}

}  // namespace
}  // namespace ringmaster::library
