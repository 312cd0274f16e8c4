// SPDX-License-Identifier: Apache-2.0

// Which pods autoscalers may move.
#include <gtest/gtest.h>

#include "operator/wiring/names.h"
#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kSafe = "cluster-autoscaler.kubernetes.io/safe-to-evict";
constexpr const char* kKarpenter = "karpenter.sh/do-not-disrupt";
constexpr const char* kCheckpoint = "  checkpoint: {path: /ckpt}\n";

Json AnnotationsOf(const api::TrainingJob& job) {
  Json annotations = PodOf(job, "uid-1", 0, PlainContext())["metadata"].value("annotations", Json::object());
  EXPECT_NE(annotations.value(kWorkerAnnotation, ""), "");
  annotations.erase(kWorkerAnnotation);
  return annotations;
}

void ExpectHeld(const api::TrainingJob& job) {
  EXPECT_EQ(AnnotationsOf(job), (Json{{kSafe, "false"}, {kKarpenter, "true"}}));
}

TEST(Eviction, AnElasticJobWithCheckpointsMayBeMoved) {
  const Json may = {{kSafe, "true"}};
  EXPECT_EQ(AnnotationsOf(JobWith(kCheckpoint, "{replicas: 4, min: 2}")), may);
  EXPECT_EQ(AnnotationsOf(JobWith(kCheckpoint, "{replicas: 2, min: 2, max: 4}")), may)
      << "its size does not matter, which changes while the pod runs";
  EXPECT_EQ(AnnotationsOf(JobWith("  checkpoint: {volumeClaim: c}\n", "{replicas: 4, min: 2}")), may);
  EXPECT_EQ(AnnotationsOf(LoadCase("pytorch-library").job), may);
}

TEST(Eviction, OthersStayWhereTheyAre) {
  ExpectHeld(JobWith(kCheckpoint, "{replicas: 4}"));
  ExpectHeld(JobWith("", "{replicas: 4, min: 2}"));
  // Programs start again from their last checkpoint when a worker leaves.
  api::TrainingJob programs = LoadCase("pytorch").job;
  programs.spec.workers.min = 1;
  programs.spec.workers.max = 4;
  programs.spec.checkpoint.path = "/ckpt";
  ExpectHeld(programs);
}

TEST(Eviction, TheTemplateGoesFirst) {
  const Json annotations = AnnotationsOf(JobWith(
      "", "{replicas: 4, template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: 24h, a: b}}}}"));
  EXPECT_EQ(annotations, (Json{{kSafe, "false"}, {kKarpenter, "24h"}, {"a", "b"}}));
}

}  // namespace
}  // namespace ringmaster::wiring
