# SPDX-License-Identifier: Apache-2.0
"""The planted bugs ("mutations") that programs_sim must notice, as edits of the sources in rendezvous/.

See tests/sim/rendezvous/mutations.py. Append new ones at the end: the order gives the numbers.
"""

NAMESPACE = "ringmaster::rendezvous"

MUTATIONS = [
    ("StopNotAwaited", "coordinator: does not wait for programs that are being stopped", [
        ("program_incarnations.cc", "if (!peer.busy()) continue;", "continue;"),
        ("program_incarnations.cc", "busy = busy || peer.busy();", ";"),
    ]),
    ("AnyRankFinishes", "coordinator: the job is finished when one rank has succeeded", [
        ("program_incarnations.cc",
         "if (it == peers_.end() ? !ErasedAfterSuccess(member.id) : !Succeeded(it->second)) return false;",
         "if (it != peers_.end() && !EndedInCurrent(it->second)) return false;"),
    ]),
    ("MinIgnored", "coordinator: forms an incarnation below min", [
        ("program_incarnations.cc", "if (ready < options_.min) return kNever;", "if (ready < 1) return kNever;"),
    ]),
    ("MaxIgnored", "coordinator: forms an incarnation above max", [
        ("program_incarnations.cc", "(peer->role.empty() ? options_.max : RoleOf(*peer).replicas)", "100"),
    ]),
    ("RolesNotAwaited", "coordinator: forms an incarnation without all roles", [
        ("program_incarnations.cc", "if (count(role.name) < role.replicas) return kNever;", ";"),
    ]),
    ("ConsequenceAtOnce", "coordinator: publishes a consequence before the gang has stopped", [
        ("program_failures.cc", "unexplained || MayHaveLostAPeer()", "false"),
        ("program_failures.cc",
         "incident_due_ = failure_seen_ + (more ? programs_.consequence_window : programs_.gather_window);",
         "incident_due_ = failure_seen_; (void)more;"),
    ]),
    ("FirstReportIsTheCause", "coordinator: orders failures by time only", [
        ("program_failures.cc", "std::pair(f.suspicion, f.at)", "std::pair(Suspicion::kRoot, f.at)"),
    ]),
    ("LossIsNoCause", "coordinator: charges survivors for the loss of an agent", [
        ("program_failures.cc", "(cause->suspicion != Suspicion::kRoot && first->heard <= failure_seen_)", "false"),
    ]),
    ("NotAccounted", "coordinator: starts again before the incident is accounted", [
        ("program_incarnations.cc", "report_.incident && report_.incident->generation > accounted_", "false"),
    ]),
    ("TermIgnored", "coordinator: leaves the term out of the number of an incarnation", [
        ("program_incarnations.cc", "(static_cast<Generation>(options_.term) << 32) | ++sequence_", "++sequence_"),
    ]),
    ("LauncherBelieved", "coordinator: believes the exit code of a launcher", [
        ("program_incarnations.cc", "Decided() && programs_.policy.counts_ranks", "false"),
    ]),
    ("RanksNotAwaited", "coordinator: does not wait for the reports of ranks", [
        ("program_incarnations.cc", "if (now < ranks_due_) return false;", ";"),
    ]),
    ("EndNotAwaited", "coordinator: an agent that is not heard at the end of a job is lost at once", [
        ("program_failures.cc", "last_on_ < end_due_ && OthersAreDone()", "false"),
    ]),
    ("NetworkNotChecked", "coordinator: starts programs that cannot reach each other", [
        ("program_incarnations.cc", "if (current_ != 0) return true;", "return true;"),
    ]),
    ("UnreachableIgnored", "network check: ignores what an agent cannot reach", [
        ("network_check.cc", "found.peer < 0 || static_cast<size_t>(found.peer) >= participants_.size()", "true"),
    ]),
    ("SilenceIgnored", "coordinator: never treats a silent agent as lost", [
        ("program_coordinator.cc", "now - peer.heard < options_.silence_limit", "true"),
    ]),
    ("OrderNotRepeated", "coordinator: repeats no order on a new connection", [
        ("program_coordinator.cc", "if (peer.ready() && !was_ready) last_join_ = now;\n  Correct(peer);",
         "if (peer.ready() && !was_ready) last_join_ = now;"),
    ]),
    ("StuckAwaited", "coordinator: waits for a program that does not end", [
        ("program_incarnations.cc", "if (now < stop_until_) return false;", "return false;"),
    ]),
    ("StateNotRepeated", "member: does not repeat its state on a new connection", [
        ("program_member.cc", "SendUp(options_.hello);\n    Report(now);", "SendUp(options_.hello);"),
    ]),
    ("OrderedEndIsAFailure", "member: reports the end of a program that was stopped as a failure", [
        ("program_member.cc", "state_.phase == ProgramPhase::kStopping && !failed()", "false"),
    ]),
    ("NothingAdopted", "coordinator: does not adopt what its predecessor has started", [
        ("program_incarnations.cc", "if (current_ == 0 && Adopt(now)) return true;", ";"),
    ]),
    ("NeverKills", "member: a program that ignores SIGTERM runs on", [
        ("program_member.cc", "now >= kill_at_", "false"),
        ("program_member.cc", "std::min({connect_at_, ping_at_, kill_at_, leave_due_, exit_by_})",
         "std::min({connect_at_, ping_at_, leave_due_, exit_by_})"),
    ]),
    ("FailureAwaitsTheEnd", "coordinator: a failure does not count before the last process has ended", [
        ("program_incarnations.cc", "peer.failing() && peer.state->generation == current_", "false"),
    ]),
    ("FailureNotReported", "member: reports a failure when the last process has ended", [
        ("program_member.cc", "SetEnd(event.how, now);", ";"),
    ]),
]
