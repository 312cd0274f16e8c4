// SPDX-License-Identifier: Apache-2.0

#include "cli/run/field_notes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "api/load.h"

namespace ringmaster::cli {
namespace {

bool NotesRdma(const std::string& launch, const std::string& transport) {
  api::Loaded loaded = api::LoadYaml(
      "apiVersion: ringmaster.dev/v1alpha1\n"
      "kind: TrainingJob\n"
      "metadata: {name: own}\n"
      "spec:\n"
      "  framework: pytorch\n"
      "  launch: {kind: " +
      launch +
      "}\n"
      "  network: {transport: " +
      transport +
      ", rdma: {resource: rdma/ib}}\n"
      "  workers:\n"
      "    replicas: 2\n"
      "    template: {spec: {containers: [{name: worker, command: [python, train.py]}]}}\n");
  EXPECT_TRUE(loaded.problems.empty()) << loaded.problems.front().ToString();
  return std::ranges::any_of(FieldsWithoutEffect(loaded.job.spec), [](const std::string& note) {
    return note.starts_with("spec.network.rdma does not apply");
  });
}

TEST(FieldNotes, RdmaAppliesWhereUcxIsRequested) {
  EXPECT_FALSE(NotesRdma("library", "ucx"));
  EXPECT_TRUE(NotesRdma("library", "auto"));
  EXPECT_TRUE(NotesRdma("ranks", "auto")) << "the program moves its data itself";
}

}  // namespace
}  // namespace ringmaster::cli
