// SPDX-License-Identifier: Apache-2.0

// Members of a fabric as forked processes, which the test controls, stops and kills. The parent exchanges
// lines with each of them over a socket; every wait has a deadline.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::fabric::testing {

// Inside a member process.
class Member {
 public:
  Member(int id, int socket) : id_(id), socket_(socket) {}

  int id() const { return id_; }
  Fabric& fabric() { return *fabric_; }
  // Creates the fabric and allocates `bytes` of shared memory, unless 0. REQUIRES: no Exchange before.
  Status Create(const FabricOptions& options, size_t bytes = 0);
  std::span<std::byte> memory() const { return memory_; }
  // Sends the own address and receives those of all processes. Matches a Processes::Exchange.
  Status Exchange();
  // Connects the processes with these ids. REQUIRES: the own id is among them.
  Result<std::unique_ptr<Communicator>> Connect(uint64_t generation, const std::vector<int>& ids);
  Result<std::unique_ptr<Communicator>> ConnectAll(uint64_t generation);

  void Send(const std::string& line);  // to the parent
  std::string Receive();               // from the parent

 private:
  int id_;
  int socket_;
  std::string buffer_;
  std::unique_ptr<Fabric> fabric_;
  std::span<std::byte> memory_;
  std::vector<std::string> addresses_;
};

class Processes {
 public:
  // Runs `body` in `count` processes. Wait returns its results.
  Processes(int count, const std::function<Status(Member&)>& body);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();  // kills the remaining processes

  int count() const { return static_cast<int>(children_.size()); }
  void Exchange();
  void Send(int id, const std::string& line);
  // Returns the next line of a process; "" when it ended or the deadline passed.
  std::string Receive(int id, Duration limit = seconds(60));
  void Signal(int id, int signal);
  // Waits for the end of a process. Returns "ok", "killed", "timeout", or the text of its error.
  std::string Wait(int id, Duration limit = seconds(60));

 private:
  struct Child {
    pid_t pid = 0;
    Fd socket;
    std::string buffer;
  };
  std::vector<Child> children_;
};

// Runs `body` in `count` processes that have exchanged addresses, and expects "ok" from all.
void RunAll(int count, const FabricOptions& options, size_t bytes,
            const std::function<Status(Member&)>& body);

}  // namespace ringmaster::fabric::testing
