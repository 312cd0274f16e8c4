// SPDX-License-Identifier: Apache-2.0

#include "cli/history/step_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

using rendezvous::StepRecord;

StepRecord TypicalStep(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 2.0 + std::sin(static_cast<double>(step)) / 3;
  record.learning_rate = 1.2345678e-4;
  record.gradient_norm = 0.40558275776248803;
  record.samples = 32;
  record.generation = (uint64_t{1} << 32) | 5;
  record.workers = 4;
  record.seconds = 0.299659400;
  return record;
}

TEST(FullStepLine, KeepsEveryBitOfDoubles) {
  StepRecord record = TypicalStep(3);
  record.gradient_norm = std::nextafter(2.0, 3.0);
  const Json line = ParseJson(FullStepLine(record)).value();
  EXPECT_EQ(line["loss"].get<double>(), record.loss);
  EXPECT_EQ(line["lr"].get<double>(), record.learning_rate);
  EXPECT_EQ(line["gradNorm"].get<double>(), record.gradient_norm);
  EXPECT_EQ(line["generation"].get<uint64_t>(), record.generation);
  EXPECT_EQ(line.size(), 8U);
}

TEST(FullStepLine, NotANumberIsStillJson) {
  StepRecord record = TypicalStep(1);
  record.loss = std::nan("");
  EXPECT_TRUE(ParseJson(FullStepLine(record)).value()["loss"].is_null());
}

TEST(StepLineWriter, NamesTheColumnsOnceAndWritesAllWhenTheGangChanges) {
  StepLineWriter writer;
  StepRecord record = TypicalStep(1);
  record.loss = 2.5;
  EXPECT_EQ(writer.Line(record),
            R"({"step":1,"loss":2.5,"lr":0.000123457,"gradNorm":0.405583,"seconds":0.29966,"samples":32,)"
            R"("generation":4294967301,"workers":4})");
  record.step = 2;
  EXPECT_EQ(writer.Line(record), "[2,2.5,0.000123457,0.405583,0.29966]");
  record.workers = 3;
  EXPECT_EQ(writer.Line(record), "[2,2.5,0.000123457,0.405583,0.29966,32,4294967301,3]");
  EXPECT_EQ(writer.Line(record), "[2,2.5,0.000123457,0.405583,0.29966]");
}

TEST(StepLineWriter, TheLongestLineOfASteadyGangTakesAtMost75Bytes) {
  StepLineWriter writer;
  StepRecord record = TypicalStep(99'999'999);
  record.loss = -1.2345678901234567e-105;
  record.learning_rate = record.gradient_norm = 1.23456e-05;
  record.seconds = 0.00012345;
  writer.Line(record);
  const std::string line = writer.Line(record) + "\n";
  EXPECT_LE(line.size(), 75U) << line;
}

TEST(StepLineReader, ReadsTheObjectsOfEarlierVersions) {
  const std::string text =
      R"({"step":7,"loss":1.5,"lr":0.1,"gradNorm":2,"seconds":0.5,"samples":8,"generation":3,"workers":2})"
      "\n"
      R"({"step":8,"loss":1.25,"lr":0.1,"gradNorm":null,"seconds":0.25})"
      "\n[9,null,0.2,4,0.125]\n";
  std::vector<StepRecord> records;
  ASSERT_TRUE(StepLineReader().Read(text, &records).ok());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[1].loss, 1.25);
  EXPECT_TRUE(std::isnan(records[1].gradient_norm));
  EXPECT_EQ(records[1].samples, 8);
  EXPECT_TRUE(std::isnan(records[2].loss));
  EXPECT_EQ(records[2].learning_rate, 0.2);
  EXPECT_EQ(records[2].gradient_norm, 4);
  EXPECT_EQ(records[2].seconds, 0.125);
  EXPECT_EQ(records[2].generation, 3U);
}

TEST(StepLineWriter, ReaderReturnsWhatWasWritten) {
  StepLineWriter writer;
  std::string text;
  std::vector<StepRecord> written;
  for (int64_t step = 1; step <= 6; ++step) {
    StepRecord record = TypicalStep(step);
    record.workers = step < 4 ? 4 : 3;
    record.generation += step < 4 ? 0 : 1;
    text += writer.Line(record) + "\n";
    written.push_back(record);
  }
  std::vector<StepRecord> read;
  StepLineReader reader;
  EXPECT_EQ(reader.Read(text, &read).value(), text.size());
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].step, written[i].step);
    EXPECT_EQ(read[i].loss, written[i].loss) << "every bit of the loss";
    EXPECT_NEAR(read[i].learning_rate, written[i].learning_rate, 1e-9);
    EXPECT_NEAR(read[i].gradient_norm, written[i].gradient_norm, 1e-6);
    EXPECT_NEAR(read[i].seconds, written[i].seconds, 1e-5);
    EXPECT_EQ(read[i].samples, written[i].samples);
    EXPECT_EQ(read[i].generation, written[i].generation);
    EXPECT_EQ(read[i].workers, written[i].workers);
  }
}

TEST(StepLineReader, FollowsAFileThatGrowsInTheMiddleOfALine) {
  StepLineWriter writer;
  const std::string text = writer.Line(TypicalStep(1)) + "\n" + writer.Line(TypicalStep(2)) + "\n";
  StepLineReader reader;
  std::vector<StepRecord> records;
  size_t read = 0;
  for (size_t size = 0; size <= text.size(); ++size)
    read += reader.Read(std::string_view(text).substr(read, size - read), &records).value();
  EXPECT_EQ(read, text.size());
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[1].workers, 4) << "held from the first line";
}

TEST(StepLineReader, ALossThatIsNotANumberIsOneInMemory) {
  StepRecord record = TypicalStep(1);
  record.loss = record.gradient_norm = std::nan("");
  std::vector<StepRecord> records;
  ASSERT_TRUE(StepLineReader().Read(StepLineWriter().Line(record) + "\n", &records).ok());
  EXPECT_TRUE(std::isnan(records.at(0).loss));
  EXPECT_TRUE(std::isnan(records.at(0).gradient_norm));
}

TEST(ReadSteps, NamesFileAndLineOfWhatItCannotRead) {
  const TempFolder folder;
  for (const char* bad : {"{", "[]", "{\"step\":\"x\"}", "{\"loss\":1}", "{\"step\":-1}",
                          "{\"step\":1,\"workers\":99999999999}", "\xff", "7", "[2,1,1,1]", "[2,1,1,1,1,1]",
                          "[2,\"x\",1,1,1]", "[0,1,1,1,1]"}) {
    const std::string path = folder.Write("m", StepLineWriter().Line(TypicalStep(1)) + "\n" + bad + "\n");
    const auto steps = ReadSteps(path);
    ASSERT_FALSE(steps.ok()) << bad;
    EXPECT_EQ(steps.error().code, Code::kCorrupt);
    EXPECT_THAT(steps.error().message, testing::HasSubstr(path + ": line 2")) << bad;
  }
  EXPECT_EQ(ReadSteps(folder.File("none")).error().code, Code::kNotFound);
}

TEST(ReadSteps, ATornLastLineIsIgnored) {
  const TempFolder folder;
  const auto steps =
      ReadSteps(folder.Write("m", StepLineWriter().Line(TypicalStep(1)) + "\n{\"step\":2,\"lo"));
  EXPECT_EQ(steps.value().size(), 1U);
}

}  // namespace
}  // namespace ringmaster::cli
