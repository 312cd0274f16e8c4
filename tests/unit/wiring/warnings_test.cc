// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> Warnings(const std::string& pod_template, const std::string& spec = "") {
  return TemplateWarnings(JobWith(spec, "{replicas: 1, template: " + pod_template + "}"));
}

TEST(TemplateWarnings, NoneForAppliedTemplates) {
  for (const Case& item : AllCases()) {
    if (item.name == "template-overrides") continue;
    EXPECT_THAT(TemplateWarnings(item.job), IsEmpty()) << item.name;
  }
}

TEST(TemplateWarnings, ReplacedFields) {
  EXPECT_THAT(
      Warnings("{spec: {restartPolicy: OnFailure}}"),
      ElementsAre("spec.workers.template.spec.restartPolicy: OnFailure is replaced by Never; spec.restart "
                  "defines what happens after failures"));
  EXPECT_THAT(Warnings("{spec: {restartPolicy: Never}}"), IsEmpty());
  EXPECT_THAT(Warnings("{spec: {hostname: a, subdomain: b}}"),
              ElementsAre(HasSubstr("spec.hostname"), HasSubstr("spec.subdomain")));
  EXPECT_THAT(Warnings("{metadata: {name: mine, labels: {ringmaster.dev/job: other, mine: x}}}"),
              ElementsAre(HasSubstr("metadata.name"), HasSubstr("metadata.labels[ringmaster.dev/job]")));
}

TEST(TemplateWarnings, ASchedulerThatMayNotKnowTheGang) {
  const auto with = [](const char* gang) {
    return Warnings("{spec: {schedulerName: mine}}", fmt::format("  scheduling: {{gang: {}}}\n", gang));
  };
  EXPECT_THAT(with("volcano"), ElementsAre(HasSubstr("spec.schedulerName: mine")));
  EXPECT_THAT(with("coscheduling"), ElementsAre(HasSubstr("spec.schedulerName: mine")));
  EXPECT_THAT(with("auto"), IsEmpty());
  EXPECT_THAT(Warnings("{spec: {schedulerName: volcano}}", "  scheduling: {gang: volcano}\n"), IsEmpty());
  EXPECT_THAT(Warnings("{spec: {schedulerName: scheduler-plugins-scheduler}}",
                       "  scheduling: {gang: coscheduling}\n"),
              IsEmpty());
}

// Validation refuses some of these earlier. None may reach the code that creates pods.
TEST(TemplateWarnings, WrongShapes) {
  const auto warnings = [](const char* text) {
    api::TrainingJob job = JobWith();
    job.spec.workers.template_ = ParseJson(text).value();
    return TemplateWarnings(job);
  };
  EXPECT_THAT(warnings("7"), ElementsAre("spec.workers.template: must be an object; it is ignored"));
  EXPECT_THAT(warnings(R"({"spec": 7})"),
              ElementsAre("spec.workers.template.spec: must be an object; it is ignored"));
  EXPECT_THAT(warnings(R"({"metadata": {"labels": {"a": 1}}})"),
              ElementsAre(HasSubstr("numbers and booleans need quotes")));
  EXPECT_THAT(warnings(R"({"spec": {"containers": {"name": "worker"}}})"),
              ElementsAre(HasSubstr("a list of objects")));
  EXPECT_THAT(warnings(R"({"spec": {"containers": [{"name": "worker", "resources": {"limits": 3}}]}})"),
              ElementsAre(StartsWith("spec.workers.template.spec.containers[0].resources.limits")));
}

TEST(TemplateWarnings, TcpAlthoughRdmaIsRequested) {
  const std::string pod = "{spec: {containers: [{name: worker, env: [{name: UCX_TLS, value: tcp}]}]}}";
  EXPECT_THAT(Warnings(pod, "  network: {rdma: {resource: rdma/ib}}\n"), ElementsAre(HasSubstr("UCX_TLS")));
  EXPECT_THAT(Warnings(pod), IsEmpty());
}

TEST(TemplateWarnings, PinnedMemoryNeedsRoot) {
  const std::string rdma = "  network: {rdma: {resource: rdma/ib}}\n";
  EXPECT_THAT(Warnings("{spec: {securityContext: {runAsUser: 1000}}}", rdma),
              ElementsAre(HasSubstr("runAsUser 1000")));
  EXPECT_THAT(Warnings("{spec: {securityContext: {runAsUser: 0}}}", rdma), IsEmpty());
  EXPECT_THAT(Warnings("{spec: {securityContext: {runAsUser: 1000}}}"), IsEmpty());
}

TEST(TemplateWarnings, TwoListsOfNetworks) {
  EXPECT_THAT(
      Warnings("{metadata: {annotations: {k8s.v1.cni.cncf.io/networks: a}}}", "  network: {networks: [b]}\n"),
      ElementsAre(HasSubstr("spec.network.networks")));
}

TEST(TemplateWarnings, AMountHidesTheAgent) {
  api::TrainingJob job = JobWith("",
                                 "{replicas: 1, template: {spec: {containers: [{name: worker, volumeMounts: "
                                 "[{name: v, mountPath: /ringmaster/bin}]}]}}}");
  EXPECT_THAT(TemplateWarnings(job), IsEmpty());
  job.spec.framework = "pytorch";
  EXPECT_THAT(TemplateWarnings(job), ElementsAre(HasSubstr("hides the agent, which is in /ringmaster")));
  job.spec.launch.kind = "none";
  EXPECT_THAT(TemplateWarnings(job), IsEmpty());
}

TEST(TemplateWarnings, NoContainerIsNamedWorker) {
  api::TrainingJob job = JobWith("", "{replicas: 1, template: {spec: {containers: [{name: a}, {name: b}]}}}");
  EXPECT_THAT(TemplateWarnings(job), IsEmpty());  // the default container is added to them
  job.spec.framework = "pytorch";
  EXPECT_THAT(TemplateWarnings(job), ElementsAre(HasSubstr("(\"a\") trains")));
}

}  // namespace
}  // namespace ringmaster::wiring
