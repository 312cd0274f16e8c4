// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/termination.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "rendezvous/messages.h"
#include "tests/temp_folder.h"

namespace ringmaster::agent {
namespace {

class TerminationTest : public ::testing::Test {
 protected:
  std::string Written() const { return ReadFile(path_).value(); }
  const TempFolder folder_;
  const std::string path_ = folder_.File("words");
};

TEST_F(TerminationTest, HasTheReasonAndTheLastLines) {
  WriteTerminationLog(path_, "the trainer failed", "line 1\nline 2");
  EXPECT_EQ(Written(), "the trainer failed\nline 1\nline 2\n");
}

TEST_F(TerminationTest, KeepsTheNewestOfALongTail) {
  WriteTerminationLog(path_, "why", std::string(10'000, 'x') + "the end");
  EXPECT_LE(Written().size(), 4096u);
  EXPECT_EQ(Written().substr(0, 4), "why\n");
  EXPECT_TRUE(Written().ends_with("the end\n"));
}

TEST_F(TerminationTest, DoesNotRepeatTheReason) {
  WriteTerminationLog(path_, "no such folder: /data", "no such folder: /data");
  EXPECT_EQ(Written(), "no such folder: /data\n");
}

TEST_F(TerminationTest, AFinishedJobIsNotedAfterWhatTheProgramWrote) {
  const std::string note(rendezvous::kFinishedNote);
  WriteFinishedNote(path_);
  EXPECT_EQ(Written(), note + "\n");
  WriteFinishedNote(path_);
  EXPECT_EQ(Written(), note + "\n") << "each slot writes it";
  ASSERT_TRUE(WriteFileAtomic(path_, "accuracy 0.93").ok());
  WriteFinishedNote(path_);
  EXPECT_EQ(Written(), "accuracy 0.93\n" + note + "\n");
}

TEST_F(TerminationTest, AnEmptyPathWritesNothing) {
  WriteTerminationLog("", "why", "");
  WriteFinishedNote("");
  WriteTerminationLog("/nowhere/words", "why", "");
}

}  // namespace
}  // namespace ringmaster::agent
