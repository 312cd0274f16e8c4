// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/root_work.h"

#include <array>
#include <future>

namespace ringmaster::trainer {

Status RunOnRootWithKeepalive(fabric::Communicator* comm, int root, const std::function<void()>& work,
                              Duration period) {
  std::future<void> working;  // its destructor waits for the work to end
  if (comm->rank() == root) working = std::async(std::launch::async, work);
  std::array<std::byte, 1> done{};
  while (done[0] == std::byte{0}) {
    if (working.valid() && working.wait_for(period) == std::future_status::ready) {
      working.get();  // rethrows: a failed read of a checkpoint must not look like a missing one
      done[0] = std::byte{1};
    }
    RM_TRY(comm->Broadcast(done, root));
  }
  return Ok();
}

}  // namespace ringmaster::trainer
