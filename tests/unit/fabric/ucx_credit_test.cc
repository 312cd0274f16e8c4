// SPDX-License-Identifier: Apache-2.0

// When a sender over UCX receives credit for delivered messages. One thread drives both sides.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/fabric/channel.h"
#include "worker/fabric/ucx/domain.h"

namespace ringmaster::fabric::ucx {
namespace {

// Steps both until `done`; returns false at the deadline.
template <class Done>
bool Drive(Domain* one, Domain* other, const Done& done) {
  const Time deadline = Now() + seconds(60);
  Time idle[2] = {kNever, kNever};
  while (!done()) {
    if (Now() > deadline) return false;
    one->Step(idle[0]);
    other->Step(idle[1]);
  }
  return true;
}

// A sender with a full window waits only for credit, so the receiver sends it at once, even if it waits for
// nothing from that sender.
TEST(UcxCredit, ABufferedMessageIsCreditedOnDelivery) {
  const auto from = Domain::Create("from", seconds(60)).value();
  const auto to = Domain::Create("to", seconds(60)).value();
  std::vector<MemberAddress> members(2);
  members[0].uuid = "from";
  members[0].ucx = from->address();
  members[1].uuid = "to";
  members[1].ucx = to->address();
  std::unique_ptr<Transport> sender;
  std::thread connecting([&] { sender = from->Connect(1, 0, members).value(); });
  const std::unique_ptr<Transport> receiver = to->Connect(1, 1, members).value();
  connecting.join();

  const std::vector<std::byte> message(64, std::byte{7});
  std::vector<std::byte> delivered(64);
  const uint64_t before = to->worker().messages();
  for (uint32_t i = 0; i < Channel::kWindow; ++i) ASSERT_TRUE(sender->Send(1, {{}, i}, message).ok());
  ASSERT_TRUE(Drive(from.get(), to.get(), [&] {
    return to->worker().messages() - before == Channel::kWindow;
  })) << "the messages did not arrive";

  const uint64_t received = from->worker().messages();
  for (uint32_t i = 0; i < Channel::kWindow; ++i)
    ASSERT_TRUE(receiver->Post(0, {{}, i}, {delivered, PostedReceive::Action::kCopy, {}}).ok());
  EXPECT_EQ(delivered, message);
  EXPECT_TRUE(Drive(from.get(), to.get(), [&] { return from->worker().messages() > received; }))
      << "the sender got no credit";
}

// A registration that this process cannot make says nothing about the peer.
TEST(EndpointFailure, SaysWhichSideRefused) {
  for (const ucs_status_t status : {UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR, UCS_ERR_NO_RESOURCE}) {
    const Error error = EndpointFailure{status}.ErrorOf(3);
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_EQ(error.message.find("rank 3 is gone"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("on this side"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(ucs_status_string(status)), std::string::npos) << error.message;
  }
  for (const ucs_status_t status : {UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_REJECTED}) {
    const Error error = EndpointFailure{status}.ErrorOf(3);
    EXPECT_EQ(error.message, fmt::format("rank 3 is gone (UCX: {})", ucs_status_string(status)));
  }
}

}  // namespace
}  // namespace ringmaster::fabric::ucx
