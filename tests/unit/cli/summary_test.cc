// SPDX-License-Identifier: Apache-2.0

#include "cli/run/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

TEST(Summary, HasTheNamesThatScriptsDependOn) {
  const Json json = SummaryJson({});
  for (const char* key : {"phase", "step", "totalSteps", "loss", "validation", "weightsHash", "optimizerHash",
                          "samplesPerSecond", "goodput", "generations", "workerFailures", "lostSteps",
                          "wallSeconds", "message"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json.size(), 14U);
}

TEST(Summary, PerplexityForTextAccuracyForImages) {
  Summary summary;
  summary.validation_loss = 2.0;
  summary.validation_accuracy = 0.5;
  EXPECT_EQ(SummaryJson(summary)["validation"], (Json{{"loss", 2.0}, {"accuracy", 0.5}}));
  summary.language_model = true;
  EXPECT_EQ(SummaryJson(summary)["validation"], (Json{{"loss", 2.0}, {"perplexity", std::exp(2.0)}}));
}

TEST(Summary, UnknownValuesAreNullAndNotPrinted) {
  Summary summary;
  summary.phase = "Interrupted";
  summary.loss = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(SummaryJson(summary)["loss"].is_null());
  EXPECT_TRUE(SummaryJson(summary)["validation"]["loss"].is_null());
  EXPECT_EQ(SummaryText(summary, "out").find("validation"), std::string::npos);
}

TEST(Summary, TextHasTokensPerSecondForLanguageModels) {
  Summary summary;
  summary.phase = "Succeeded";
  summary.samples_per_second = 10;
  summary.tokens_per_sample = 128;
  summary.goodput = 0.875;
  summary.worker_failures = 1;
  const std::string text = SummaryText(summary, "out/x");
  EXPECT_NE(text.find("1280 tokens/s"), std::string::npos);
  EXPECT_NE(text.find("87.5 %"), std::string::npos);
  EXPECT_NE(text.find("1 failure,"), std::string::npos);
  EXPECT_NE(text.find("out/x"), std::string::npos);
}

TEST(Summary, IsWrittenAtomically) {
  const TempFolder folder;
  ASSERT_TRUE(WriteSummary(folder.File("summary.json"), {}).ok());
  EXPECT_EQ(ParseJson(folder.Read("summary.json")).value(), SummaryJson({}));
  EXPECT_FALSE(WriteSummary("/nowhere/summary.json", {}).ok());
}

}  // namespace
}  // namespace ringmaster::cli
