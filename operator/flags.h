// SPDX-License-Identifier: Apache-2.0

// The operator's command line. The environment gives defaults for what a pod knows about itself: POD_NAME,
// POD_NAMESPACE, POD_IP, RINGMASTER_WORKER_IMAGE.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "operator/core/capacity/label_selector.h"

namespace ringmaster::operator_main {

struct Flags {
  std::vector<std::string> kubeconfig;  // empty: the pod's service account, or $KUBECONFIG
  std::string context;
  std::string namespace_ = "ringmaster-system";  // of the operator's Lease, Secret and EndpointSlice
  std::vector<std::string> watch_namespaces;     // namespaces whose jobs this operator runs; empty: all
  std::string identity;                          // empty: the host name. A random suffix is added
  std::string lease_name = "ringmaster-operator";
  Duration lease_duration = seconds(15);
  Duration renew_deadline = seconds(10);
  Duration retry_period = seconds(2);

  std::string health_address = "0.0.0.0:8081";   // empty: no health server
  std::string metrics_address = "0.0.0.0:8443";  // empty: no metrics server
  bool metrics_open = false;                     // plain HTTP without authentication; only on loopback
  bool job_metrics = false;                      // also those with the name of a job

  std::string rendezvous_address = "0.0.0.0:7070";
  std::string rendezvous_advertise;  // host:port for agents; empty: the Service's name
  std::string rendezvous_service = "ringmaster-rendezvous";
  std::string pod_ip;  // published as the Service's endpoint while this replica leads; empty: not published
  // First and last port for workers on hostNetwork.
  struct Ports {
    int32_t first = 20000;
    int32_t last = 29999;
  } host_ports;
  std::chrono::seconds ca_life = std::chrono::hours(24 * 365);
  std::string gang = "auto";      // what spec.scheduling.gang `auto` means
  std::string volcano_scheduler;  // ParseFlags defaults it and the next one to wiring::SchedulerNames
  std::string coscheduling_scheduler;
  std::string volcano_namespace = "volcano-system";
  std::map<std::string, int32_t> namespace_weights;  // 1 for others
  bool kueue_required = false;
  core::LabelSelector kueue_namespaces;  // empty: all
  bool autoscaler = false;   // jobs at the gate wait with pods, as with spec.scheduling.autoscaler
  std::string worker_image;  // ParseFlags defaults it to the image of this version

  bool log_json = false;
};

// Returns nullopt when the program must end with `exit_code`: help, version, or an invalid flag that has been
// reported on stderr.
std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code);

struct Address {
  std::string host;
  uint16_t port = 0;
};
// Parses "host:port" or "[v6]:port"; nullopt for any other text.
std::optional<Address> ParseAddress(const std::string& text);

}  // namespace ringmaster::operator_main
