// SPDX-License-Identifier: Apache-2.0

// Workers that come and go while their incarnation runs (ProgramPolicy::live_workers). The launcher continues
// without those that are lost or fail, and starts ranks on those that join; it gets the list of workers
// after each change. A worker that returns is another one to it (Member::joined).
#include <algorithm>
#include <utility>

#include "rendezvous/program_coordinator.h"

namespace ringmaster::rendezvous {

StartProgram ProgramCoordinator::StartOf(const Peer& peer) const {
  StartProgram start = std::get<StartProgram>(*start_message_);
  start.life = peer.life;
  if (IsLive(peer)) start.version = members_[static_cast<size_t>(ranks_.at(peer.agent))].joined;
  return start;
}

void ProgramCoordinator::MembersChanged() {
  ++version_;
  StartProgram start{current_, {}, 0, version_};
  ranks_.clear();
  for (const Member& member : members_) {
    ranks_.emplace(member.id, static_cast<int32_t>(ranks_.size()));
    const auto it = peers_.find(member.id);
    const bool waits = it != peers_.end() && IsLive(it->second) && it->second.restart_at != kNever;
    if (!waits) start.members.push_back(member);
  }
  start_message_ = std::make_shared<const Message>(std::move(start));
  report_dirty_ = true;
  for (auto& [agent, peer] : peers_) {
    if (!peer.role.empty() && InCurrent(peer)) Correct(peer);
  }
}

bool ProgramCoordinator::RemoveLiveWorker(const Peer& peer) {
  if (!IsLive(peer) || stage_ != Stage::kRunning || !InCurrent(peer) || Workers() <= options_.min)
    return false;
  std::erase_if(members_, [&](const Member& member) { return member.id == peer.agent; });
  MembersChanged();
  return true;
}

void ProgramCoordinator::AddLiveWorkers(Time now) {
  if (!programs_.policy.live_workers || stop_requested_ || Decided()) return;
  std::vector<Peer*> joining;
  int32_t room = options_.max - Workers();
  for (Peer* peer : ReadyPeers()) {
    if (room <= 0) break;
    if (!peer->role.empty() || InCurrent(*peer)) continue;
    joining.push_back(peer);
    --room;
  }
  if (joining.empty()) return;
  for (Peer* peer : joining) {
    members_.push_back({peer->agent, peer->pod, peer->state->address, "", peer->state->key, version_ + 1});
    // It may have been a member before.
    peer->life = peer->state->generation == current_ ? peer->state->life + 1 : 0;
    peer->restarts = 0;
    peer->restart_at = kNever;
    peer->life_since = now;
  }
  MembersChanged();
  for (Peer* peer : joining) {
    StartProgram start = StartOf(*peer);
    // As far as is known, like Publish.
    *peer->state = {ProgramPhase::kRunning, current_, ranks_.at(peer->agent),
                    static_cast<int32_t>(members_.size()), peer->state->address};
    peer->state->life = start.life;
    peer->state->version = start.version;
    Send(*peer, std::move(start));
    AddEvent(EventKind::kOther, peer->pod + " joins: the launcher gets it as a further host");
  }
}

// The numbers of ranks say nothing here. An incarnation is taken over when its launcher and as many workers
// as the job wants report it, or after the usual time.
bool ProgramCoordinator::AdoptLive(Time now) {
  Generation newest = 0;
  const auto takes_part = [](const Peer& peer) {
    return peer.state && (peer.runs() || peer.state->phase == ProgramPhase::kEnded);
  };
  for (const auto& [agent, peer] : peers_) {
    if (takes_part(peer)) newest = std::max(newest, peer.state->generation);
  }
  if (newest == 0) return false;
  std::vector<std::pair<std::string, const Peer*>> sorted;
  const Peer* launcher = nullptr;
  int32_t version = 0;
  bool running = false;
  for (const auto& [agent, peer] : peers_) {
    if (!takes_part(peer) || peer.state->generation != newest) continue;
    running = running || peer.busy();
    version = std::max(version, peer.state->version);
    if (peer.role.empty())
      sorted.emplace_back(peer.pod, &peer);
    else
      launcher = &peer;
  }
  const bool late = now >= first_state_ + programs_.adoption_grace;
  const bool complete = launcher != nullptr && static_cast<int32_t>(sorted.size()) >= options_.target;
  if (!complete && !late) return false;
  if (launcher == nullptr && !running) return false;
  std::sort(sorted.begin(), sorted.end());
  std::vector<Member> members;
  for (const auto& [pod, peer] : sorted)
    members.push_back({peer->agent, pod, peer->state->address, "", "", peer->state->version});
  const bool good = launcher != nullptr && static_cast<int32_t>(members.size()) >= options_.min;
  if (launcher != nullptr)
    members.push_back({launcher->agent, launcher->pod, launcher->state->address, launcher->role});
  const std::string first = members.front().pod;
  const size_t size = members.size();
  SetCurrent(newest, std::move(members));
  stage_ = Stage::kRunning;
  stepped_ = true;  // steps that it lost were counted
  formed_at_ = now;
  version_ = version;
  MembersChanged();
  AddEvent(EventKind::kOther, "adopted incarnation " + std::to_string(newest & 0xffffffff) + " with " +
                                  std::to_string(size) + " programs");
  if (!good) {
    BeginStop(now);
    Account({first, "eof", 0, "some of its peers cannot be reached"}, false);
  }
  return true;
}

}  // namespace ringmaster::rendezvous
