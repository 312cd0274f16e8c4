// SPDX-License-Identifier: Apache-2.0

// A doorbell is a socket pair over which the agent of a slot hands the relay (slot_relay.h) one end of each
// connection that it opens. So the relay knows which slot a connection belongs to.
#pragma once

#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::agent {

// Returns the two ends: the agent's and the relay's.
Result<std::pair<Fd, Fd>> MakeDoorbell();

// Opens a connection: returns this end, and sends the other one. Never blocks. Errors: kUnavailable when the
// relay has not taken the last ones.
Result<Fd> RingDoorbell(int doorbell);

// Returns whether the relay has taken every connection that was opened.
bool IsDoorbellAnswered(int doorbell);

// Returns the next connection that was opened; an invalid Fd: none. Never blocks.
Fd AnswerDoorbell(int doorbell);

}  // namespace ringmaster::agent
