// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/program_environment.h"

#include <gtest/gtest.h>

#include "worker/agent/program/program_progress.h"

namespace ringmaster::agent {
namespace {

using Strings = std::vector<std::string>;

// Two pods with two ranks each.
rendezvous::StartProgram Order() {
  return {7,
          {{"a", "job-1-0", "job-1-0.job:40001"},
           {"b", "job-1-0", "job-1-0.job:40002"},
           {"c", "job-1-1", "job-1-1.job:40003"},
           {"d", "job-1-1", "job-1-1.job:40004"}}};
}

TEST(ProgramEnvironment, Pytorch) {
  EXPECT_EQ(ProgramEnvironment("pytorch", Order(), 2),
            (Strings{"RINGMASTER_RANK=2", "RINGMASTER_WORLD_SIZE=4", "RINGMASTER_INCARNATION=7",
                     "MASTER_ADDR=job-1-0.job", "MASTER_PORT=40001", "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0",
                     "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1", "PET_NNODES=2", "PET_NODE_RANK=1",
                     "PET_MASTER_ADDR=job-1-0.job", "PET_MASTER_PORT=40001", "PET_RDZV_ID=7",
                     "PET_MAX_RESTARTS=0"}));
}

TEST(ProgramEnvironment, DeepspeedAddsTheLocalSize) {
  const Strings variables = ProgramEnvironment("deepspeed", Order(), 3);
  EXPECT_EQ(variables.back(), "LOCAL_SIZE=2");
  EXPECT_EQ(variables[7], "LOCAL_RANK=1");
}

TEST(ProgramEnvironment, Tensorflow) {
  EXPECT_EQ(ProgramEnvironment("tensorflow", Order(), 1).back(),
            R"(TF_CONFIG={"cluster":{"worker":["job-1-0.job:40001","job-1-0.job:40002","job-1-1.job:40003",)"
            R"("job-1-1.job:40004"]},"task":{"index":1,"type":"worker"}})");
}

TEST(ProgramEnvironment, TensorflowWithRoles) {
  const rendezvous::StartProgram order = {7,
                                          {{"a", "job-1-0", "w0:1"},
                                           {"b", "job-1-1", "w1:1"},
                                           {"c", "job-1-chief-0", "c:1", "chief"},
                                           {"d", "job-1-ps-0", "p0:1", "ps"},
                                           {"e", "job-1-ps-1", "p1:1", "ps"},
                                           {"f", "job-1-evaluator-0", "e:1", "evaluator"}}};
  const std::string cluster = R"("cluster":{"chief":["c:1"],"ps":["p0:1","p1:1"],"worker":["w0:1","w1:1"]})";
  EXPECT_EQ(ProgramEnvironment("tensorflow", order, 1),
            (Strings{"RINGMASTER_RANK=1", "RINGMASTER_WORLD_SIZE=2", "RINGMASTER_ROLE=worker",
                     "RINGMASTER_ROLE_INDEX=1", "RINGMASTER_INCARNATION=7",
                     "TF_CONFIG={" + cluster + R"(,"task":{"index":1,"type":"worker"}})"}));
  EXPECT_EQ(ProgramEnvironment("tensorflow", order, 4),
            (Strings{"RINGMASTER_ROLE=ps", "RINGMASTER_ROLE_INDEX=1", "RINGMASTER_INCARNATION=7",
                     "TF_CONFIG={" + cluster + R"(,"task":{"index":1,"type":"ps"}})"}));
  EXPECT_EQ(ProgramEnvironment("tensorflow", order, 5).back(),
            "TF_CONFIG={" + cluster + R"(,"task":{"index":0,"type":"evaluator"}})");
}

TEST(ProgramEnvironment, Jax) {
  const Strings variables = ProgramEnvironment("jax", Order(), 3);
  EXPECT_EQ(Strings(variables.begin() + 3, variables.end()),
            (Strings{"JAX_COORDINATOR_ADDRESS=job-1-0.job:40001", "JAX_NUM_PROCESSES=4", "JAX_PROCESS_ID=3",
                     "COORDINATOR_ADDRESS=job-1-0.job", "COORDINATOR_PORT=40001", "NUM_PROCESSES=4",
                     "PROCESS_ID=3"}));
}

TEST(ProgramEnvironment, AnIpv6HostHasNoBrackets) {
  const rendezvous::StartProgram order = {1, {{"a", "p", "[fd00::1]:5"}}};
  EXPECT_EQ(ProgramEnvironment("pytorch", order, 0)[3], "MASTER_ADDR=fd00::1");
  EXPECT_EQ(ProgramEnvironment("jax", order, 0)[3], "JAX_COORDINATOR_ADDRESS=[fd00::1]:5");
}

TEST(ProgramProgress, ReadsLinesWithAStepAndNothingElse) {
  ProgramProgress progress;
  Time now{seconds(10)};
  progress.Begin(now);
  for (const char* line : {"step 3", "{\"epoch\": 1}", "{\"step\": \"3\"}", "{\"step\": 3", "{\"step\": -1}",
                           "[{\"step\": 3}]", "{\"step\": 1e300}", ""}) {
    EXPECT_FALSE(progress.Take(line, now)) << line;
  }
  EXPECT_EQ(progress.due(), kNever);
  now += seconds(2);
  EXPECT_TRUE(
      progress.Take(R"( {"step": 3, "loss": 0.5, "samples": 64, "total_steps": 10, "lr": 0.25})", now));
  EXPECT_TRUE(progress.Take(R"({"step": 4, "loss": NaN})", now)) << "a loss that is no number is left out";
  const auto out = progress.Flush(now);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->total_steps, 10);
  ASSERT_EQ(out->records.size(), 2u);
  EXPECT_EQ(out->records[0].step, 3);
  EXPECT_EQ(out->records[0].loss, 0.5);
  EXPECT_EQ(out->records[0].samples, 64);
  EXPECT_EQ(out->records[0].learning_rate, 0.25);
  EXPECT_EQ(out->records[0].seconds, 2);
  EXPECT_FALSE(progress.Flush(now).has_value());
  EXPECT_TRUE(progress.Take(R"({"step": 5})", now));
  EXPECT_EQ(progress.due(), now + ProgramProgress::kPeriod);
}

TEST(ProgramProgress, ReadsLinesBehindTheTagOfALauncher) {
  ProgramProgress progress;
  const Time now{seconds(10)};
  progress.Begin(now);
  EXPECT_TRUE(progress.Take(R"([1]<stdout>:{"step": 1})", now)) << "horovodrun";
  EXPECT_TRUE(progress.Take(R"([1,0]<stdout>:{"step": 2})", now)) << "mpirun --tag-output";
  EXPECT_TRUE(progress.Take(R"([1,0]<stdout>: {"step": 3})", now));
  for (const char* line :
       {"[1]<stdout>:", "[1]<stdout>", R"([1]: {"step": 4})", "[1]<std", R"([{"step": 4}]<stdout>:)"})
    EXPECT_FALSE(progress.Take(line, now)) << line;
  const auto out = progress.Flush(now);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->records.size(), 3u);
}

// What tqdm shows after it has printed something.
bool Redraw(ProgramProgress& progress, std::string_view bar, Time now) {
  EXPECT_FALSE(progress.Take("       ", now));
  return progress.Take(bar, now);
}

TEST(ProgramProgress, ReadsWhatTheTrainerOfHuggingFaceLogs) {
  ProgramProgress progress;
  const Time now{seconds(10)};
  progress.Begin(now);
  EXPECT_FALSE(progress.Take("Map: 100%|##########| 1000/1000 [00:01<00:00, 900.00 examples/s]", now));
  EXPECT_FALSE(progress.Take(" 10%|#         | 49/500 [00:10<01:30,  5.00it/s]", now));
  EXPECT_TRUE(progress.Take("{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': 0.3}", now));
  EXPECT_EQ(progress.reports(), 1u);
  EXPECT_EQ(progress.due(), kNever) << "its step is not known yet";
  EXPECT_TRUE(Redraw(progress, " 10%|#         | 50/500 [00:10<01:30,  5.00it/s]", now));
  EXPECT_FALSE(progress.Take(" 10%|#         | 51/500 [00:10<01:30,  5.00it/s]", now));
  EXPECT_FALSE(Redraw(progress, " 10%|#         | 51/500 [00:10<01:30,  5.00it/s]", now))
      << "print by the user";
  // Release 5 prints texts.
  EXPECT_TRUE(
      progress.Take("{'loss': '0.25', 'grad_norm': '1.5', 'learning_rate': '2e-05', 'epoch': '0.6'}", now));
  EXPECT_TRUE(Redraw(progress, "100%|##########| 500/500 [00:10<00:00,  5.00it/s]", now));
  EXPECT_FALSE(progress.Take("{'loss': high, 'epoch': 1.0}", now));
  EXPECT_EQ(progress.reports(), 2u);
  EXPECT_TRUE(progress.finished());
  const auto out = progress.Flush(now);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->total_steps, 500);
  ASSERT_EQ(out->records.size(), 2u);
  EXPECT_EQ(out->records[0].step, 50);
  EXPECT_EQ(out->records[0].loss, 0.5);
  EXPECT_EQ(out->records[0].gradient_norm, 1.25);
  EXPECT_EQ(out->records[0].learning_rate, 4.5e-05);
  EXPECT_EQ(out->records[1].step, 500);
  EXPECT_EQ(out->records[1].loss, 0.25);
}

// On a busy machine the agent reads several lines of one stream before those of the other.
TEST(ProgramProgress, FindsTheStepsOfSeveralDictionaries) {
  ProgramProgress progress;
  progress.Begin({});
  EXPECT_TRUE(progress.Take("{'loss': 0.5, 'epoch': 0.98}", {}));
  EXPECT_FALSE(progress.Take("{'eval_loss': 0.4, 'epoch': 0.98}", {}));
  EXPECT_TRUE(progress.Take("{'loss': 0.25, 'epoch': 0.99}", {}));
  EXPECT_TRUE(progress.Take("{'loss': 0.125, 'epoch': 1.0}", {}));
  EXPECT_FALSE(progress.Take("97%|##########| 97/100 [00:10<00:00,  5.00it/s]", {}));
  EXPECT_TRUE(Redraw(progress, "98%|##########| 98/100 [00:10<00:00,  5.00it/s]", {}));
  EXPECT_FALSE(Redraw(progress, "98%|##########| 98/100 [00:10<00:00,  5.00it/s]", {}));
  EXPECT_TRUE(Redraw(progress, "99%|##########| 99/100 [00:10<00:00,  5.00it/s]", {}));
  EXPECT_FALSE(progress.Take("100%|##########| 100/100 [00:10<00:00,  5.00it/s]", {}));
  EXPECT_TRUE(Redraw(progress, "100%|##########| 100/100 [00:10<00:00,  5.00it/s]", {}));
  const auto out = progress.Flush({});
  ASSERT_TRUE(out.has_value());
  ASSERT_EQ(out->records.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out->records[i].step, 98 + static_cast<int64_t>(i));
    EXPECT_EQ(out->records[i].loss, 0.5 / static_cast<double>(1 << i));
  }
}

TEST(ProgramProgress, ANewProgramHasNotFinished) {
  ProgramProgress progress;
  progress.Begin({});
  EXPECT_TRUE(progress.Take(R"({"step": 10, "total_steps": 10})", {}));
  EXPECT_TRUE(progress.finished());
  progress.Begin({});
  EXPECT_FALSE(progress.finished());
  EXPECT_EQ(progress.reports(), 1u) << "the count does not restart";
}

}  // namespace
}  // namespace ringmaster::agent
