// SPDX-License-Identifier: Apache-2.0

// KubeflowServer takes what a program reports to Kubeflow Trainer (kubeflow_status.h): a server on a free
// port of loopback, with a token that only the program's user can read, since all users of the host network
// reach the port.
//
// Trainer's own URL is https. Here it is http: what does not leave the machine needs no certificate, and no
// client asks for https. The callback of transformers (urllib) and the Kubeflow SDK (requests) use the
// certificate authority with https URLs only.
//
// It never blocks and starts no thread. Move-only; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/agent/kubeflow/kubeflow_status.h"
#include "worker/agent/net/http_request.h"

namespace ringmaster::agent {

class KubeflowServer {
 public:
  // Connections that are open at a time; the oldest one gives way to a further one.
  static constexpr size_t kMaxConnections = 8;
  // For one connection; clients wait as long for the answer.
  static constexpr Duration kLimit = seconds(5);
  static constexpr const char* kUrlVariable = "KUBEFLOW_TRAINER_SERVER_URL";

  // Listens. `job`: namespace/name. `folder` gets the file of the token. `ca_file` is what clients that load
  // a certificate authority even for http find; empty: none.
  static Result<KubeflowServer> Open(const std::string& job, const std::string& folder,
                                     const std::string& ca_file);

  // A program starts: from here on, reports need this token. Adds the variables of the program. Without a
  // file for the token there are none, and a warning.
  void Begin(const std::string& token, std::vector<std::string>* variables);

  // Readable when Advance has something to do; it also has at deadline().
  int fd() const { return epoll_.get(); }
  Time deadline() const;
  // Passes the reports that have arrived to `take`.
  void Advance(Time now, const std::function<void(const KubeflowStatus&)>& take);

  int32_t port() const { return port_; }
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    Fd socket;
    Time deadline = kNever;
    HttpRequestReader reader = {};
    std::string unsent = {};  // of the answer
    bool answered = false;
    bool wants_write = false;
  };

  KubeflowServer() = default;
  void Accept(Time now);
  bool Serve(uint64_t number, Connection& connection, const std::function<void(const KubeflowStatus&)>& take);
  static bool Read(Connection& connection);
  bool Write(uint64_t number, Connection& connection);

  Fd epoll_;
  Fd listener_;
  int32_t port_ = 0;
  std::string path_;
  std::string token_file_;
  std::string ca_file_;
  std::string token_;                           // empty: no program can report
  std::map<uint64_t, Connection> connections_;  // by number, the oldest first
  uint64_t newest_ = 0;
};

}  // namespace ringmaster::agent
