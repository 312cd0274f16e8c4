// SPDX-License-Identifier: Apache-2.0

// Orders that arrive before the main thread has obeyed an earlier one.
#include "worker/trainer/agent_channel.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent_end.h"

namespace ringmaster::trainer {
namespace {

using rendezvous::Exit;
using rendezvous::Generation;
using rendezvous::Message;
using rendezvous::NewGeneration;
using rendezvous::Prepare;
using rendezvous::Urgency;

class AgentChannelTest : public testing::Test {
 protected:
  AgentChannelTest() {
    channel_.emplace(agent_.TakeOther(), [this](Generation up_to) {
      if (up_to >= kLast) taken_.set_value();
    });
  }
  // Sends the messages, and waits until the channel has taken them: it aborts for the last one.
  void Take(const std::vector<Message>& messages) {
    for (const Message& message : messages) agent_.Send(message);
  }
  static NewGeneration Formed(Generation generation) {
    NewGeneration formed;
    formed.generation = generation;
    formed.members = {{"a.1", "p", "x"}};
    return formed;
  }
  template <class T>
  T Next() {
    const auto order = channel_->WaitForOrder(seconds(120));
    const T* const found = order.has_value() ? std::get_if<T>(&*order) : nullptr;
    EXPECT_NE(found, nullptr) << "another order";
    return found == nullptr ? T{} : *found;
  }
  void AwaitBoundary() {
    const Time deadline = Now() + seconds(120);
    while (!channel_->boundary_wanted() && Now() < deadline) std::this_thread::yield();
    ASSERT_TRUE(channel_->boundary_wanted());
  }

  static constexpr Generation kLast = 1000;
  AgentEnd agent_;
  std::promise<void> taken_;
  std::optional<AgentChannel> channel_;
};

TEST_F(AgentChannelTest, ABoundaryOrderDoesNotOvertakeTheGenerationThatItEnds) {
  Take({Formed(8), Prepare{9, Urgency::kBoundary}});
  AwaitBoundary();
  EXPECT_EQ(Next<NewGeneration>().generation, 8u);
  EXPECT_TRUE(channel_->Begin(8));
  EXPECT_FALSE(channel_->cancelled());
  EXPECT_TRUE(channel_->boundary_wanted()) << "it pauses after its first step";
  EXPECT_EQ(Next<Prepare>().generation, 9u);
}

TEST_F(AgentChannelTest, ABoundaryOrderThatComesBetweenTheTwoStepsOfABeginIsKept) {
  Take({Formed(8)});
  EXPECT_EQ(Next<NewGeneration>().generation, 8u);
  Take({Prepare{9, Urgency::kBoundary}});
  AwaitBoundary();
  EXPECT_TRUE(channel_->Begin(8));
  EXPECT_TRUE(channel_->boundary_wanted());
  EXPECT_EQ(Next<Prepare>().generation, 9u);
}

TEST_F(AgentChannelTest, AnAbortReplacesBoth) {
  Take({Formed(8), Prepare{9, Urgency::kBoundary}, Prepare{kLast + 1, Urgency::kAbort}});
  ASSERT_EQ(taken_.get_future().wait_for(seconds(120)), std::future_status::ready);
  EXPECT_EQ(Next<Prepare>().generation, kLast + 1);
  EXPECT_FALSE(channel_->Begin(8));
  EXPECT_FALSE(channel_->WaitForOrder(Duration::zero()).has_value());
}

TEST_F(AgentChannelTest, AGenerationThatFollowsABoundaryBegins) {
  Take({Prepare{9, Urgency::kBoundary}});
  EXPECT_EQ(Next<Prepare>().generation, 9u);
  Take({Formed(9)});
  EXPECT_EQ(Next<NewGeneration>().generation, 9u);
  EXPECT_TRUE(channel_->Begin(9));
  EXPECT_FALSE(channel_->boundary_wanted());
}

}  // namespace
}  // namespace ringmaster::trainer
