# SPDX-License-Identifier: Apache-2.0
"""The planted bugs ("mutations") that the simulator must notice, as edits of the sources in rendezvous/.

../plant_mutations.py applies them to copies in the build folder, so the product's source holds no trace of them.
Each mutation lists edits (file, correct code, buggy code). The correct code must occur exactly once in its
file; differences in white space do not matter. It is either whole statements, ending in ';' or '}', or one
expression. The order gives the numbers of `rendezvous_sim --mutation K`, from 1: append new ones at the end.
"""

NAMESPACE = "ringmaster::rendezvous"

MUTATIONS = [
    ("StatusNotFenced", "coordinator: accepts the answer to an older Prepare", [
        ("coordinator.cc", "status.generation != change_->generation", "false"),
    ]),
    ("AllAreSources", "plan: every member with state is a source, whatever its step", [
        ("recovery_plan.cc", "if (outranked) return plan;",
         """plan.start_step = smax;
            plan.sources = leaders;
            plan.sources.insert(plan.sources.end(), laggards.begin(), laggards.end());
            return plan;"""),
    ]),
    ("NoRollBackCheck", "plan: rolls the leaders back without checking that they can", [
        ("recovery_plan.cc", "std::all_of(ahead.agree.begin(), ahead.agree.end(), can_undo)", "true"),
    ]),
    ("HashesIgnored", "plan: does not compare the states", [
        ("recovery_plan.cc", "Compare(statuses, leaders, {})",
         """(Vote{leaders, {}, {statuses[leaders.front()].params_hash,
                                statuses[leaders.front()].optimizer_hash}})"""),
        ("recovery_plan.cc", "Compare(statuses, laggards, {})", "(Vote{laggards, {}, {}})"),
        ("recovery_plan.cc", "Compare(statuses, laggards, witnesses)",
         """(Vote{Merged(laggards, witnesses), {}, {statuses[laggards.front()].params_hash,
                                                    statuses[laggards.front()].optimizer_hash}})"""),
    ]),
    ("DeadNotRemembered", "coordinator: takes a member back after it was left out", [
        ("coordinator.cc", "removed_.contains(join.member)", "false"),
        ("membership_change.cc",
         """EvictPeer(*peer, std::string(peer->member), "the job continued without it");
            if (peer->connection == 0) ErasePeer(*peer);""", ";"),
        ("membership_change.cc", "if (!there) removed_.insert(member.id);", ";"),
    ]),
    ("NoUpgrade", "coordinator: a boundary Prepare never becomes an abort", [
        ("coordinator.cc", "active_ && was_member", "active_ && was_member && !change_"),
        ("membership_change.cc", "StartChange(Urgency::kAbort, now); return;", "return;"),
    ]),
    ("HoldersNotAwaited", "coordinator: starts over while holders of the state may come back", [
        ("membership_change.cc", "if (current_.generation == 0) due = std::max(due, HoldersDue());", ";"),
        ("membership_change.cc",
         "if (fresh && !plan.sources.empty() && newest_step_ - plan.start_step < 2) return std::nullopt;",
         "return std::nullopt;"),
    ]),
    ("MinIgnored", "coordinator: forms a generation below min", [
        ("membership_change.cc", "staying < options_.min", "staying == 0"),
        ("membership_change.cc", "static_cast<size_t>(options_.min)", "size_t{1}"),
    ]),
    ("MaxIgnored", "coordinator: forms a generation above max", [
        ("membership_change.cc", "static_cast<size_t>(options_.max)", "size_t{1} << 20"),
    ]),
    ("LeaverNotKept", "coordinator: lets the last holder of the state leave without a checkpoint", [
        ("membership_change.cc", "!plan.sources.empty() && !source_stays", "false"),
    ]),
    ("StopNotAwaited", "coordinator: reports the stop without waiting for Done", [
        ("membership_change.cc",
         """if (plan.sources.empty()) {
              CountLostSteps();
              End(GangPhase::kStopped, 0, "stopped on request");
            } else {
              Publish(change, plan, peers_of(plan.sources), true, now);
            }""", """End(GangPhase::kStopped, 0, "stopped on request");"""),
    ]),
    ("SilenceIgnored", "coordinator: never treats a silent agent as lost", [
        ("coordinator.cc", "now - peer.heard >= unresponsive_limit", "false"),
    ]),
    ("StatusNotAwaited", "coordinator: continues when half of the members have answered", [
        ("membership_change.cc", "if (!complete) return;",
         """if (2 * std::count_if(change_->participants.begin(), change_->participants.end(),
                                  [](const Participant& p) { return p.status.has_value(); }) <
                static_cast<std::ptrdiff_t>(change_->participants.size())) return;"""),
    ]),
    ("StatusNoDeadline", "coordinator: waits for a status without a limit", [
        ("membership_change.cc", "if (late.empty()) return;", "return;"),
    ]),
    ("GenerationReused", "coordinator: a restarted membership change keeps its generation", [
        ("membership_change.cc", "change.generation = NextGeneration();",
         "change.generation = change_ ? change_->generation : NextGeneration();"),
    ]),
    ("TermIgnored", "coordinator: leaves the term out of the generation", [
        ("membership_change.cc", "return (static_cast<Generation>(options_.term) << 32) | ++sequence_;",
         "return ++sequence_;"),
    ]),
    ("MemberNotFenced", "member: forwards messages older than what it has seen", [
        ("member.cc", "if (prepare->generation < prepared_) return;",
         "commands_.push_back(SendTrainer{*prepare}); return;"),
        ("member.cc", "next->generation != prepared_ || next->generation == forwarded_generation_ || !for_us",
         "false"),
        ("member.cc", "status->generation != prepared_", "false"),
    ]),
    ("MemberIdReused", "member: a restarted trainer keeps its id", [
        ("member.cc", "++incarnation_;", "if (incarnation_ == 0) ++incarnation_;"),
    ]),
    ("NothingRepeated", "member: repeats nothing on a new connection", [
        ("member.cc", "SendToCoordinator(options_.hello);", "SendToCoordinator(options_.hello); return;"),
    ]),
    ("CheckpointOutranked", "plan: uses a state older than the checkpoint", [
        ("recovery_plan.cc", "smax < checkpoint_step", "false"),
    ]),
    ("HolderGivesUp", "member: ends its trainer when the coordinator is away", [
        ("member.cc", "connect_at_ = now + connect_backoff_;", "Finish(1, \"no coordinator\"); return;"),
    ]),
    ("FailedOperationIgnored", "coordinator: ignores a failed operation that no loss explains", [
        ("coordinator.cc", "if (failed_operation_ && now >= failed_operation_->due) CheckOperation(now);", ";"),
        ("membership_change.cc", "if (failed_operation_) wake = std::min(wake, failed_operation_->due);", ";"),
    ]),
    ("ResetIsALoss", "coordinator: leaves a member out as soon as its connection is lost", [
        ("coordinator.cc",
         "first && active_ && in_current && !peer.unresponsive && !failed_operation_", "false"),
    ]),
    ("DataNotCompared", "coordinator: admits workers with other data", [
        ("admission.cc", "participant.peer->fingerprints == chosen", "true"),
        ("coordinator.cc", "peer.fingerprints == fingerprints_", "true"),
    ]),
    ("NewcomersDecide", "coordinator: newcomers outvote the holders of the state", [
        ("admission.cc", "newest >= 0 && (!status.has_state || status.step < newest - 1)", "false"),
    ]),
    ("FatalEndsTheJob", "coordinator: one worker that cannot start ends the job", [
        ("admission.cc", "joined || (late && trained && !all)", "false"),
    ]),
    ("FloorIgnored", "coordinator: lets a worker load that lacks the newest checkpoint", [
        ("admission.cc", "found(staying->front()) >= floor", "true"),
        ("membership_change.cc",
         "if (plan.sources.empty()) next.checkpoint_floor = report_.checkpoint_step;", ";"),
    ]),
    ("SearchNotAwaited", "coordinator: takes a member that still looks for checkpoints for one that has none", [
        ("admission.cc", "AwaitSearch(change, *staying, now)", "false"),
    ]),
    ("AnyoneLoads", "coordinator: does not choose the worker that has the checkpoint", [
        ("admission.cc", "std::rotate(staying->begin(), best, best + 1);", ";"),
    ]),
    ("FetchNeverAwaited", "coordinator: trains while too few members have the state", [
        ("membership_change.cc", "stop || staying_sources < options_.min", "false"),
    ]),
    ("UnreadIsSilent", "coordinator: takes an agent for silent whose messages have arrived and wait to be read", [
        ("coordinator.cc", "std::max(peer.heard, std::min(at, now))", "peer.heard"),
    ]),
    ("LateFatalEndsTheJob", "coordinator: believes the Fatal of a member that was left out", [
        ("admission.cc", "removed_.contains(fatal.member) && !has_died", "false"),
        ("admission.cc", "!fatal.joined || (peer.member != fatal.member && !has_died)", "!fatal.joined"),
        ("admission.cc", "self == current_.members.end()", "false"),
    ]),
    ("StopAsksNobody", "coordinator: stops before the members of its predecessor have found it", [
        ("membership_change.cc",
         """if (options_.resumed && current_.generation == 0 && first_join_ == kNever)
              until = std::max(until, started_at_ + options_.resumed_grace);""", ";"),
    ]),
    ("UndoNotCompared", "plan: trusts a single member that is a step behind", [
        ("recovery_plan.cc", "std::copy_if(ahead.agree.begin(), ahead.agree.end(), std::back_inserter(witnesses), knows_undo);",
         ";"),
    ]),
    ("OutvotedIsSource", "coordinator: uses a state that was outvoted when the majority has died", [
        ("membership_change.cc", "status.has_state = false;", ";"),
    ]),
    ("TermTrusted", "coordinator: counts from one although members know higher numbers of its term", [
        ("coordinator.cc", "CountOnFrom(join.newest, now);", ";"),
    ]),
    ("StepIgnored", "coordinator: gives members with long steps as little time to answer as the others", [
        ("membership_change.cc", "return std::max(deadline, 2 * usual_step_);", "return deadline;"),
    ]),
    ("TextGrows", "codec: text that is not UTF-8 becomes longer than its limit", [
        ("field_text.cc", """cut += size == 0 ? "?" : text.substr(at, size);""",
         r"""cut += size == 0 ? "\xef\xbf\xbd" : text.substr(at, size);"""),
    ]),
]
