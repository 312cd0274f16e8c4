// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/lost_peer.h"

#include <algorithm>
#include <iterator>

namespace ringmaster::rendezvous {

bool NamesALostPeer(const std::string& message) {
  constexpr const char* kWords[] = {"onnection reset", "onnection closed", "onnection refused", "roken pipe",
                                    "BrokenPipeError", "ConnectionResetError", "ncclRemoteError",
                                    "remote process exited", "UnavailableError", "coordination service",
                                    "peer is lost",
                                    // the last line of TensorFlow's UnavailableError about a parameter server
                                    "has been disconnected from the client"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](const char* words) { return message.find(words) != std::string::npos; });
}

}  // namespace ringmaster::rendezvous
