// SPDX-License-Identifier: Apache-2.0

#include "cli/run/chaos.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process_children.h"

namespace ringmaster::cli {
namespace {

TEST(ParseChaos, ValidForms) {
  EXPECT_EQ(ParseChaos("none", 1)->kind, ChaosOptions::Kind::kNone);
  EXPECT_EQ(ParseChaos("", 1)->kind, ChaosOptions::Kind::kNone);
  EXPECT_EQ(ParseChaos("kill=2", 1)->interval, Duration(seconds(2)));
  EXPECT_EQ(ParseChaos("kill=0.25s", 1)->interval, Duration(milliseconds(250)));
  EXPECT_EQ(ParseChaos("stop=10s", 9)->kind, ChaosOptions::Kind::kStop);
  EXPECT_EQ(ParseChaos("stop=10s", 9)->seed, 9U);
}

TEST(ParseChaos, AnErrorNamesTheValidForms) {
  for (const char* text : {"kill", "kill=", "kill=0", "kill=-1", "kill=x", "kill=1x", "maim=2", "kill=nan",
                           "=3", "kill=1e9", "kill=inf"}) {
    auto parsed = ParseChaos(text, 1);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message.find("kill=SECONDS"), std::string::npos) << text;
  }
}

TEST(ChaosPlan, IsAFunctionOfTheSeed) {
  const ChaosOptions options{ChaosOptions::Kind::kKill, seconds(2), 7};
  ChaosPlan one(options);
  ChaosPlan two(options);
  ChaosPlan other({ChaosOptions::Kind::kKill, seconds(2), 8});
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const Duration delay = one.NextDelay();
    const Strike strike = one.NextStrike();
    EXPECT_GE(delay, Duration(seconds(1)));
    EXPECT_LE(delay, Duration(seconds(3)));
    EXPECT_EQ(delay, two.NextDelay());
    const Strike again = two.NextStrike();
    EXPECT_EQ(strike.victim, again.victim);
    EXPECT_EQ(strike.target, again.target);
    differs = differs || delay != other.NextDelay() || strike.victim != other.NextStrike().victim;
  }
  EXPECT_TRUE(differs);
}

TEST(ExecuteStrike, DoesNothingWithoutVictims) {
  EXPECT_EQ(ExecuteStrike({}, {}, SIGKILL), "");
  EXPECT_EQ(ChildrenOf(0).size(), 0U);
}

TEST(ExecuteStrike, KillsTheTrainerAndNotTheAgent) {
  const int child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::vector<pid_t> children = ChildrenOf(::getpid());
  EXPECT_EQ(children, std::vector<pid_t>{child});
  const std::string what =
      ExecuteStrike({Strike::Target::kTrainer, 5}, {{"job-1-0", ::getpid(), children}}, SIGKILL);
  EXPECT_NE(what.find("job-1-0"), std::string::npos);
  EXPECT_NE(what.find("trainer"), std::string::npos);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

}  // namespace
}  // namespace ringmaster::cli
