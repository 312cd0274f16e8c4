// SPDX-License-Identifier: Apache-2.0

// The texts are those of Open MPI 4.1.4 and MPICH 4.0.
#include "worker/agent/mpi/launcher_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "worker/agent/shell/log_pipe.h"

namespace ringmaster::agent {
namespace {

const std::string kFrame(74, '-');

std::string ReasonOf(const std::string& text) {
  LauncherReport report;
  std::deque<std::string> tail;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    tail.push_back(text.substr(begin, end - begin));
    if (tail.size() > LogPipe::kTailLines) tail.pop_front();
    report.Take(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return report.Reason(tail);
}

TEST(LauncherReport, TheReasonIsTheFirstParagraph) {
  std::string advice;
  for (int i = 0; i < 25; ++i) advice += "  " + std::to_string(i) + ". advice\n";
  const std::string reason =
      ReasonOf(kFrame +
               "\nThere are not enough slots available in the system to satisfy the 4\n"
               "slots that were requested by the application:\n\n  true\n\n"
               "Either request fewer slots for your application, or make more slots\n"
               "available for use.\n\nA \"slot\" is the Open MPI term for\n" +
               advice + kFrame + "\n");
  EXPECT_EQ(
      reason,
      "There are not enough slots available in the system to satisfy the 4 slots that were requested by the "
      "application: true");
  EXPECT_TRUE(IsHopeless(reason));
}

TEST(LauncherReport, AConsequenceIsNotTheReason) {
  const std::string reason = ReasonOf(kFrame +
                                      "\nOpen RTE was unable to open the hostfile:\n    /etc/mpi/hostfile\n"
                                      "Check to make sure the path and filename are correct.\n" +
                                      kFrame + "\n" + kFrame +
                                      "\nAn internal error has occurred in ORTE:\n\n[[2322,0],0] "
                                      "FORCE-TERMINATE AT (null):1 - error a.c(352)\n\n"
                                      "This is something that should be reported to the developers.\n" +
                                      kFrame + "\n");
  EXPECT_EQ(reason,
            "Open RTE was unable to open the hostfile: /etc/mpi/hostfile Check to make sure the path and "
            "filename are "
            "correct.");
  EXPECT_TRUE(IsHopeless(reason));
}

TEST(LauncherReport, AConsequenceAloneIsBetterThanNothing) {
  const std::string reason =
      ReasonOf(kFrame + "\nmpirun noticed that process rank 1 exited on signal 9.\n" + kFrame + "\n");
  EXPECT_EQ(reason, "mpirun noticed that process rank 1 exited on signal 9.");
  EXPECT_FALSE(IsHopeless(reason));
}

TEST(LauncherReport, AnUnknownOption) {
  const std::string open_mpi =
      ReasonOf("mpirun: Error: unknown option \"--nosuch\"\nType 'mpirun --help' for usage.\n");
  EXPECT_EQ(open_mpi, "mpirun: Error: unknown option \"--nosuch\"");
  EXPECT_TRUE(IsHopeless(open_mpi));
  const std::string hydra = ReasonOf(
      "[mpiexec@vm] match_arg (lib/utils/args.c:166): unrecognized argument nosuch\n"
      "[mpiexec@vm] HYDU_parse_array (lib/utils/args.c:181): argument matching returned error\n"
      "[mpiexec@vm] main (mpiexec/mpiexec.c:148): error parsing parameters\n");
  EXPECT_EQ(hydra, "unrecognized argument nosuch");
  EXPECT_TRUE(IsHopeless(hydra));
}

TEST(LauncherReport, AWarningAtTheStartIsNoReason) {
  EXPECT_EQ(ReasonOf(kFrame + "\nWARNING: no device found\n" + kFrame + "\nstep 1\nout of memory\n\n"),
            "out of memory");
  EXPECT_EQ(ReasonOf(kFrame + "\nmpirun was unable to find the file\n\nExecutable: a\n" + kFrame + "\nbye\n"),
            "bye");
}

TEST(LauncherReport, WithoutTextThereIsNoReason) {
  EXPECT_EQ(ReasonOf(""), "");
  EXPECT_EQ(ReasonOf(kFrame + "\n"), "");
}

TEST(LauncherReport, ALongReasonEndsWithAWord) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "word ";
  const std::string reason = ReasonOf(kFrame + "\n" + words + "\n" + kFrame + "\n");
  EXPECT_TRUE(reason.ends_with("word ...")) << reason;
  EXPECT_LT(reason.size(), 310U);
}

}  // namespace
}  // namespace ringmaster::agent
