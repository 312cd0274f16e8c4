// SPDX-License-Identifier: Apache-2.0

#include "operator/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>

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

CLI::Option* Seconds(CLI::App& app, const std::string& name, Duration& value, const std::string& help) {
  return app
      .add_option_function<int>(
          name, [&value](int given) { value = seconds(given); }, help)
      ->check(CLI::Range(1, 3600))
      ->default_str(std::to_string(std::chrono::duration_cast<seconds>(value).count()));
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
  CLI::App app{
      "Runs TrainingJobs (ringmaster.dev/v1alpha1) on Kubernetes: coordinators of pods, their rendezvous, "
      "their "
      "restarts.",
      "ringmaster-operator"};
  app.set_version_flag("--version", std::string("ringmaster-operator ") + RINGMASTER_VERSION);
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "kubeconfig file(s), merged in order; without one: the pod's own "
                 "credentials, else $KUBECONFIG, else ~/.kube/config");
  app.add_option("--context", flags.context, "context of the kubeconfig");
  app.add_option("--namespace", flags.namespace_,
                 "namespace of the operator itself: its Lease, Secret and endpoint")
      ->envname("POD_NAMESPACE")
      ->capture_default_str();
  app.add_option("--watch-namespaces", flags.watch_namespaces,
                 "namespaces whose jobs are run, with commas between; empty: all of them")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--identity", flags.identity, "name of this replica in the Lease; a random part is added")
      ->envname("POD_NAME");
  app.add_option("--lease-name", flags.lease_name, "the Lease that the leader holds")->capture_default_str();
  Seconds(app, "--lease-duration-seconds", flags.lease_duration, "how long others wait for a silent leader");
  Seconds(app, "--renew-deadline-seconds", flags.renew_deadline,
          "how long a leader acts without having renewed");
  Seconds(app, "--retry-period-seconds", flags.retry_period, "how often the Lease is renewed or looked at");
  app.add_option("--health-address", flags.health_address, "/healthz and /readyz; empty: none")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--metrics-address", flags.metrics_address,
                 "/metrics over TLS, for those whom the API server lets GET /metrics; empty: none")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_flag("--metrics-open", flags.metrics_open,
               "/metrics in plain HTTP for everybody; only on a loopback address");
  app.add_option("--rendezvous-address", flags.rendezvous_address, "where the leader listens for agents")
      ->check(CheckAddress)
      ->capture_default_str();
  app.add_option("--rendezvous-advertise", flags.rendezvous_advertise,
                 "host:port that agents call, instead of the Service's name")
      ->check(CheckAddress);
  app.add_option("--rendezvous-service", flags.rendezvous_service, "the Service that follows the leader")
      ->capture_default_str();
  app.add_option("--pod-ip", flags.pod_ip,
                 "where that Service leads while this replica leads; empty: not published")
      ->envname("POD_IP");
  app.add_option("--worker-image", flags.worker_image, "image of worker pods whose template names none")
      ->envname("RINGMASTER_WORKER_IMAGE")
      ->capture_default_str();
  std::string ports = fmt::format("{}-{}", flags.host_ports.first, flags.host_ports.last);
  app.add_option("--host-ports", ports,
                 "ports that workers on hostNetwork may use, first-last; each job gets its own")
      ->capture_default_str();
  app.add_option_function<int64_t>(
         "--ca-life-seconds", [&flags](int64_t given) { flags.ca_life = seconds(given); },
         "for how long an authority of the rendezvous certificates lasts; they are renewed in time")
      ->check(CLI::Range(60, 10 * 365 * 86400))
      ->default_str(std::to_string(flags.ca_life.count()));
  std::string format = "text";
  app.add_option("--log-format", format,
                 "text or json; RINGMASTER_LOG=debug|info|warn|error sets the threshold")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
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
  flags.log_json = format == "json";
  // Each once: one watch for each.
  std::sort(flags.watch_namespaces.begin(), flags.watch_namespaces.end());
  const auto same = std::unique(flags.watch_namespaces.begin(), flags.watch_namespaces.end());
  flags.watch_namespaces.erase(same, flags.watch_namespaces.end());
  const bool ports_ok = ParsePorts(ports, flags.host_ports);
  const auto refuse = [&](const char* why) -> std::optional<Flags> {
    std::fprintf(stderr, "%s\n", why);
    exit_code = 2;
    return std::nullopt;
  };
  if (flags.lease_duration <= flags.renew_deadline || flags.renew_deadline <= flags.retry_period)
    return refuse(
        "--lease-duration-seconds must be above --renew-deadline-seconds, and that above "
        "--retry-period-seconds");
  if (flags.metrics_open && !flags.metrics_address.empty() &&
      !IsLoopback(ParseAddress(flags.metrics_address)->host))
    return refuse("--metrics-open: only with a loopback --metrics-address, for example 127.0.0.1:8080");
  if (!ports_ok) return refuse("--host-ports: must be first-last, for example 20000-29999");
  if (flags.rendezvous_address.empty()) return refuse("--rendezvous-address: must not be empty");
  return flags;
}

}  // namespace ringmaster::operator_main
