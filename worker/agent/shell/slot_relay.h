// SPDX-License-Identifier: Apache-2.0

// SlotRelay connects the agents of a pod's slots with the coordinator over one connection: thousands of
// trainers need eight times fewer connections, and a large membership crosses the network once per pod. It
// forwards frames unread, except that
//  - it adds and removes routes (rendezvous/codec.h);
//  - it joins the pings of all slots. A slot whose agent does not ping is not named: its silence shows.
// A coordinator of an earlier build does not announce shared connections: each slot then gets its own.
//
// When the connection ends, the relay ends those of its agents, which open new ones and repeat what the
// coordinator must know (rendezvous/member.h). It reads nothing from an agent before the coordinator is
// there.
//
// Not thread-safe; runs in a separate process (slots.h).
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/time.h"
#include "worker/agent/net/frame_stream.h"
#include "worker/agent/shell/coordinator_link.h"

namespace ringmaster::agent {

class SlotRelay {
 public:
  static constexpr Duration kPingInterval = milliseconds(200);
  // Agents behind a relay ping this often, so that each of its pings names every slot that lives.
  static constexpr Duration kSlotPingInterval = milliseconds(100);
  static constexpr Duration kBackoffMin = milliseconds(10);
  static constexpr Duration kBackoffMax = milliseconds(300);

  struct Options {
    std::string host;
    std::string port;
    std::string ca_file;  // empty: plain TCP
  };

  // `doorbells`: the relay's ends, by slot.
  SlotRelay(Options options, std::vector<Fd> doorbells);

  // Waits for events until `until` at the latest, and handles them. `wake`: a further descriptor that ends
  // the wait when it is readable; -1: none.
  void RunOnce(Time until, int wake);
  // Whether an agent's bytes wait to be forwarded.
  bool HasUnsent() const;
  // Whether an agent is connected.
  bool HasAgents() const;

 private:
  struct Slot {
    Fd doorbell;
    std::unique_ptr<FrameStream> agent;  // null: its agent has no connection
    bool greeted = false;                // its Hello is forwarded
    bool welcome = false;                // its Welcome has come back
    bool heard = false;                  // it pinged since the last ping to the coordinator
  };
  struct Uplink {
    std::unique_ptr<CoordinatorLink> link;
    Time connect_at{};
    Duration backoff = kBackoffMin;
  };

  // The connection that carries this slot; the first agent's, until it is known whether others may share it.
  size_t UplinkOf(size_t slot) const { return separate_ ? slot : 0; }
  bool MayForward(size_t slot) const;
  void OnDoorbell(size_t slot);
  void ConnectWhereNeeded(Time now);
  void OnUplink(size_t uplink, short revents, Time now);
  void LoseUplink(size_t uplink, const Error& why, Time now);
  void ReadUplink(size_t uplink, Time now);
  void Deliver(size_t slot, std::string_view frame, Time now);
  void OnWelcome(size_t slot, bool shared);
  void ReadAgent(size_t slot, Time now);
  void Forward(size_t slot, std::string_view frame, Time now);
  void EndAgent(size_t slot, bool tell, Time now);
  void Ping(Time now);

  const Options options_;
  std::vector<Slot> slots_;
  std::vector<Uplink> uplinks_;   // one per slot; only the first is used while a connection is shared
  bool shared_ = false;           // the coordinator has announced that the first uplink may carry all slots
  bool separate_ = false;         // it has not: each slot uses its own uplink
  std::optional<size_t> leader_;  // the slot whose Hello opened the first uplink
  Time ping_at_ = kNever;
};

// Runs a relay until SIGTERM, and then until the agents' last messages are sent. Returns the exit code.
// REQUIRES: SIGTERM is blocked.
int RunSlotRelay(SlotRelay::Options options, std::vector<Fd> doorbells);

}  // namespace ringmaster::agent
