// SPDX-License-Identifier: Apache-2.0

// NamesALostPeer recognizes the errors of programs whose peer is gone. Pure function.
#pragma once

#include <string>

namespace ringmaster::rendezvous {

// Whether `message` is what survivors print: sockets of Python and C, gloo, NCCL, JAX, TensorFlow.
bool NamesALostPeer(const std::string& message);

}  // namespace ringmaster::rendezvous
