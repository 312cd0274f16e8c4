// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/suspicion.h"

#include "rendezvous/lost_peer.h"

namespace ringmaster::rendezvous {

Suspicion SuspicionOf(const ProgramState& state) {
  // It ends because a rank or a daemon does, which that one's agent knows better.
  if (state.evidence == "launcher") return Suspicion::kConsequence;
  switch (state.exit_code) {
    case 128 + 4:   // SIGILL
    case 128 + 7:   // SIGBUS
    case 128 + 8:   // SIGFPE
    case 128 + 9:   // SIGKILL
    case 128 + 11:  // SIGSEGV
      return Suspicion::kRoot;
    case 75:        // "a peer is lost", for the operator
    case 128 + 6:   // SIGABRT
    case 128 + 13:  // SIGPIPE
    case 128 + 15:  // SIGTERM
    case 205:       // of Open MPI
    case 255:       // of MPICH
      return Suspicion::kConsequence;
    default:
      return NamesALostPeer(state.message) ? Suspicion::kConsequence : Suspicion::kUnknown;
  }
}

std::string DescribeEnd(const FailureRecord& record) {
  const bool died = record.evidence == "exit";
  return record.pod + " failed (" + (died ? "its program ended" : record.evidence) +
         (record.exit_code != 0 ? ", exit code " + std::to_string(record.exit_code) : "") + ")" +
         (record.message.empty() ? "" : ": " + record.message);
}

}  // namespace ringmaster::rendezvous
