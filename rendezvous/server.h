// SPDX-License-Identifier: Apache-2.0

// The coordinators' TCP shell: one thread, one port, any number of jobs; each connection is one agent's.
// Everything that is decided is decided in Coordinator; this only moves bytes and time.
//
// A connection must say Hello with the right secret (or token) and a known job, soon and in few bytes;
// otherwise it is closed. Of connections that have not been let in there are never more than so many, in all
// and from one address: who floods us keeps others out for hello_deadline at the longest, and those who are
// in notice nothing. The secret never reaches a log. A pod of an attempt that was given up is told to end
// (exit 75): however late it was made and by whom, it never takes part. All members may be called from any
// thread; the callbacks run on the server's thread, must not block for long, and must not call Shutdown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

struct ServerOptions {
  std::string host = "127.0.0.1";  // address to listen on
  uint16_t port = 0;               // 0: any free one
  // What every Hello must carry (`ringmaster run`), unless `admit` is set.
  std::string secret;
  // Asks elsewhere whether this Hello is the pod that it says it is; answers once, from any thread. Must not
  // block.
  std::function<void(const Hello& hello, std::function<void(Status)> done)> admit;
  // Both empty: plain TCP, for one machine.
  std::string tls_cert_pem;
  std::string tls_key_pem;

  Duration hello_deadline = seconds(10);  // from the connection until it is let in
  int32_t max_strangers = 1024;           // connections that have not been let in
  int32_t max_strangers_per_peer = 256;   // of one address; behind NAT that is a whole node
};

struct ServerCallbacks {
  std::function<void(const std::string& job, const Report& report)> on_report;
  std::function<void(const std::string& job, const Progress& progress)> on_progress;
  std::function<void(const std::string& job, const EventLine& line)> on_event;
};

class Server {
  class Impl;

 public:
  // kUnavailable when the address cannot be listened on.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, ServerCallbacks callbacks);
  explicit Server(std::unique_ptr<Impl> impl);  // for Start
  ~Server();                                    // as Shutdown

  uint16_t port() const;

  // A job is known from here on; agents that say Hello for another job are turned away. A job of that name
  // that is there already is replaced (resume after a stop): REQUIRES a higher term.
  void AddJob(const CoordinatorOptions& options);
  void SetLimits(const std::string& job, int32_t min, int32_t target, int32_t max);
  // From now on only pods of this attempt take part: those of earlier ones are told to end, those of later
  // ones to come again. 0 (as after AddJob): no such check.
  void SetAttempt(const std::string& job, int64_t attempt);
  // The job is gone: its agents are told to end.
  void RemoveJob(const std::string& job);
  // For connections that come from now on. kInvalid leaves the old one in use.
  Status SetCertificate(const std::string& cert_pem, const std::string& key_pem);
  // Connections that have been let in.
  int32_t connected() const;
  void RequestStop(const std::string& job);

  // Takes no more connections, lets what is queued (an Exit, mostly) go out for a moment, ends the thread. No
  // callback runs after it. A second call does nothing.
  void Shutdown();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::rendezvous
