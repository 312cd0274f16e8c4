// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/horovod_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

std::string Arguments(const std::vector<std::string>& arguments, bool mpi = false,
                      const std::string& interface = "eth0") {
  const Result<std::vector<std::string>> changed =
      HorovodArguments(arguments, {"/hosts", 4, interface, 0, mpi, "/agent"});
  if (!changed.ok()) return changed.error().message;
  std::string text;
  for (const std::string& word : *changed) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(HorovodRun, TheAgentSuppliesWhatTheCommandDoesNotName) {
  EXPECT_EQ(Arguments({"python", "train.py", "-np", "7"}),
            "--disable-cache -np 4 --hostfile /hosts --network-interfaces eth0 --gloo "
            "/agent rank python train.py -np 7");
  EXPECT_EQ(Arguments({"train"}, false, ""),
            "--disable-cache -np 4 --hostfile /hosts --gloo /agent rank train");
  EXPECT_EQ(Arguments({"train"}, true),
            "--disable-cache -np 4 --hostfile /hosts --network-interfaces eth0 /agent rank train");
}

TEST(HorovodRun, WhatTheCommandNamesStays) {
  EXPECT_EQ(Arguments({"-np", "2", "-H", "a:1,b:1", "--network-interface", "ib0", "--gloo", "train"}),
            "--disable-cache -np 2 -H a:1,b:1 --network-interface ib0 --gloo /agent rank train");
  EXPECT_EQ(Arguments({"--num-proc=2", "-Ha:2", "--network-interfaces=ib0", "--mpi", "train"}, true),
            "--disable-cache --num-proc=2 -Ha:2 --network-interfaces=ib0 --mpi /agent rank train");
  EXPECT_EQ(Arguments({"-np", "2", "-hostfile", "/mine", "--network-interface", "ib0", "train"}),
            "--disable-cache --gloo -np 2 -hostfile /mine --network-interface ib0 /agent rank train");
}

TEST(HorovodRun, AJobInOnePodUsesTheInterfaceOfTheLoopback) {
  const auto interface = [](std::vector<std::string> given, bool alone) {
    HorovodDefaults defaults{"/hosts", 4, "eth0", 0, false, "/agent", {"job-1-0", "10.0.0.1"}, alone, "lo"};
    given.emplace_back("train");
    const Result<std::vector<std::string>> changed = HorovodArguments(given, defaults);
    const auto option = std::find(changed->begin(), changed->end(), "--network-interfaces");
    return option == changed->end() ? "" : *(option + 1);
  };
  EXPECT_EQ(interface({}, true), "lo");
  EXPECT_EQ(interface({}, false), "eth0");
  EXPECT_EQ(interface({"--network-interfaces", "ib0"}, true), "ib0");
  EXPECT_EQ(interface({"-H", "job-1-0:1"}, false), "lo");
  EXPECT_EQ(interface({"-Hjob-1-0:1"}, false), "lo");
  EXPECT_EQ(interface({"--hosts=job-1-0:1,10.0.0.1:2"}, false), "lo");
  EXPECT_EQ(interface({"--hosts", "job-1-0:1,job-1-1:1"}, true), "eth0");
  EXPECT_EQ(interface({"-H", "job-1-1:1"}, true), "eth0");
  EXPECT_EQ(interface({"-H", "localhost:2"}, false), "lo");
  EXPECT_EQ(interface({"-H", "localhost:1,job-1-1:1"}, true), "eth0");
  EXPECT_EQ(interface({"-H", ""}, true), "eth0");
  EXPECT_EQ(interface({"--host-discovery-script", "job-1-0"}, true), "eth0");

  // As horovodrun reads it: the first word of each line.
  const std::string file = testing::TempDir() + "hosts-of-horovod";
  const auto of_file = [&](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomic(file, text).ok());
    const std::string found = interface({"--hostfile", file}, false);
    EXPECT_EQ(interface({"-hostfile=" + file}, true), found);
    return found;
  };
  EXPECT_EQ(of_file("job-1-0 slots=2\n10.0.0.1 slots=1"), "lo");
  EXPECT_EQ(of_file("job-1-0 slots=2\n\njob-1-1 slots=2\n"), "eth0");
  EXPECT_EQ(of_file(""), "eth0");
  EXPECT_EQ(interface({"--hostfile", file + ".missing"}, true), "eth0");
}

TEST(HorovodRun, FindsTheProgramBehindOptionsOfEveryKind) {
  const std::vector<std::string> given = {"-np", "2",  "-H",     "a:2",       "--network-interface",
                                          "lo",  "-p", "22",     "--verbose", "--blacklist-cooldown-range",
                                          "1",   "9",  "--gloo", "--tcp",     "--log-level",
                                          "INFO"};
  std::vector<std::string> arguments = given;
  arguments.insert(arguments.end(), {"python", "--verbose"});
  std::string expected = "--disable-cache";
  for (const std::string& word : given) expected += " " + word;
  EXPECT_EQ(Arguments(arguments), expected + " /agent rank python --verbose");
}

TEST(HorovodRun, ACommandWithoutAProgramIsNotChanged) {
  EXPECT_EQ(Arguments({"--check-build"}), "--check-build");
  EXPECT_EQ(Arguments({"-np", "2"}), "-np 2");
  EXPECT_EQ(Arguments({}), "");
}

TEST(HorovodRun, AnElasticJobHasADiscoveryScript) {
  const auto arguments = [](const std::vector<std::string>& given) {
    HorovodDefaults defaults{"/hosts", 4, "eth0", 2, false, "/agent"};
    const Result<std::vector<std::string>> changed = HorovodArguments(given, defaults);
    std::string text;
    for (const std::string& word : changed.value()) text += word + "|";
    return text;
  };
  EXPECT_EQ(arguments({"train"}),
            "--disable-cache|-np|4|--min-np|2|--host-discovery-script|/agent hosts|--network-interfaces|eth0|"
            "--gloo|/agent|rank|train|");
  EXPECT_EQ(arguments({"--min-np", "1", "--host-discovery-script", "ringmaster hosts", "train"}),
            "--disable-cache|-np|4|--network-interfaces|eth0|--gloo|--min-np|1|--host-discovery-script|"
            "ringmaster hosts|/agent|rank|train|");
  EXPECT_EQ(arguments({"-H", "a:1", "train"}),
            "--disable-cache|-np|4|--network-interfaces|eth0|--gloo|-H|a:1|/agent|rank|train|");
}

TEST(HorovodRun, MpiNeedsItsImplementation) {
  EXPECT_EQ(
      Arguments({"--mpi", "train"}),
      "the option --mpi needs spec.launch.mpi, which names the implementation of MPI in the image; set it, "
      "or use --gloo");
}

}  // namespace
}  // namespace ringmaster::agent
