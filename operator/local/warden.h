// SPDX-License-Identifier: Apache-2.0

// The warden is a process between the owner (`ringmaster run`) and its pods. It starts the pods, and it is a
// subreaper, so that whatever a pod leaves behind, in any process group or session, becomes its child:
//
//   an agent is killed     the warden kills what the agent has started, and then reports the end of the pod
//   the owner is killed    the warden kills everything, and ends
//   the warden is killed   the kernel kills its pods (PDEATHSIG); the owner, a subreaper too, kills the rest
//   and
//                          starts another warden (process_supervisor.h)
//
// It is a fork of the owner that runs no other program, has one thread, and writes no log. The two exchange
// frames over a stream socket.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "operator/local/spawn.h"

namespace ringmaster::local {

// The name of the warden in /proc/PID/comm.
inline constexpr const char* kWardenName = "ringmaster-ward";

struct WardenFrame {
  // From the owner: kStart (id, spec), kStop (id, milliseconds), kSignal (id, number). From the warden:
  // kStarted (id, pid), kNotStarted (id, code, message), kEnded (id, exit code), kStuck (id, pid).
  enum class Type : char {
    kStart = 's',
    kStop = 't',
    kSignal = 'n',
    kStarted = 'S',
    kNotStarted = 'N',
    kEnded = 'E',
    kStuck = 'U',
  };
  Type type;
  std::vector<std::string> fields;

  std::string Encode() const;
};

// Takes bytes of the stream apart. Not thread-safe.
class WardenFrames {
 public:
  void Append(const char* bytes, size_t count) { buffer_.append(bytes, count); }
  // Returns the next complete frame.
  std::optional<WardenFrame> Next();

 private:
  std::string buffer_;
};

std::vector<std::string> EncodeSpec(const SpawnSpec& spec);
// `at`: index of the first field of the spec. REQUIRES: EncodeSpec has written the fields.
SpawnSpec DecodeSpec(const std::vector<std::string>& fields, size_t at);

struct Warden {
  pid_t pid = -1;
  Fd socket;  // of the owner
};

// Forks a warden. When the other end of the socket closes, it kills its pods and ends. Errors: those of the
// system.
Result<Warden> StartWarden();

}  // namespace ringmaster::local
