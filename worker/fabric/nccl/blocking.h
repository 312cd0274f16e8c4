// SPDX-License-Identifier: Apache-2.0

// NCCL as a fabric::Communicator: the same collectives on GPU memory, each of which returns when it is done.
// For a thread with nothing else to do, which owns its stream.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/nccl/communicator.h"

namespace ringmaster::fabric::nccl {

// Enqueues a copy on the device; used in a world of one, which needs no NCCL.
using CopyOnDevice = std::function<void(Stream, std::span<std::byte> to, std::span<const std::byte> from)>;

// `host` is the communicator over which `device` was created; it performs the barriers. REQUIRES: it outlives
// the result.
std::unique_ptr<AsyncCommunicator> MakeBlocking(std::unique_ptr<DeviceCommunicator> device,
                                                Communicator* host, Stream stream, CopyOnDevice copy);

}  // namespace ringmaster::fabric::nccl
