// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/pod_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ringmaster::agent {
namespace {

using Strings = std::vector<std::string>;

TEST(PodEnvironment, WhatTheLauncherHasFromItsPodIsReplacedInOthers) {
  const Strings launcher = {"POD_IP=10.0.0.1", "PATH=/opt/launcher:/bin", "NODE=a", "LEVEL=1",
                            "ONLY_THERE=x",    "CUDA_VISIBLE_DEVICES=0"};
  // The command of the launcher has changed one variable, and set another one.
  const Strings rank = {"POD_IP=10.0.0.1", "PATH=/opt/launcher:/bin", "NODE=a", "LEVEL=2",
                        "ONLY_THERE=x",    "CUDA_VISIBLE_DEVICES=3",  "NEW=1",  "PMI_RANK=1"};
  const Strings pod = {"POD_IP=10.0.0.2", "PATH=/usr/bin",          "NODE=b",     "LEVEL=7", "OWN=y",
                       "NEW=0",           "CUDA_VISIBLE_DEVICES=1", "no variable"};
  using Values = std::map<std::string, std::string>;
  const auto taken = VariablesOfPod(rank, pod, MarksOf(launcher));
  EXPECT_EQ(Values(taken.begin(), taken.end()), (Values{{"POD_IP", "10.0.0.2"},
                                                        {"PATH", "/usr/bin"},
                                                        {"NODE", "b"},
                                                        {"OWN", "y"},
                                                        {"CUDA_VISIBLE_DEVICES", "1"}}));
  // An agent of an earlier build marks nothing.
  const auto unmarked = VariablesOfPod(rank, pod, "");
  EXPECT_EQ(Values(unmarked.begin(), unmarked.end()), (Values{{"OWN", "y"}, {"CUDA_VISIBLE_DEVICES", "1"}}));
}

TEST(PodEnvironment, WhatKubernetesHasComputedForTheLaunchersPodStaysThere) {
  const Strings launcher = {"POD_IP=10.0.0.1", "NODE=a", "HOST_IP=10.1.0.1", "EPOCHS=3"};
  // The command of the launcher has changed one of them: that is its choice.
  const Strings rank = {"POD_IP=10.0.0.1", "NODE=a", "HOST_IP=10.1.0.9", "EPOCHS=3", "PMI_RANK=1"};
  const Strings pod = {"NODE=b"};
  const std::string marks = MarksOf(launcher);
  EXPECT_EQ(VariablesOfLauncherPod(rank, pod, marks, "NODE,POD_IP,HOST_IP,ABSENT"), Strings{"POD_IP"});
  EXPECT_EQ(VariablesOfLauncherPod(rank, {}, marks, "NODE"), Strings{"NODE"});
  EXPECT_EQ(VariablesOfLauncherPod(rank, pod, marks, ""), Strings{}) << "an operator of an earlier build";
  EXPECT_EQ(VariablesOfLauncherPod(rank, pod, "", "POD_IP"), Strings{}) << "it may have been changed";
}

TEST(PodEnvironment, MarksHaveNoValues) {
  const std::string marks = MarksOf({"PASSWORD=secret", "A=b"});
  EXPECT_EQ(marks.size(), 16);
  EXPECT_EQ(marks.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(MarksOf({}), "");
}

}  // namespace
}  // namespace ringmaster::agent
