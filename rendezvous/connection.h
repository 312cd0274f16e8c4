// SPDX-License-Identifier: Apache-2.0

// The records of Server: its connections, and the jobs that they belong to. An agent is a *channel* of a
// connection. Plain data of the server's thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/byte_stream.h"
#include "rendezvous/codec.h"
#include "rendezvous/job_coordinator.h"
#include "rendezvous/message_rate.h"
#include "rendezvous/outbox.h"

namespace ringmaster::rendezvous {

// An agent sends five pings a second, an occasional report, and a burst when it connects.
inline constexpr double kMessagesPerSecond = 200;
inline constexpr double kMessagesBurst = 2000;

inline constexpr size_t kMaxHelloBytes = 64 << 10;  // an unauthenticated peer may not use more memory
inline constexpr size_t kReadBytes = 16 << 10;      // at a time
inline constexpr size_t kWriteBytes = 64 << 10;     // of one connection before others get a turn
inline constexpr size_t kMaxLoggedBytes = 300;      // of an error, which may quote what a peer sent
inline constexpr auto kTurn = milliseconds(1);      // of one job, while others wait
// A report costs time in proportion to the members: at most one part in kReportShare goes into reports.
inline constexpr auto kReportPause = milliseconds(50);
inline constexpr int kReportShare = 20;
inline constexpr auto kFlushDeadline = milliseconds(500);

// What all connections of a job may hold of messages that are not complete: at first, and more for each of
// them, since a large gang sends much at the same time (kRecordsPerMessage). A pod may have hundreds of
// connections, and a message a megabyte: without a limit a few of them would fill the operator's memory.
inline constexpr size_t kMaxIncompleteBytes = size_t{16} << 20;
inline constexpr size_t kMaxIncompleteBytesEach = size_t{16} << 10;

struct Job;

struct Connection {
  Connection(std::unique_ptr<ByteStream> c, boost::asio::io_context& io)
      : stream(std::move(c)), hello_timer(io), pause_timer(io) {}

  // Keeps a membership for slots of a pod that connect again, so that those whose messages are being handled
  // get one copy. Returns false if it cannot be kept: send it.
  bool Hold(const std::vector<int32_t>& slots, const Outbox::Frame& frame) {
    if (!shared || !consuming || (held != nullptr && held != frame)) return false;
    held = frame;
    held_for.insert(slots.begin(), slots.end());
    return true;
  }
  std::pair<Outbox::Frame, std::vector<int32_t>> TakeHeld() {
    const std::set<int32_t> slots = std::exchange(held_for, {});
    return {std::exchange(held, nullptr), {slots.begin(), slots.end()}};
  }
  // Whether the kept membership must be sent before a message for these slots; empty: for the pod.
  bool Holds(const std::vector<int32_t>& slots) const {
    return held != nullptr && (slots.empty() || std::any_of(slots.begin(), slots.end(), [this](int32_t slot) {
                                 return held_for.contains(slot);
                               }));
  }

  uint64_t id = 0;
  std::unique_ptr<ByteStream> stream;
  boost::asio::steady_timer hello_timer;
  boost::asio::steady_timer pause_timer;  // of a connection above its rate
  std::string peer;                       // address, for logs
  std::string address;                    // without the port, while it counts as unauthenticated; then empty
  std::string job;                        // empty: not authenticated yet, or dismissed
  std::weak_ptr<const Job> of_job;        // as it authenticated, also once it is dismissed: for logs
  std::string pod;
  std::string node;
  int64_t attempt = 0;
  bool secured = false;                      // the handshake is complete
  bool authenticating = false;               // waits for the result for its Hello; reads nothing until then
  bool dismissed = false;                    // Exit was sent: its messages are ignored
  bool shared = false;                       // its messages have routes
  std::map<int32_t, ConnectionId> channels;  // its agents by slot
  Decoder decoder{kMaxAgentFrameBytes};
  MessageRate rate{kMessagesPerSecond, kMessagesBurst};
  Outbox outbox;
  size_t hello_bytes = 0;
  size_t incomplete = 0;  // bytes of a message that is not complete, as Job counted them
  Outbox::Frame held;     // see Hold
  std::set<int32_t> held_for;
  bool consuming = false;  // its messages are being handled
  bool writing = false;
  bool close_when_written = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

// One job and its coordinator, and the connections of its pods.
struct Job {
  Job(boost::asio::io_context& io, const CoordinatorOptions& options)
      : name(options.job),
        uid(options.uid),
        slots(options.slots),
        coordinator(MakeCoordinator(options)),
        timer(io),
        report_timer(io) {}
  void Add(const ConnectionPtr& c) {
    connections[c->id] = c;
    pods[c->pod].push_back(c->id);
  }
  void Remove(const Connection& c) {
    if (connections.erase(c.id) == 0) return;
    const auto pod = pods.find(c.pod);
    std::erase(pod->second, c.id);
    if (pod->second.empty()) pods.erase(pod);
    incomplete -= c.incomplete;
  }
  // Counts what the connection holds of a message that is not complete. Returns false when all hold too much.
  bool CountIncomplete(Connection& c) {
    incomplete -= std::exchange(c.incomplete, c.decoder.buffered());
    incomplete += c.incomplete;
    return incomplete <= kMaxIncompleteBytes + kMaxIncompleteBytesEach * connections.size();
  }
  void CancelTimers() {
    timer.cancel();
    report_timer.cancel();
  }
  // A copy: what is done with them changes `connections`.
  std::vector<ConnectionPtr> All() const {
    std::vector<ConnectionPtr> all;
    for (const auto& [id, c] : connections) all.push_back(c);
    return all;
  }

  const std::string name;
  const std::string uid;
  const int32_t slots;
  const std::unique_ptr<JobCoordinator> coordinator;
  boost::asio::steady_timer timer;
  Time timer_at = kNever;
  boost::asio::steady_timer report_timer;
  std::optional<GangPhase> reported_phase;
  Time report_at{};  // no report of the same phase before
  bool report_waits = false;
  int64_t attempt = 0;
  std::map<uint64_t, ConnectionPtr> connections;
  std::map<std::string, std::vector<uint64_t>> pods;  // connections by pod, oldest first
  size_t incomplete = 0;                              // bytes, of all of them
  // The frame of the newest membership: after a broken network, thousands of agents ask for it at once.
  std::shared_ptr<const Message> newest;
  Outbox::Frame newest_frame;
};

// Whether the message lists all members, so that its size and its cost grow with their number.
inline bool ListsMembers(const Message& message) {
  return std::holds_alternative<NewGeneration>(message) || std::holds_alternative<StartProgram>(message);
}

// Returns how a log line about the connection begins: empty before it is authenticated.
inline std::string TagOf(const Connection& c) {
  const std::shared_ptr<const Job> job = c.of_job.lock();
  if (job == nullptr) return "";
  return fmt::format("job={} attempt={} generation={} pod={} ", job->name, c.attempt,
                     job->coordinator->generation(), c.pod);
}

// An agent, as the coordinators know it.
struct Channel {
  ConnectionPtr connection;
  int32_t slot = 0;
};

}  // namespace ringmaster::rendezvous
