// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "tests/temp_folder.h"

namespace ringmaster::agent {
namespace {

using Variables = std::map<std::string, std::string>;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    CHECK(WriteFileAtomic(folder_ + "/secret", "s3cret\n").ok());
    CHECK(WriteFileAtomic(folder_ + "/job.yaml", "{}").ok());
    variables_ = {{"RINGMASTER_JOB", "team/gpt"},
                  {"RINGMASTER_POD", "gpt-1-0"},
                  {"RINGMASTER_COORDINATOR", "10.0.0.1:7000"},
                  {"RINGMASTER_SECRET_FILE", folder_ + "/secret"},
                  {"RINGMASTER_JOB_FILE", folder_ + "/job.yaml"},
                  {"RINGMASTER_TRAINER", "/bin/sh -c  true"}};
  }

  Result<Config> Load(const CommandLine& command = {}) const {
    return LoadConfig(
        [this](const char* name) -> std::optional<std::string> {
          const auto found = variables_.find(name);
          if (found == variables_.end()) return std::nullopt;
          return found->second;
        },
        "/nowhere", command);
  }

  const TempFolder temporary_;
  const std::string folder_ = temporary_.path();
  Variables variables_;
};

TEST_F(ConfigTest, ReadsAll) {
  variables_["RINGMASTER_STARTUP_SECONDS"] = "7";
  variables_["RINGMASTER_STEP_SECONDS"] = "3";
  variables_["RINGMASTER_TERMINATION_LOG"] = "/tmp/words";
  const auto config = Load();
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config.value().job, "team/gpt");
  EXPECT_EQ(config.value().coordinator_host, "10.0.0.1");
  EXPECT_EQ(config.value().coordinator_port, "7000");
  EXPECT_EQ(config.value().trainer.words, (std::vector<std::string>{"/bin/sh", "-c", "true"}));
  EXPECT_FALSE(config.value().trainer.is_program);
  EXPECT_EQ(config.value().limits.startup, seconds(7));
  EXPECT_EQ(config.value().limits.step, std::optional<Duration>(seconds(3)));
  EXPECT_EQ(config.value().termination_log, "/tmp/words");
}

TEST_F(ConfigTest, TheStepLimitIsLearnedUnlessSet) {
  EXPECT_EQ(Load().value().limits.step, std::nullopt);
  variables_["RINGMASTER_STEP_SECONDS"] = "auto";
  EXPECT_EQ(Load().value().limits.step, std::nullopt);
  variables_["RINGMASTER_STEP_SECONDS"] = "0";
  EXPECT_EQ(Load().value().limits.step, std::optional<Duration>(Duration::zero()));
}

TEST_F(ConfigTest, Ipv6AddressesNeedBrackets) {
  variables_["RINGMASTER_COORDINATOR"] = "[fd00::1]:7000";
  EXPECT_EQ(Load().value().coordinator_host, "fd00::1");
  variables_["RINGMASTER_COORDINATOR"] = "fd00::1:7000";
  EXPECT_FALSE(Load().ok());
}

TEST_F(ConfigTest, ReportsAllProblemsTogether) {
  variables_ = {};
  const auto config = Load();
  ASSERT_FALSE(config.ok());
  for (const char* name : {"RINGMASTER_JOB:", "RINGMASTER_POD", "RINGMASTER_COORDINATOR",
                           "RINGMASTER_SECRET_FILE", "RINGMASTER_JOB_FILE", "RINGMASTER_TRAINER"}) {
    EXPECT_NE(config.error().message.find(name), std::string::npos)
        << name << " in " << config.error().message;
  }
}

TEST_F(ConfigTest, RefusesInvalidValues) {
  const Variables good = variables_;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"RINGMASTER_JOB", "gpt"},
      {"RINGMASTER_JOB", "/gpt"},
      {"RINGMASTER_JOB", "team/"},
      {"RINGMASTER_POD", ""},
      {"RINGMASTER_COORDINATOR", "host"},
      {"RINGMASTER_COORDINATOR", "host:"},
      {"RINGMASTER_COORDINATOR", ":7000"},
      {"RINGMASTER_COORDINATOR", "host:0"},
      {"RINGMASTER_COORDINATOR", "host:65536"},
      {"RINGMASTER_COORDINATOR", "host:7000x"},
      {"RINGMASTER_SECRET_FILE", "/nowhere/secret"},
      {"RINGMASTER_JOB_FILE", "/nowhere/job.yaml"},
      {"RINGMASTER_TRAINER", "/nowhere/trainer"},
      {"RINGMASTER_STARTUP_SECONDS", "soon"},
      {"RINGMASTER_STARTUP_SECONDS", "-1"},
      {"RINGMASTER_STEP_SECONDS", "1.5"},
      {"RINGMASTER_STEP_SECONDS", "99999999999999999999"},
  };
  for (const auto& [name, value] : cases) {
    variables_ = good;
    variables_[name] = value;
    const auto config = Load();
    ASSERT_FALSE(config.ok()) << name << "=" << value;
    EXPECT_EQ(config.error().message.find(name), 0u) << config.error().message;
  }
}

TEST_F(ConfigTest, TheTrainerMayBeAProgramOfTheUser) {
  variables_["RINGMASTER_STOP_SECONDS"] = "90";
  variables_["RINGMASTER_SLOTS"] = "2";
  const auto config = Load({.trainer = {"sh", "-c", "a b  c"}});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->trainer.words, (std::vector<std::string>{"sh", "-c", "a b  c"})) << "not split again";
  EXPECT_TRUE(config->trainer.is_program);
  EXPECT_TRUE(config->limits.program);
  EXPECT_EQ(config->stop_grace, seconds(90));
  EXPECT_TRUE(config->prefix_lines);
  EXPECT_TRUE(config->program.empty());

  for (const char* command : {"no-such-program", "/nowhere/train", "./secret"}) {
    const auto refused = Load({.trainer = {command}});
    ASSERT_FALSE(refused.ok()) << command;
    EXPECT_EQ(refused.error().message.find("command: "), 0u) << refused.error().message;
  }
  variables_.erase("RINGMASTER_JOB_FILE");
  EXPECT_FALSE(Load({.trainer = {"sh"}}).ok()) << "the library reads the job";
  EXPECT_FALSE(Load({.program = {"sh"}}).ok()) << "RINGMASTER_ADDRESS is not set";
}

TEST_F(ConfigTest, TheCommandOfAProgramExists) {
  variables_["RINGMASTER_ADDRESS"] = "10.0.0.2";
  EXPECT_TRUE(Load({.program = {"sh", "-c", "no-such-program"}}).ok()) << "the shell finds out";
  for (const char* command : {"no-such-program", "/nowhere/train", "./secret"}) {
    const auto refused = Load({.program = {command}});
    ASSERT_FALSE(refused.ok()) << command;
    EXPECT_EQ(refused.error().message.find("command: "), 0u) << refused.error().message;
  }
  EXPECT_EQ(Load({.program = {"no-such-program"}}).error().message,
            "command: no-such-program: no such program in PATH");
  variables_["RINGMASTER_MPI"] = "openmpi";
  EXPECT_TRUE(Load({.program = {"no-such-mpirun"}}).ok()) << "most pods do not run it";
}

TEST_F(ConfigTest, OnlyRanksOfHorovodUseGlooInsteadOfMpi) {
  variables_["RINGMASTER_ADDRESS"] = "10.0.0.2";
  variables_["RINGMASTER_MPI"] = "gloo";
  EXPECT_EQ(Load({.program = {"horovodrun"}}).error().message,
            "RINGMASTER_MPI: must be openmpi, mpich or intel, or gloo with framework horovod (got \"gloo\")");
  variables_["RINGMASTER_FRAMEWORK"] = "horovod";
  EXPECT_TRUE(Load({.program = {"horovodrun"}}).ok());
}

TEST(CommandLineTest, ParsesTheWordsAfterTheName) {
  EXPECT_EQ(ParseCommandLine({"train", "--", "python", "train.py"})->trainer,
            (std::vector<std::string>{"python", "train.py"}));
  EXPECT_EQ(ParseCommandLine({"run", "--", "a", "--", "b"})->program,
            (std::vector<std::string>{"a", "--", "b"}));
  for (const std::vector<std::string>& native : {std::vector<std::string>{}, {"agent"}}) {
    const auto line = ParseCommandLine(native);
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->program.empty() && line->trainer.empty());
  }
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"train"},
                                                {"train", "--"},
                                                {"train", "python", "train.py"},
                                                {"run", "x", "y"}})
    EXPECT_FALSE(ParseCommandLine(wrong).ok()) << wrong.back();
}

TEST_F(ConfigTest, ReadsTheSecretWithoutItsNewline) {
  EXPECT_EQ(ReadSecret(folder_ + "/secret").value(), "s3cret");
  CHECK(WriteFileAtomic(folder_ + "/secret", "\n").ok());
  EXPECT_FALSE(ReadSecret(folder_ + "/secret").ok());
}

TEST_F(ConfigTest, TheNumberOfSlotsIsLimited) {
  EXPECT_EQ(Load()->slots, 1);
  variables_["RINGMASTER_SLOTS"] = "8";
  EXPECT_EQ(Load()->slots, 8);
  for (const char* bad : {"0", "gpu", "1000"}) {
    variables_["RINGMASTER_SLOTS"] = bad;
    EXPECT_FALSE(Load().ok()) << bad;
  }
}

}  // namespace
}  // namespace ringmaster::agent
