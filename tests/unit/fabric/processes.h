// SPDX-License-Identifier: Apache-2.0

// Members of a fabric as real processes of their own (forked), which the test steers, stops and kills. The
// parent talks to each over a socket, in lines; every wait has a deadline.
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
  // Creates the fabric; before Exchange. `bytes` of shared memory are allocated, if any.
  Status Create(const FabricOptions& options, size_t bytes = 0);
  std::span<std::byte> memory() const { return memory_; }
  // Gives the own address and learns those of all processes; pairs up with Processes::Exchange.
  Status Exchange();
  // A communicator of these processes, by id; the own id must be among them.
  Result<std::unique_ptr<Communicator>> Connect(uint64_t generation, const std::vector<int>& ids);
  Result<std::unique_ptr<Communicator>> ConnectAll(uint64_t generation);

  void Tell(const std::string& line);  // to the parent
  std::string Listen();                // from the parent

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
  // Runs `body` in `count` processes. What it returns comes back from Wait.
  Processes(int count, const std::function<Status(Member&)>& body);
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();  // kills whoever is left

  int count() const { return static_cast<int>(children_.size()); }
  void Exchange();
  void Tell(int id, const std::string& line);
  // The next line of a process; "" when it ended or the deadline passed.
  std::string Listen(int id, Duration limit = seconds(60));
  void Signal(int id, int signal);
  // How it ended: "ok", "killed", "timeout", or the text of the error.
  std::string Wait(int id, Duration limit = seconds(60));

 private:
  struct Child {
    pid_t pid = 0;
    Fd socket;
    std::string buffer;
  };
  std::vector<Child> children_;
};

// Runs `body` in `count` processes which have exchanged addresses, and expects "ok" of all.
void RunAll(int count, const FabricOptions& options, size_t bytes,
            const std::function<Status(Member&)>& body);

}  // namespace ringmaster::fabric::testing
