// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/launch_job.h"

#include <gtest/gtest.h>

#include "api/load.h"
#include "api/yaml_text.h"
#include "cli/launch/command_line.h"

namespace ringmaster::cli::launch {
namespace {

using Words = std::vector<std::string>;

LaunchRequest RequestOf(Words command, Training training = {"pytorch", "ranks"}) {
  LaunchRequest request;
  request.name = "train";
  request.command = std::move(command);
  request.training = std::move(training);
  return request;
}

// Returns the job, which must be valid.
api::TrainingJob JobOf(const LaunchRequest& request) {
  const api::Loaded loaded = api::LoadYaml(api::YamlText(LaunchJob(request)));
  EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front().ToString();
  return loaded.job;
}

TEST(LaunchJob, HasTheCommandAndTheWorkers) {
  LaunchRequest request =
      RequestOf({"python3", "train.py", "--cost", "$(PRICE)", "a$b"}, {"pytorch", "library"});
  ASSERT_TRUE(ReadWorkers("8", &request).ok());
  request.min = 4;
  request.gpus = 1;
  request.image = "registry.local/torch:1";
  request.cpus = "4";
  request.memory = "8Gi";
  request.runtime = "nvidia";
  request.max_restarts = 3;
  const api::TrainingJob job = JobOf(request);
  EXPECT_EQ(job.spec.workers.replicas, 8);
  EXPECT_EQ(job.spec.workers.EffectiveMin(), 4);
  EXPECT_EQ(job.spec.workers.EffectiveMax(), 8);
  EXPECT_EQ(job.spec.workers.slots, "1");
  EXPECT_EQ(job.spec.launch.kind, "library");
  EXPECT_EQ(job.spec.restart.maxRestarts, 3);
  const Json& pod = job.spec.workers.template_["spec"];
  EXPECT_EQ(pod["runtimeClassName"], "nvidia");
  const Json& worker = pod["containers"][0];
  EXPECT_EQ(worker["command"], Json({"python3", "train.py", "--cost", "$$(PRICE)", "a$b"}));
  EXPECT_EQ(worker["image"], "registry.local/torch:1");
  EXPECT_EQ(worker["resources"], Json({{"limits", {{"nvidia.com/gpu", 1}, {"memory", "8Gi"}}},
                                       {"requests", {{"cpu", "4"}, {"memory", "8Gi"}}}}));
  EXPECT_FALSE(worker.contains("workingDir"));
}

TEST(LaunchJob, ProcessesFollowTheGpusOrTorchrun) {
  LaunchRequest request = RequestOf({"python3", "train.py"});
  request.gpus = 8;
  EXPECT_EQ(JobOf(request).spec.workers.slots, "gpu");
  request.processes = "2";
  EXPECT_EQ(JobOf(request).spec.workers.slots, "2");
  request = RequestOf({"python3", "train.py"}, {"jax", "ranks"});  // one process uses all GPUs
  request.gpus = 8;
  EXPECT_EQ(JobOf(request).spec.workers.slots, "1");

  request = RequestOf({"torchrun", "train.py"});
  request.workers = 2;
  request.gpus = 8;
  const api::TrainingJob job = JobOf(request);
  EXPECT_EQ(job.spec.workers.slots, "1");
  EXPECT_EQ(job.spec.workers.template_["spec"]["containers"][0]["env"],
            Json::array({{{"name", "PET_NPROC_PER_NODE"}, {"value", "8"}}}));
}

TEST(LaunchJob, UnpacksTheCodeAndRunsInIt) {
  LaunchRequest request = RequestOf({"python3", "train.py"});
  request.image = "i:1";
  request.code = "ringmaster-code-1";
  const Json pod = JobOf(request).spec.workers.template_["spec"];
  EXPECT_EQ(pod["volumes"][0]["configMap"]["name"], "ringmaster-code-1");
  EXPECT_EQ(pod["initContainers"][0]["image"], "i:1");
  EXPECT_EQ(pod["containers"][0]["workingDir"], kWorkspace);
  EXPECT_EQ(pod["containers"][0]["volumeMounts"][0]["mountPath"], kWorkspace);
}

TEST(LaunchJob, ReadsRangesAsTorchrun) {
  LaunchRequest request;
  ASSERT_TRUE(ReadWorkers("4:8", &request).ok());
  EXPECT_EQ(request.min, 4);
  EXPECT_EQ(request.workers, 8);
  for (const char* bad : {"", "0", "x", "8:4", "4:", ":4", "1:2:3", "5000", "-1"})
    EXPECT_FALSE(ReadWorkers(bad, &request).ok()) << bad;
}

TEST(Script, DecidesFrameworkAndKind) {
  const Words python = {"python3", "train.py"};
  struct Case {
    Words command;
    const char* script;
    Training training;
  };
  for (const Case& c : {Case{python, "import torch\nimport ringmaster.torch as rm\n", {"pytorch", "library"}},
                        {python, "from ringmaster.torch import init\n", {"pytorch", "library"}},
                        {python, "from ringmaster import report, torch\n", {"pytorch", "library"}},
                        {python, "import os, ringmaster.jax as rm  # x\n", {"jax", "library"}},
                        {python, "if 1:\n  import ringmaster.numpy\n", {"custom", "library"}},
                        {python, "from ringmaster import report\nimport torch\n", {"pytorch", "ranks"}},
                        {python, "# import ringmaster.torch\n", {"pytorch", "ranks"}},
                        {python, "import ringmaster.torchless\n", {"pytorch", "ranks"}},
                        {python, "import jax.numpy as jnp\n", {"jax", "ranks"}},
                        {python, "import tensorflow as tf\n", {"tensorflow", "ranks"}},
                        {python, "import tensorflow, torch\n", {"pytorch", "ranks"}},
                        {{"torchrun", "train.py"}, "import ringmaster.torch\n", {"pytorch", "ranks"}},
                        {{"deepspeed", "train.py"}, "", {"deepspeed", "ranks"}},
                        {{"mpirun", "./a.out"}, "", {"mpi", "ranks"}},
                        {{"./a.out"}, "", {"custom", "ranks"}}})
    EXPECT_EQ(Guess(c.command, c.script), c.training) << c.command[0] << " " << c.script;
}

TEST(Script, IsFoundInTheCommand) {
  EXPECT_EQ(WithInterpreter({"train.py", "--x"}), (Words{"python3", "train.py", "--x"}));
  EXPECT_EQ(WithInterpreter({"./a.out"}), (Words{"./a.out"}));
  EXPECT_EQ(ScriptOf({"python3", "-u", "a/train.py", "b.py"}), "a/train.py");
  EXPECT_EQ(ScriptOf({"python", "-m", "package.train"}), "package/train.py");
  EXPECT_EQ(ScriptOf({"python", "-m", "torch.distributed.run", "x.py"}), "x.py");
  EXPECT_EQ(ScriptOf({"./a.out"}), "");
  EXPECT_EQ(NameFor({"python3", "src/Train_GPT-2.py"}), "train-gpt-2");
  EXPECT_EQ(NameFor({"./a.out"}), "a");
  EXPECT_EQ(NameFor({"_"}), "job");
}

TEST(Script, OnlyAWordOfTheCommandMustBeInTheFolder) {
  EXPECT_EQ(ScriptInFolder({"python3", "-u", "a/train.py", "b.py"}), "a/train.py");
  EXPECT_EQ(ScriptInFolder({"torchrun", "./train.py"}), "./train.py");
  EXPECT_EQ(ScriptInFolder({"python3", "/opt/train.py"}), "");
  EXPECT_EQ(ScriptInFolder({"python3", "-m", "package.in.image"}), "");
  EXPECT_EQ(ScriptInFolder({"bash", "-c", "pip install -r r.txt && python3 train.py"}), "");
  EXPECT_EQ(ScriptInFolder({"bash", "-c", "cd a;./train.py"}), "");
  EXPECT_EQ(ScriptInFolder({"./a.out"}), "");
}

TEST(CommandLine, MarksWhereTheProgramBegins) {
  const auto takes_value = [](const std::string& flag) { return flag == "--workers" || flag == "-n"; };
  struct Case {
    Words arguments, marked;
  };
  for (const Case& c :
       {Case{{"--workers", "2", "python", "-u", "--workers", "3"},
             {"--workers", "2", "--", "python", "-u", "--workers", "3"}},
        {{"--workers=2", "--local", "a", "--", "b"}, {"--workers=2", "--local", "--", "a", "--", "b"}},
        {{"-n", "x", "--", "a"}, {"-n", "x", "--", "a"}},
        {{"-nx", "a"}, {"-nx", "--", "a"}},
        {{"--local"}, {"--local"}},
        {{"--workers"}, {"--workers"}}})
    EXPECT_EQ(MarkCommand(c.arguments, takes_value), c.marked);
}

}  // namespace
}  // namespace ringmaster::cli::launch
