// SPDX-License-Identifier: Apache-2.0

// Server connects agents to coordinators: one thread and one TCP port serve any number of jobs, and each
// connection belongs to one pod, whose agents share it. Coordinator makes all decisions; the server moves
// bytes and time.
//
// A connection must send Hello with a valid secret (or token) and a known job before hello_deadline and
// within a size limit, or the server closes it. The number of connections that have not been authenticated is
// limited, in total and per address: a flood delays new agents by at most hello_deadline and does not affect
// authenticated ones. Secrets are never logged. A pod of an obsolete attempt gets Exit with code 75 and never
// takes part.
//
// Thread-safe. Callbacks run on the server's thread, must not block for long, and must not call Shutdown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/job_coordinator.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

struct ServerOptions {
  std::string host = "127.0.0.1";  // address to listen on
  uint16_t port = 0;               // 0: any free port
  // The secret that every Hello must carry (`ringmaster run`), unless `authenticate` is set.
  std::string secret;
  // Checks that this Hello comes from the pod it names, and calls `done` once, from any thread. Must not
  // block. Errors: kGone: it does, and its job does not exist any more, so it gets Exit.
  std::function<void(const Hello& hello, std::function<void(Status)> done)> authenticate;
  // Both empty: plain TCP, for use within one machine.
  std::string tls_cert_pem;
  std::string tls_key_pem;

  Duration hello_deadline = seconds(10);          // from accepting a connection to its authentication
  int32_t max_unauthenticated = 1024;             // in total
  int32_t max_unauthenticated_per_address = 256;  // a NAT gateway shows a whole node as one address
};

struct ServerCallbacks {
  // `uid`: CoordinatorOptions::uid. The report may come after another job of this name has been created.
  std::function<void(const std::string& job, const std::string& uid, const Report& report)> on_report;
  std::function<void(const std::string& job, const Progress& progress)> on_progress;
  std::function<void(const std::string& job, const EventLine& line)> on_event;
  std::function<void(const std::string& job, const GangBusyTimes& times)> on_busy_times;  // each second
};

class Server {
  class Impl;

 public:
  // REQUIRES: SIGPIPE is ignored: OpenSSL writes to sockets without MSG_NOSIGNAL. Errors: kUnavailable when
  // the server cannot listen on the address.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, ServerCallbacks callbacks);
  explicit Server(std::unique_ptr<Impl> impl);  // for Start
  ~Server();                                    // calls Shutdown

  uint16_t port() const;

  // Adds a job; a Hello for an unknown job is refused. Replaces an existing job of this name (resume after a
  // stop): REQUIRES a higher term.
  void AddJob(const CoordinatorOptions& options);
  void SetLimits(const std::string& job, const rendezvous::SetLimits& limits);
  // For programs: the failure that ended this incarnation is accounted, so the next one may start.
  void AllowRestart(const std::string& job, Generation generation);
  // From now on only pods of this attempt take part: pods of earlier attempts get Exit, pods of later ones
  // must connect again. 0 (the state after AddJob) disables the check.
  void SetAttempt(const std::string& job, int64_t attempt);
  // Removes the job and sends Exit to its agents.
  void RemoveJob(const std::string& job);
  // Applies to new connections. After kInvalid the old certificate stays in use.
  Status SetCertificate(const std::string& cert_pem, const std::string& key_pem);
  // Returns the number of agents that are connected.
  int32_t connected() const;
  void RequestStop(const std::string& job);
  // All processes of this pod have ended. Call it before another pod of this name starts.
  void ReportPodEnded(const std::string& job, const std::string& pod);

  // Stops accepting connections, sends queued messages (mostly Exit) for up to half a second, and ends the
  // thread. No callback runs after it returns. A second call does nothing.
  void Shutdown();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::rendezvous
