// SPDX-License-Identifier: Apache-2.0

// The communicators of successive generations, with a library that is slow, fails and hangs.
#include "worker/fabric/nccl/domain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/fabric/nccl/domain_fixture.h"
#include "tests/unit/fabric/nccl/fake_library.h"
#include "tests/unit/fabric/nccl/host_for_test.h"
#include "worker/fabric/nccl/blocking.h"

namespace ringmaster::fabric::nccl {
namespace {

TEST_F(NcclDomainTest, EveryOperation) {
  Start(3, {.slow_results = 3});
  Connect(First(3), 1);
  SumOnAll(First(3));
  OnAll(First(3), [](Rank& rank, int r) {
    ASSERT_TRUE(rank.status.ok()) << rank.status.error().message;
    DeviceCommunicator& own = *rank.communicator;
    std::vector<float> floats = {1.5F, static_cast<float>(r)};
    std::vector<float> shares = {1, 2, 3, 4, 5, 6};
    std::vector<std::byte> gathered(3, std::byte{0});
    gathered[static_cast<size_t>(r)] = static_cast<std::byte>(r + 7);
    std::vector<std::byte> broadcast(2, static_cast<std::byte>(r));
    ASSERT_TRUE(own.AllReduce(floats, ReduceOp::kMax, rank.stream).ok());
    ASSERT_TRUE(own.ReduceScatter(shares, ReduceOp::kSum, rank.stream).ok());
    ASSERT_TRUE(own.AllGather(gathered, rank.stream).ok());
    ASSERT_TRUE(own.Broadcast(broadcast, 2, rank.stream).ok());
    ASSERT_TRUE(own.Wait(rank.stream).ok());
    EXPECT_EQ(floats, (std::vector<float>{1.5F, 2.0F}));
    EXPECT_EQ(shares[static_cast<size_t>(2 * r)], 3 * static_cast<float>(2 * r + 1));
    EXPECT_EQ(gathered, (std::vector<std::byte>{std::byte{7}, std::byte{8}, std::byte{9}}));
    EXPECT_EQ(broadcast, std::vector<std::byte>(2, std::byte{2}));
    std::vector<int32_t> odd(4);
    EXPECT_EQ(own.ReduceScatter(odd, ReduceOp::kSum, rank.stream).error().code, Code::kInternal);
    EXPECT_TRUE(own.AllReduce(std::span<float>(), ReduceOp::kSum, rank.stream).ok());
  });
}

TEST_F(NcclDomainTest, SumsOfBf16) {
  Start(3, {.slow_results = 2});
  Connect(First(3), 1);
  OnAll(First(3), [](Rank& rank, int r) {
    const uint16_t values[] = {0x3f80, 0x4000, 0x4040};                // 1, 2, 3
    std::vector<uint16_t> data = {values[r], 0xbf80, 0x4180, 0x3b80};  // own, -1, 16, 2^-8
    ASSERT_TRUE(rank.communicator->AllReduceBf16(data, rank.stream).ok());
    ASSERT_TRUE(rank.communicator->Wait(rank.stream).ok());
    EXPECT_EQ(data, (std::vector<uint16_t>{0x40c0, 0xc040, 0x4240, 0x3c40}));  // 6, -3, 48, 3 * 2^-8
  });
}

TEST_F(NcclDomainTest, MessagesBetweenRanks) {
  Start(3, {.slow_results = 2});
  Connect(First(3), 1);
  OnAll(First(3), [](Rank& rank, int r) {
    DeviceCommunicator& own = *rank.communicator;
    // Shares of two bytes: the sender and the receiver.
    std::vector<std::byte> in(6);
    for (size_t to = 0; to < 3; ++to) {
      in[2 * to] = static_cast<std::byte>(r);
      in[2 * to + 1] = static_cast<std::byte>(to);
    }
    std::vector<std::byte> out(6);
    ASSERT_TRUE(own.AllToAll(in, out, rank.stream).ok());
    ASSERT_TRUE(own.Wait(rank.stream).ok());
    for (size_t from = 0; from < 3; ++from) {
      EXPECT_EQ(out[2 * from], static_cast<std::byte>(from));
      EXPECT_EQ(out[2 * from + 1], static_cast<std::byte>(r));
    }
    // Around the ring: rank 0 sends first and receives last.
    std::vector<std::byte> token(70'000, static_cast<std::byte>(40));
    if (r != 0) {
      ASSERT_TRUE(own.Receive(token, r - 1, rank.stream).ok());
    }
    ASSERT_TRUE(own.Wait(rank.stream).ok());
    for (std::byte& one : token) one = static_cast<std::byte>(static_cast<int>(one) + 1);
    ASSERT_TRUE(own.Send(token, (r + 1) % 3, rank.stream).ok());
    if (r == 0) {
      ASSERT_TRUE(own.Receive(token, 2, rank.stream).ok());
    }
    ASSERT_TRUE(own.Wait(rank.stream).ok());
    EXPECT_EQ(token, std::vector<std::byte>(70'000, static_cast<std::byte>(r == 0 ? 43 : 41 + r)));
  });
}

TEST_F(NcclDomainTest, AnUnmatchedReceiveEndsWithTheGeneration) {
  Start(2);
  Connect(First(2), 1);
  std::vector<std::byte> data(8);
  ASSERT_TRUE(ranks_[0]->communicator->Receive(data, 1, ranks_[0]->stream).ok());
  ranks_[0]->cancel = true;
  EXPECT_EQ(ranks_[0]->communicator->Wait(ranks_[0]->stream).error().code, Code::kCancelled);
}

TEST_F(NcclDomainTest, FinishWaitsForStartedSums) {
  Start(3, {.slow_results = 2});
  Connect(First(3), 1);
  OnAll(First(3), [](Rank& rank, int r) {
    auto async = MakeBlocking(std::move(rank.communicator), rank.host.get(), rank.stream, nullptr);
    std::vector<int32_t> numbers = {r, 5};
    std::vector<float> floats = {0.5F};
    ASSERT_TRUE(async->StartAllReduce(std::span(numbers), ReduceOp::kSum).ok());
    ASSERT_TRUE(async->StartAllReduce(std::span(floats), ReduceOp::kSum).ok());
    ASSERT_TRUE(async->Finish().ok());
    EXPECT_EQ(numbers, (std::vector<int32_t>{3, 15}));
    EXPECT_EQ(floats, (std::vector<float>{1.5F}));
    EXPECT_TRUE(async->Finish().ok());  // without a started sum
  });
}

TEST_F(NcclDomainTest, AWorldOfOneNeedsNoLibrary) {
  Start(1, {.failing_call = 0});
  Connect(First(1), 1);
  ASSERT_TRUE(ranks_[0]->status.ok());
  SumOnAll(First(1));
  EXPECT_TRUE(ranks_[0]->status.ok());
  EXPECT_EQ(ranks_[0]->domain->TransportName(), "none");
  EXPECT_EQ(library_->calls(), 0);
}

TEST_F(NcclDomainTest, AsAFabricCommunicator) {
  Start(2);
  Connect(First(2), 9);
  OnAll(First(2), [](Rank& rank, int r) {
    auto blocking = MakeBlocking(std::move(rank.communicator), rank.host.get(), rank.stream, nullptr);
    std::vector<float> data = {1.0F, static_cast<float>(r)};
    EXPECT_TRUE(blocking->AllReduce(data, ReduceOp::kSum).ok());
    EXPECT_EQ(data, (std::vector<float>{2.0F, 1.0F}));
    EXPECT_TRUE(blocking->Barrier().ok());
    EXPECT_EQ(blocking->generation(), 9u);
  });
}

TEST_F(NcclDomainTest, MemoryIsRegisteredWithEachCommunicator) {
  Start(2);
  std::vector<std::span<std::byte>> given;
  for (const size_t rank : {0, 1, 1, 0})
    ranks_[rank]->domain->Register(given.emplace_back(AllocateFromNccl(32)), true);
  Connect(First(2), 1);
  EXPECT_EQ(library_->registered(), 4);
  for (const auto& rank : ranks_) rank->cancel = true;
  Connect(First(2), 2);
  EXPECT_EQ(library_->registered(), 8);
  for (const auto& rank : ranks_) {
    rank->communicator.reset();
    rank->domain.reset();
  }
  for (const auto memory : given)
    EXPECT_EQ(library_->Free(memory.data()), kSuccess);  // no communicator uses it
  EXPECT_EQ(library_->given(), 0);
}

// NCCL does not support memory that is registered at some ranks only.
TEST_F(NcclDomainTest, MemoryOfCudaAtOneRankIsRegisteredNowhere) {
  Start(2);
  std::vector<std::byte> other(64);
  ranks_[0]->domain->Register(AllocateFromNccl(64), true);
  ranks_[1]->domain->Register(AllocateFromNccl(64), true);
  ranks_[1]->domain->Register(other, false);
  Connect(First(2), 1);
  EXPECT_EQ(library_->registered(), 0);
  SumOnAll(First(2));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

// One rank is gone: the operation of the others never ends unless it is cancelled.
TEST_F(NcclDomainTest, ALossEndsTheOperationAndTheSurvivorsShrink) {
  Start(4, {.slow_results = 2});
  Connect(First(4), 1);
  const std::vector<int> survivors = {0, 2, 3};
  std::thread coordinator([&] {
    // Wait until all three wait, by the library's count.
    for (const int r : survivors)
      while (*library_->Idle(ranks_[static_cast<size_t>(r)]->stream)) std::this_thread::yield();
    for (const int r : survivors) ranks_[static_cast<size_t>(r)]->cancel = true;
  });
  SumOnAll(survivors);
  coordinator.join();
  for (const int r : survivors)
    EXPECT_EQ(ranks_[static_cast<size_t>(r)]->status.error().code, Code::kCancelled);
  Connect(survivors, 2);
  EXPECT_EQ(library_->shrinks(), 3);
  SumOnAll(survivors);
  for (const int r : survivors) {
    const Rank& rank = *ranks_[static_cast<size_t>(r)];
    EXPECT_TRUE(rank.status.ok()) << rank.status.error().message;
    EXPECT_FALSE(rank.exited);
  }
  // With a new (or returning) member all start from scratch.
  Connect(First(4), 3);
  EXPECT_EQ(library_->shrinks(), 3);
  SumOnAll(First(4));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

TEST_F(NcclDomainTest, OneMemberWithoutParentMakesAllStartFromScratch) {
  Start(3, {.can_revoke = false});
  Connect(First(3), 1);
  SumOnAll(First(3));
  ranks_[1]->cancel = true;  // without revoke it is freed; the other rank keeps its parent
  Connect({0, 1}, 2);
  EXPECT_EQ(library_->shrinks(), 0);
  SumOnAll({0, 1});
  EXPECT_TRUE(ranks_[0]->status.ok());
}

// A shrinking communicator has no handle before it is formed, and the library may never finish.
TEST_F(NcclDomainTest, ACancelledShrinkLeaksNothing) {
  Start(3, {.shrink_stalls = true});
  Connect(First(3), 1);
  std::thread coordinator([this] {
    while (library_->shrinks() < 2) std::this_thread::yield();
    for (const auto& rank : ranks_) rank->cancel = true;
  });
  Connect(First(2), 2);
  coordinator.join();
  for (const int r : First(2)) {
    EXPECT_EQ(ranks_[static_cast<size_t>(r)]->status.error().code, Code::kCancelled);
    EXPECT_FALSE(ranks_[static_cast<size_t>(r)]->exited);
  }
  EXPECT_EQ(library_->alive(), 1) << "rank 2 keeps its communicator";
  Connect(First(3), 3);
  SumOnAll(First(3));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

TEST_F(NcclDomainTest, AShrinkThatNeverEndsMakesAllStartFromScratch) {
  Start(3, {.shrink_stalls = true}, {.forming = milliseconds(50)});
  Connect(First(3), 1);
  Connect(First(2), 2);
  SumOnAll(First(2));
  for (const int r : First(2)) {
    EXPECT_TRUE(ranks_[static_cast<size_t>(r)]->status.ok());
    EXPECT_FALSE(ranks_[static_cast<size_t>(r)]->exited);
  }
  EXPECT_EQ(library_->alive(), 3);
}

TEST_F(NcclDomainTest, NewMembersGrowTheCommunicator) {
  Start(5, {.slow_results = 2});
  Connect(First(2), 1);
  SumOnAll(First(2));
  Connect(First(4), 2);
  EXPECT_EQ(library_->grows(), 4);
  EXPECT_EQ(library_->alive(), 4) << "the parent is freed";
  SumOnAll(First(4));
  Connect({0, 2, 3}, 3);
  EXPECT_EQ(library_->shrinks(), 3);
  SumOnAll({0, 2, 3});
  Connect({0, 2, 3, 4}, 4);
  EXPECT_EQ(library_->grows(), 8) << "a second time, with another id";
  SumOnAll({0, 2, 3, 4});
  for (const int r : {0, 2, 3, 4}) {
    EXPECT_TRUE(ranks_[static_cast<size_t>(r)]->status.ok());
    EXPECT_FALSE(ranks_[static_cast<size_t>(r)]->exited);
  }
}

TEST_F(NcclDomainTest, ARevokedCommunicatorDoesNotGrow) {
  Start(3);
  Connect(First(2), 1);
  ranks_[1]->cancel = true;  // the other rank's communicator can still grow
  Connect(First(3), 2);
  EXPECT_EQ(library_->grows(), 0);
  SumOnAll(First(3));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

TEST_F(NcclDomainTest, AnOlderLibraryDoesNotGrow) {
  Start(3, {.can_grow = false, .version = 22809});
  Connect(First(2), 1);
  Connect(First(3), 2);
  SumOnAll(First(3));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

// Whatever makes growing fail: all start from scratch at once, and do not try to grow again.
TEST_F(NcclDomainTest, AFailedGrowMakesAllStartFromScratch) {
  const FakeLibrary::Faults all[] = {{.grow_id_fails = true},
                                     {.failing_growth = 0},
                                     {.failing_growth = 1},
                                     {.failing_growth = 2},
                                     {.growth_stalls = true}};
  for (const FakeLibrary::Faults& faults : all) {
    Start(4, faults, {.forming = milliseconds(50)});
    Connect(First(2), 1);
    Connect(First(3), 2);
    SumOnAll(First(3));
    Connect(First(4), 3);
    SumOnAll(First(4));
    EXPECT_EQ(library_->grow_ids(), 1);
    for (const auto& rank : ranks_) {
      EXPECT_TRUE(rank->status.ok()) << rank->status.error().message;
      EXPECT_FALSE(rank->exited) << rank->exit_reason;
    }
    EXPECT_EQ(library_->alive(), 4);
    ranks_.clear();
    EXPECT_EQ(library_->alive(), 0);
    library_.reset();
  }
}

TEST_F(NcclDomainTest, AHangingIdRequestEndsTheProcess) {
  Start(3, {.grow_id_hangs = true}, {.forming = milliseconds(50), .freeing = milliseconds(50)});
  Connect(First(2), 1);
  std::thread exiting([this] {
    while (!ranks_[0]->exited) std::this_thread::yield();
    library_->Release();
  });
  Connect(First(3), 2);
  exiting.join();
  EXPECT_NE(ranks_[0]->exit_reason.find("did not free"), std::string::npos) << ranks_[0]->exit_reason;
}

TEST_F(NcclDomainTest, ACancelledGrow) {
  Start(3);
  Connect(First(2), 1);
  Connect(First(3), 2, true);
  for (const auto& rank : ranks_) EXPECT_EQ(rank->status.error().code, Code::kCancelled);
  Connect(First(3), 3);
  SumOnAll(First(3));
  for (const auto& rank : ranks_) {
    EXPECT_TRUE(rank->status.ok());
    EXPECT_FALSE(rank->exited);
  }
}

TEST_F(NcclDomainTest, ALibraryThatHangsEndsTheProcess) {
  for (const bool revoking : {true, false}) {
    Start(2, {.abort_hangs = !revoking, .revoke_hangs = revoking, .can_shrink = revoking},
          {.stopping = milliseconds(50)});
    Connect(First(2), 1);
    SumOnAll(First(2));
    ranks_[0]->cancel = true;
    ranks_[0]->status = ranks_[0]->communicator->Wait(ranks_[0]->stream);
    EXPECT_EQ(ranks_[0]->status.error().code, Code::kCancelled);
    while (!ranks_[0]->exited) std::this_thread::yield();
    EXPECT_NE(ranks_[0]->exit_reason.find("did not stop its work"), std::string::npos)
        << ranks_[0]->exit_reason;
    library_->Release();
    ranks_.clear();
    library_.reset();
  }
}

TEST_F(NcclDomainTest, ARevokeThatNeverStopsTheWorkEndsTheProcess) {
  Start(2, {.never_quiet = true}, {.stopping = milliseconds(50)});
  Connect(First(2), 1);
  ranks_[0]->cancel = true;
  while (!ranks_[0]->exited) std::this_thread::yield();
  expect_leaks_ = true;  // as in a process that exits
}

TEST_F(NcclDomainTest, AFailedRevokeBecomesAnAbort) {
  Start(2, {.revoke_fails = true});
  Connect(First(2), 1);
  for (const auto& rank : ranks_) rank->cancel = true;
  Connect(First(2), 2);
  SumOnAll(First(2));
  for (const auto& rank : ranks_) {
    EXPECT_TRUE(rank->status.ok());
    EXPECT_FALSE(rank->exited);
  }
}

TEST_F(NcclDomainTest, ALostDeviceIsGone) {
  Start(2);
  Connect(First(2), 1);
  library_->BreakDevice(ranks_[0]->stream);
  const Status status = ranks_[0]->communicator->Wait(ranks_[0]->stream);
  EXPECT_EQ(status.error().code, Code::kGone);
  EXPECT_NE(status.error().message.find("the device is lost"), std::string::npos);
}

TEST_F(NcclDomainTest, AnOperationWithoutAPeerMeetsItsDeadline) {
  Start(2, {}, {.operation = milliseconds(30)});
  Connect(First(2), 1);
  SumOnAll({0});
  EXPECT_EQ(ranks_[0]->status.error().code, Code::kDeadlineExceeded);
}

TEST_F(NcclDomainTest, AMissingPeerMeetsTheDeadlineOfForming) {
  Start(2, {}, {.forming = milliseconds(30)});
  const auto meeting = std::make_shared<Meeting>(2, 1);
  std::thread peer([&] {
    HostForTest host(meeting, 1);
    MemberInfo member{};
    member.gpu = DigestOf("another");
    member.version = 22902;
    std::vector<MemberInfo> members(2, member);
    (void)host.AllGather(std::as_writable_bytes(std::span(members)));
    std::vector<std::byte> message(132);
    (void)host.Broadcast(message, 0);
  });
  HostForTest host(meeting, 0);
  const auto made = ranks_[0]->domain->Connect(&host, &ranks_[0]->cancel);
  peer.join();
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(made.error().message.find("NetworkPolicy"), std::string::npos);
}

// The host's communicator may fail during Connect; that must not block the next Connect.
TEST_F(NcclDomainTest, AFailedHostCommunicatorDoesNotBlockTheNextConnect) {
  class Broken final : public HostForTest {
   public:
    using HostForTest::HostForTest;
    Status Broadcast(std::span<std::byte>, int) override { return Error{Code::kCancelled, "cancelled"}; }
  };
  Start(2);
  const auto meeting = std::make_shared<Meeting>(2, 1);
  OnAll(First(2), [&](Rank& rank, int r) {
    Broken host(meeting, r);
    EXPECT_EQ(rank.domain->Connect(&host, &rank.cancel).error().code, Code::kCancelled);
  });
  Connect(First(2), 2);
  SumOnAll(First(2));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

TEST_F(NcclDomainTest, AGenerationCancelledBeforeItForms) {
  Start(2);
  Connect(First(2), 7, true);
  for (const auto& rank : ranks_) EXPECT_EQ(rank->status.error().code, Code::kCancelled);
  Connect(First(2), 8);
  SumOnAll(First(2));
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->status.ok());
}

// Whichever call fails, at whichever rank: an error or a result, never a hang, and a later generation works.
TEST_F(NcclDomainTest, AnyCallMayFail) {
  int reached = 0;
  for (int call = 0; call <= reached; ++call) {
    for (const int failure : {static_cast<int>(kSystemError), static_cast<int>(kInternalError)}) {
      SCOPED_TRACE("call " + std::to_string(call) + " fails with " + std::to_string(failure));
      Start(3, {.slow_results = 1, .failing_call = call, .failure = failure},
            {.forming = milliseconds(60), .operation = milliseconds(60)});
      for (const auto& rank : ranks_) rank->domain->Register(AllocateFromNccl(64), true);
      bool all_ok = false;
      bool any_exited = false;
      const auto done = [&] { return any_exited || (all_ok && library_->calls() > call); };
      for (uint64_t generation = 1; generation <= 6 && !done(); ++generation) {
        Connect(First(3), generation);
        SumOnTheFormed();
        all_ok = true;
        for (const auto& rank : ranks_) {
          all_ok = all_ok && rank->status.ok();
          any_exited = any_exited || rank->exited;
          rank->cancel = true;
        }
      }
      EXPECT_TRUE(all_ok || any_exited);
      reached = std::max(reached, std::min(library_->calls(), 24));
      expect_leaks_ = true;
      ranks_.clear();
      library_.reset();
    }
  }
  EXPECT_GE(reached, 15);
}

TEST_F(NcclDomainTest, AnyCallMayFailWhileItGrows) {
  for (int call = 0; call <= 24; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    Start(3, {.slow_results = 1, .failing_call = call},
          {.forming = milliseconds(60), .operation = milliseconds(60)});
    Connect(First(2), 1);
    bool all_ok = false;
    bool any_exited = false;
    for (uint64_t generation = 2; generation <= 6 && !all_ok && !any_exited; ++generation) {
      Connect(First(3), generation);
      SumOnTheFormed();
      all_ok = true;
      for (const auto& rank : ranks_) {
        all_ok = all_ok && rank->status.ok();
        any_exited = any_exited || rank->exited;
      }
    }
    EXPECT_TRUE(all_ok || any_exited);
    expect_leaks_ = true;
    ranks_.clear();
    library_.reset();
  }
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
