// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/frame_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/codec.h"

namespace ringmaster::agent {
namespace {

// The documented limits of a job.
TEST(FrameStream, TheLargestMembershipReachesATrainer) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  FrameStream from{Fd(ends[0])};
  FrameStream to{Fd(ends[1])};
  rendezvous::NewGeneration formed;
  formed.generation = 8;
  for (size_t i = 0; i < rendezvous::kMaxMembers; ++i)
    formed.members.push_back({"0b9c5e1e-1f7e-4a0a-9d55-000000000000.1", "train-1-" + std::to_string(i),
                              std::string(rendezvous::kMaxAddressBytes, 'x')});
  const std::string frame = rendezvous::Encode(formed);
  const Status queued = from.SendRaw(frame);
  ASSERT_TRUE(queued.ok()) << queued.error().message;
  std::optional<std::string_view> got;
  while (!got) {
    ASSERT_TRUE(to.Receive().ok());
    const auto next = to.NextFrame();
    ASSERT_TRUE(next.ok()) << next.error().message;
    got = *next;
    ASSERT_TRUE(from.Flush().ok());
  }
  EXPECT_TRUE(*got == frame);
}

}  // namespace
}  // namespace ringmaster::agent
