# SPDX-License-Identifier: Apache-2.0
"""The planted bugs of the planner that controller_sim must notice, as edits of the sources in operator/core.

../plant_mutations.py applies them to copies in the build folder; ../rendezvous/mutations.py describes the format.
They follow the mutations of decisions (mutations.h) in the numbers of `controller_sim --mutation K`.
"""

NAMESPACE = "ringmaster::core"

MUTATIONS = [
    # An attempt keeps its reserved places after its end.
    ("KeepsReservations", "keeps-reservations", [
        ("planner/room_planner.cc",
         "for (const std::string& place : room.reserved) capacity_.Unreserve(place);", ";"),
    ]),
    # Places are given back at once, and reported as reserved.
    ("ForgetsReservations", "forgets-reservations", [
        ("planner/room_planner.cc", "room->reserved = std::move(wanted);",
         "for (const std::string& place : wanted) capacity_.Unreserve(place);"),
    ]),
    # A replacement gets a place in any domain.
    ("ForgetsPeers", "forgets-peers", [
        ("planner/room_planner.cc", "gang.peers", "std::vector<std::string>()"),
        ("planner/room_planner.cc", "!observed.job.TopologyKey().empty()", "false"),
        ("planner/room_planner.cc", "capacity_.Reserve(asks, peers)", "capacity_.Reserve(asks, {})"),
    ]),
    # The queue orders gangs by their names.
    ("IgnoresTurns", "ignores-turns", [
        ("planner/room_planner.cc", "standing.priority = gang.priority;", ";"),
        ("planner/room_planner.cc", "standing.created = gang.created;", ";"),
    ]),
    # Any gang uses the room that is claimed for the head of the queue.
    ("TakesClaims", "takes-claims", [
        ("planner/room_planner.cc", "waiting_.MayUseClaim(job, standing, capacity_)", "true"),
        ("planner/room_planner.cc", "waiting_.MayUseClaim(job, room->standing, capacity_)", "true"),
    ]),
    # Jobs of the same priority make room.
    ("PreemptsEquals", "preempts-equals", [
        ("queue/preemption.cc", "holder.priority < wait.standing.priority",
         "holder.priority <= wait.standing.priority"),
    ]),
    # Jobs make room although the waiting one does not fit then.
    ("PreemptsInVain", "preempts-in-vain", [
        ("queue/preemption.cc", "if (!FitsNow()) return plan;", ";"),
    ]),
]
