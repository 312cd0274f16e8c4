// SPDX-License-Identifier: Apache-2.0

// The operator's command line. What a pod knows of itself may come from the environment: POD_NAME,
// POD_NAMESPACE, POD_IP, RINGMASTER_WORKER_IMAGE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::operator_main {

struct Flags {
  std::vector<std::string> kubeconfig;  // empty: in the cluster, or $KUBECONFIG
  std::string context;
  std::string namespace_ = "ringmaster-system";  // of the operator: Lease, Secret, endpoint
  std::vector<std::string> watch_namespaces;     // where jobs are looked after; empty: everywhere
  std::string identity;                          // empty: host name and a random part
  std::string lease_name = "ringmaster-operator";
  Duration lease_duration = seconds(15);
  Duration renew_deadline = seconds(10);
  Duration retry_period = seconds(2);

  std::string health_address = "0.0.0.0:8081";   // empty: none
  std::string metrics_address = "0.0.0.0:8443";  // empty: none
  bool metrics_open = false;                     // plain HTTP for everybody; only on loopback

  std::string rendezvous_address = "0.0.0.0:7070";
  std::string rendezvous_advertise;  // host:port that agents call; empty: the Service
  std::string rendezvous_service = "ringmaster-rendezvous";
  std::string pod_ip;  // where the Service leads while we are the leader; empty: not published
  // First and last port for workers on hostNetwork.
  struct Ports {
    int32_t first = 20000;
    int32_t last = 29999;
  } host_ports;
  std::chrono::seconds ca_life = std::chrono::hours(24 * 365);
  std::string worker_image;  // empty in a default-made Flags; ParseFlags gives it the image of this version

  bool log_json = false;
};

// nullopt: the program is to end with `exit_code` (help, version, or a bad flag; it was said why).
std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code);

struct Address {
  std::string host;
  uint16_t port = 0;
};
// "host:port" or "[v6]:port"; nullopt when it is neither.
std::optional<Address> ParseAddress(const std::string& text);

}  // namespace ringmaster::operator_main
