// SPDX-License-Identifier: Apache-2.0

// Converts manifests of other operators to TrainingJobs: PyTorchJob, TFJob and JAXJob (kubeflow.org/v1),
// MPIJob (kubeflow.org/v1 and v2beta1) and TrainJob (trainer.kubeflow.org/v1alpha1). A job that would not run
// as a TrainingJob is refused with the reason. Newcomers read replica_job.cc first. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/convert/source.h"

namespace ringmaster::cli::convert {

struct Converted {
  std::string name;             // "PyTorchJob mnist", for messages
  Json job;                     // a valid TrainingJob; null: the job was refused, or the document is none
  std::vector<Remark> remarks;  // in the order of the text
};

// Returns an entry for each document of the text that is a training job, or that is left out for a reason.
// Several documents may be given together: a TrainJob uses the runtimes among them.
std::vector<Converted> ConvertManifests(std::string_view text);

// ---- converters of one kind; each fills `job`, which has apiVersion and kind

bool IsReplicaJob(const std::string& api_version, const std::string& kind);
void ConvertReplicaJob(Source& source, const std::string& api_version, const std::string& kind, Json& job);

// Returns `launch.mpi` for the name of an implementation at `path`; OpenMPI when there is none. Refuses
// others.
std::string TakeMpi(Source& source, const std::string& path);

// The templates of an MPIJob, with their paths in the source.
struct MpiJobPods {
  Json launcher;
  std::string launcher_path;
  Json worker;
  std::string worker_path;
  int64_t replicas = 1;
  int64_t slots = 1;
  bool apart = false;        // the launcher has a separate pod
  std::string command_path;  // of the launcher's command
};
// Completes spec.workers.template. The first worker runs the launcher, or the role launcher where its pod has
// what those of the workers lack.
void ConvertMpiPods(Source& source, const MpiJobPods& pods, Json& job);

// `runtimes` are the documents with a TrainingRuntime or a ClusterTrainingRuntime.
void ConvertTrainJob(Source& source, const std::vector<const api::Node*>& runtimes, Json& job);

// ---- parts that the kinds share

// Copies name, namespace, labels and annotations.
void ConvertMetadata(Source& source, Json& job);

// Where the pod template of a job comes from, for remarks.
struct TemplatePlace {
  std::string path;          // in the source: spec.pytorchReplicaSpecs.Worker.template
  std::string container;     // the name of the container that trains: pytorch
  std::string command_path;  // path of the command, where it has one
};

// Adapts what does not depend on the framework. Returns the container that trains; null after a refusal.
Json* PrepareTemplate(Source& source, const TemplatePlace& place, Json& pod_template);

// Completes spec.workers.template from the pod template of a source: finds the container that trains, adapts
// the options of torchrun (framework pytorch), and chooses launch.kind none when there is no command.
// `processes` is the number of processes per pod: a number, auto, gpu or cpu; empty: not given.
void UseTemplate(Source& source, const TemplatePlace& place, Json pod_template, const std::string& processes,
                 const std::string& processes_path, Json& job);

}  // namespace ringmaster::cli::convert
