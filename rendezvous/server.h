// The coordinators' TCP shell: one thread, one port, any number of jobs; each connection is one agent's.
// Everything that is decided is decided in Coordinator; this only moves bytes and time.
//
// A connection must say Hello with the right secret and a known job, soon and in few bytes; otherwise it is
// closed. The secret never reaches a log. All members may be called from any thread; the callbacks run on the
// server's thread, must not block for long, and must not call Shutdown.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

struct ServerOptions {
  std::string host = "127.0.0.1";  // address to listen on
  uint16_t port = 0;               // 0: any free one
  std::string secret;
};

struct ServerCallbacks {
  std::function<void(const std::string& job, const Report& report)> on_report;
  std::function<void(const std::string& job, const Progress& progress)> on_progress;
  std::function<void(const std::string& job, const std::string& text)> on_event;  // a line for people
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
  void RequestStop(const std::string& job);

  // Takes no more connections, lets what is queued (an Exit, mostly) go out for a moment, ends the thread. No
  // callback runs after it. A second call does nothing.
  void Shutdown();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::rendezvous
