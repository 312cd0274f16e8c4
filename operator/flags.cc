// SPDX-License-Identifier: Apache-2.0

#include "operator/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "operator/wiring/wiring.h"

namespace ringmaster::operator_main {
namespace {

std::string CheckAddress(const std::string& text) {
  return text.empty() || ParseAddress(text) ? std::string() : "must be host:port, or empty";
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

bool ParsePorts(const std::string& text, Flags::Ports& ports) {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, ports.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return false;
  const auto last = std::from_chars(first.ptr + 1, end, ports.last);
  return last.ec == std::errc() && last.ptr == end && ports.first > 0 && ports.first <= ports.last &&
         ports.last < 65536;
}

// Parses "name=weight".
bool ParseWeight(const std::string& text, std::map<std::string, int32_t>& weights) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0) return false;
  int32_t weight = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + at + 1, end, weight);
  if (read.ec != std::errc() || read.ptr != end || weight < 1 || weight > 1000) return false;
  return weights.emplace(text.substr(0, at), weight).second;
}

CLI::Option* AddSeconds(CLI::App& app, const std::string& name, Duration& value, const std::string& help) {
  return app
      .add_option_function<int>(
          name, [&value](int given) { value = seconds(given); }, help)
      ->check(CLI::Range(1, 3600))
      ->default_str(std::to_string(std::chrono::duration_cast<seconds>(value).count()));
}

// Flags whose text is parsed after CLI11 has run.
struct RawFlags {
  std::string host_ports;
  std::vector<std::string> namespace_weights;
  std::string kueue_namespaces;
  std::string log_format = "text";
};

void AddClusterFlags(CLI::App& app, Flags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "kubeconfig files, merged in order (default: the pod's service account, else $KUBECONFIG, "
                 "else ~/.kube/config)");
  app.add_option("--context", flags.context, "kubeconfig context");
  app.add_option("--namespace", flags.namespace_,
                 "namespace of the operator's own Lease, Secret and EndpointSlice")
      ->envname("POD_NAMESPACE")
      ->capture_default_str();
  app.add_option("--watch-namespaces", flags.watch_namespaces,
                 "namespaces whose jobs the operator runs, separated by commas (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void AddElectionFlags(CLI::App& app, Flags& flags) {
  app.add_option("--identity", flags.identity, "name of this replica in the Lease; a random suffix is added")
      ->envname("POD_NAME");
  app.add_option("--lease-name", flags.lease_name, "name of the leader's Lease")->capture_default_str();
  AddSeconds(app, "--lease-duration-seconds", flags.lease_duration,
             "time without a renewal after which another replica takes the Lease");
  AddSeconds(app, "--renew-deadline-seconds", flags.renew_deadline,
             "time without a renewal after which the leader stops acting");
  AddSeconds(app, "--retry-period-seconds", flags.retry_period,
             "interval between reads or renewals of the Lease");
}

void AddServerFlags(CLI::App& app, Flags& flags) {
  app.add_option("--health-address", flags.health_address,
                 "address of /healthz and /readyz; empty: no health server")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--metrics-address", flags.metrics_address,
                 "address of /metrics over TLS, for clients that may GET /metrics by RBAC; empty: no metrics "
                 "server")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_flag("--metrics-open", flags.metrics_open,
               "serve /metrics over plain HTTP without authentication; only on a loopback address");
  app.add_flag("--job-metrics", flags.job_metrics,
               "also serve ringmaster_job_* metrics, which have a series for each job that trains");
}

void AddRendezvousFlags(CLI::App& app, Flags& flags) {
  app.add_option("--rendezvous-address", flags.rendezvous_address,
                 "address on which the leader listens for agents")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--rendezvous-advertise", flags.rendezvous_advertise,
                 "host:port that agents connect to, instead of the Service's name")
      ->check(CheckAddress);
  app.add_option("--rendezvous-service", flags.rendezvous_service,
                 "name of the Service that leads to the leader")
      ->capture_default_str();
  app.add_option("--pod-ip", flags.pod_ip,
                 "address that the leader publishes as the Service's endpoint; empty: not published")
      ->envname("POD_IP");
}

void AddWorkerFlags(CLI::App& app, Flags& flags, RawFlags& raw) {
  app.add_option("--worker-image", flags.worker_image, "image for worker pods whose template sets none")
      ->envname("RINGMASTER_WORKER_IMAGE")
      ->capture_default_str();
  app.add_option("--gang", flags.gang,
                 "what spec.scheduling.gang auto means; auto: native if the API server serves it, volcano if "
                 "its scheduler renews its Lease, otherwise gate. Name coscheduling only where it runs")
      ->check(CLI::IsMember({"auto", "native", "volcano", "coscheduling", "gate", "none"}))
      ->capture_default_str();
  const wiring::SchedulerNames names;
  flags.volcano_scheduler = names.volcano;
  flags.coscheduling_scheduler = names.coscheduling;
  app.add_option("--volcano-scheduler", flags.volcano_scheduler,
                 "name of Volcano's scheduler and of its Lease")
      ->capture_default_str();
  app.add_option("--volcano-namespace", flags.volcano_namespace, "namespace of that Lease")
      ->capture_default_str();
  app.add_option("--coscheduling-scheduler", flags.coscheduling_scheduler,
                 "name of the scheduler that runs the coscheduling plug-in")
      ->capture_default_str();
  app.add_flag("--autoscaler", flags.autoscaler,
               "an autoscaler adds nodes: treat each job without spec.scheduling.preempt as if it had "
               "spec.scheduling.autoscaler");
  app.add_option(
         "--namespace-weights", raw.namespace_weights,
         "weights of namespaces in the queue of the scheduling gate, NAME=WEIGHT separated by commas, "
         "1 to 1000 (default: 1 each)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--kueue-manage-jobs-without-queue-name", flags.kueue_required,
               "do not start a job without the label kueue.x-k8s.io/queue-name, as Kueue's setting "
               "manageJobsWithoutQueueName does for its own kinds");
  app.add_option(
      "--kueue-managed-namespaces", raw.kueue_namespaces,
      "label selector of namespaces, as Kueue's setting managedJobsNamespaceSelector: in others a job "
      "without that label starts without a queue (default: all)");
  raw.host_ports = fmt::format("{}-{}", flags.host_ports.first, flags.host_ports.last);
  app.add_option("--host-ports", raw.host_ports,
                 "ports for workers on hostNetwork, first-last; each job gets a separate range")
      ->capture_default_str();
  app.add_option_function<int64_t>(
         "--ca-life-seconds", [&flags](int64_t given) { flags.ca_life = seconds(given); },
         "lifetime of the certificate authority for rendezvous; certificates are renewed before they expire")
      ->check(CLI::Range(60, 10 * 365 * 86400))
      ->default_str(std::to_string(flags.ca_life.count()));
}

void AddLogFlags(CLI::App& app, RawFlags& raw) {
  app.add_option("--log-format", raw.log_format,
                 "text or json; RINGMASTER_LOG=debug|info|warn|error sets the threshold")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

// Moves what was parsed as text into `flags` and checks the flags against each other. Returns the first
// error; empty: none.
std::string Finish(const RawFlags& raw, Flags& flags) {
  flags.log_json = raw.log_format == "json";
  // Each namespace once: every entry gets a watch.
  std::sort(flags.watch_namespaces.begin(), flags.watch_namespaces.end());
  const auto same = std::unique(flags.watch_namespaces.begin(), flags.watch_namespaces.end());
  flags.watch_namespaces.erase(same, flags.watch_namespaces.end());
  if (flags.lease_duration <= flags.renew_deadline || flags.renew_deadline <= flags.retry_period)
    return "--lease-duration-seconds must be above --renew-deadline-seconds, and that above "
           "--retry-period-seconds";
  if (flags.metrics_open && !flags.metrics_address.empty() &&
      !IsLoopback(ParseAddress(flags.metrics_address)->host))
    return "--metrics-open: only with a loopback --metrics-address, for example 127.0.0.1:8080";
  if (!ParsePorts(raw.host_ports, flags.host_ports))
    return "--host-ports: must be first-last, for example 20000-29999";
  for (const std::string& weight : raw.namespace_weights)
    if (!ParseWeight(weight, flags.namespace_weights))
      return fmt::format(
          "--namespace-weights: {}: must be NAME=WEIGHT with a weight from 1 to 1000, and each "
          "name once",
          weight);
  Result<core::LabelSelector> managed = core::ParseLabelSelector(raw.kueue_namespaces);
  if (!managed.ok()) return "--kueue-managed-namespaces: " + managed.error().message;
  flags.kueue_namespaces = std::move(managed).value();
  if (flags.rendezvous_address.empty()) return "--rendezvous-address: must not be empty";
  return {};
}

}  // namespace

std::optional<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  Address address;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end) return std::nullopt;
  address.host = text.substr(0, colon);
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (!bracketed && address.host.find(':') != std::string::npos) return std::nullopt;
  return address;
}

std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code) {
  Flags flags;
  flags.worker_image = "ringmaster-worker:" RINGMASTER_VERSION;
  RawFlags raw;
  CLI::App app{
      "Runs TrainingJobs (ringmaster.dev/v1alpha1) on Kubernetes: creates their pods, coordinates their "
      "workers and restarts them after failures.",
      "ringmaster-operator"};
  app.set_version_flag("--version", std::string("ringmaster-operator ") + RINGMASTER_VERSION);
  AddClusterFlags(app, flags);
  AddElectionFlags(app, flags);
  AddServerFlags(app, flags);
  AddRendezvousFlags(app, flags);
  AddWorkerFlags(app, flags, raw);
  AddLogFlags(app, raw);
  app.footer(
      "Example, on a laptop against the cluster of the current context:\n"
      "  ringmaster-operator --metrics-address 127.0.0.1:8080 --metrics-open --health-address "
      "127.0.0.1:8081");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (const std::string error = Finish(raw, flags); !error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    exit_code = 2;
    return std::nullopt;
  }
  return flags;
}

}  // namespace ringmaster::operator_main
