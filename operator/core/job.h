// SPDX-License-Identifier: Apache-2.0

// What the user asked for, reduced to what a decision needs. control/convert.h makes it from the API object,
// so that core knows neither JSON nor YAML. Value types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::core {

enum class RuleAction : uint8_t {
  kRestart,
  kFail,
  kIgnore,  // replaced as with kRestart, but it counts nowhere and is not remembered as the last failure
};

// Every given member must match; a rule without any matches everything.
struct Rule {
  std::vector<int32_t> exit_codes;
  std::optional<bool> node_unreachable;
  std::optional<bool> hang;
  std::string pod_condition;
  std::string message_regex;
  RuleAction action = RuleAction::kRestart;
  bool charge = true;
  bool exclude_node = false;  // new pods stay away from the node of the failure for a while
  bool operator==(const Rule&) const = default;
};

// As asked for; which one it becomes is the backend's discovery (Observed::provider).
enum class GangMode : uint8_t { kAuto, kNone, kGate, kNative, kVolcano, kCoscheduling };

enum class CleanPods : uint8_t { kNone, kRunning, kAll };

struct Job {
  std::string name;
  std::string uid;              // another one when a job is deleted and made again under the same name
  int64_t spec_generation = 1;  // rises with every change of the wish
  bool deleted = false;
  bool native = true;  // our own trainer: the coordinator keeps survivors, one lost pod is replaced alone
  bool suspend = false;
  bool wants_rdma = false;  // asked for, and TCP in its place is worth a word

  int32_t replicas = 1;
  int32_t min = 1;
  int32_t max = 1;
  int32_t slots = 1;  // ranks of a pod, where they are ours

  Duration grace = seconds(120);  // for a checkpoint, when pods are asked to stop
  int32_t max_restarts = 10;
  int32_t max_without_progress = 3;
  Duration backoff_initial = seconds(5);
  Duration backoff_max = seconds(300);
  std::vector<Rule> rules;

  GangMode gang = GangMode::kAuto;
  Duration gang_timeout =
      seconds(600);         // to find nodes for the gang; then it is withdrawn for a while; 0: none
  bool autoscaler = false;  // pods are shown to the scheduler even when there is no room yet

  Duration startup_limit = seconds(1800);  // all pods run -> first step; one pod placed -> running
  Duration unreachable_node_limit = seconds(60);
  Duration node_exclusion = seconds(86400);
  Duration active_deadline{0};  // 0: none; time spent suspended does not count
  std::optional<Duration> ttl;  // after the end the job itself is deleted
  CleanPods clean_pods = CleanPods::kRunning;
  Duration progress_interval = seconds(5);  // at most one status write per interval for progress alone

  // How many workers are wanted: the scale subresource, held between min and max.
  int32_t Target() const { return std::clamp(replicas, min, std::max(min, max)); }
  bool operator==(const Job&) const = default;
};

}  // namespace ringmaster::core
