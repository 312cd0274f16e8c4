// SPDX-License-Identifier: Apache-2.0

// Gang is the clients of bench_rendezvous: the connections of many pods, with the agents' code for links and
// frames over TLS, in one loop. Its trainers answer as soon as they are asked and hold no state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/agent/shell/coordinator_link.h"

namespace ringmaster::bench {

struct GangOptions {
  std::string port;
  std::string ca_file;
  int jobs = 4;
  int pods = 512;  // of each job
  int slots = 8;
  int address_bytes = 520;  // of UCX on a node with several devices
  bool separate = false;    // a connection for each slot
};

std::string JobName(int job);

class Gang {
 public:
  explicit Gang(const GangOptions& options);

  // Each returns when all agents of the job, or of all jobs, are there.
  void Connect();      // all agents are welcome
  void Form(int job);  // joins the trainers of a job; its members have the first generation
  // Pings and reports progress for so long. Returns the longest time between two pings: the machine may be
  // too busy for the clients.
  Duration Pause(Duration duration);

 private:
  struct Link;  // one connection: all slots of a pod, or one

  // Serves all connections until `done` holds.
  void Serve(const std::function<bool()>& done);
  void OnUp(Link& link);
  void Read(Link& link);
  void Send(Link& link, const std::vector<int32_t>& slots, const std::string& frame);
  void Ping();

  const GangOptions options_;
  std::vector<std::unique_ptr<Link>> links_;
  int64_t step_ = 0;
  Time ping_at_{};
  Time pinged_at_{};
  Duration longest_pause_{};
};

}  // namespace ringmaster::bench
