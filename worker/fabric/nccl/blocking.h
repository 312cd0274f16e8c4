// SPDX-License-Identifier: Apache-2.0

// NCCL as a fabric::Communicator: the same collectives on memory of the GPU, each of which returns when it is
// done. For a thread that has nothing else to do meanwhile; its stream is its own.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/nccl/communicator.h"

namespace ringmaster::fabric::nccl {

// Enqueues a copy on the device; for a world of one, in which NCCL has no part.
using CopyOnDevice = std::function<void(Stream, std::span<std::byte> to, std::span<const std::byte> from)>;

// `host` is the communicator over which `device` was made, and outlives it: barriers are its.
std::unique_ptr<AsyncCommunicator> MakeBlocking(std::unique_ptr<DeviceCommunicator> device,
                                                Communicator* host, Stream stream, CopyOnDevice copy);

}  // namespace ringmaster::fabric::nccl
