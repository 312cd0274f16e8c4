// SPDX-License-Identifier: Apache-2.0

// RMA collectives between real processes over real UCX, on memory of the host.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/processes.h"
#include "tests/unit/fabric/rma_member.h"
#include "worker/fabric/rma/group.h"
#include "worker/fabric/rma/peer_info.h"
#include "worker/fabric/ucx/context.h"

namespace ringmaster::fabric::testing {
namespace {

FabricOptions OverSharedMemory() {
  FabricOptions options;
  options.transport = "shm";
  return options;
}

class RmaWorld : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(RmaWorld, AllCollectives) {
  const auto [world, lanes] = GetParam();
  if (std::string_view(lanes) == "tcp" && ucx::CanDisableEmulation())
    GTEST_SKIP() << "RMA over TCP is emulated";
  ASSERT_EQ(::setenv("UCX_TLS", lanes, 1), 0);
  RunAll(world, OverSharedMemory(), 0, [world = world](Member& member) -> Status {
    std::vector<std::byte> memory(static_cast<size_t>(3 * world) * 100003 * 4);
    const std::atomic<bool> cancel = false;
    // Scratch memory for pieces of at most 20 kB: large sums take many pieces.
    RmaMember rma_member(memory, size_t{2} * 20480 * static_cast<size_t>(world), seconds(30));
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto communicator, rma_member.Connect(std::move(host), &cancel));
    uint64_t seed = 1;
    for (const size_t size : {0, 1, 7, 997, 5003, 100003})
      RM_TRY(CheckAll(*communicator, size, seed++, memory));
    return CheckAllReduce(*communicator, (1 << 18) + 3, seed, memory);
  });
  ASSERT_EQ(::unsetenv("UCX_TLS"), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, RmaWorld, ::testing::Combine(::testing::Values(1, 2, 3, 4, 7), ::testing::Values("all", "tcp")),
    [](const auto& instance) {
      return fmt::format("{}_{}", std::get<0>(instance.param), std::get<1>(instance.param));
    });

// Whichever rank sums an element, it does so in rank order: float sums have the bits of the plain loop.
TEST(Rma, FloatsAreSummedInRankOrder) {
  constexpr int kWorld = 3;
  constexpr size_t kElements = 50001;
  const auto at = [](int rank, size_t i) {
    return (1.0f + static_cast<float>(i % 97)) * (rank == 1 ? -1e8f : 1.0f / static_cast<float>(3 + rank));
  };
  RunAll(kWorld, OverSharedMemory(), 0, [&](Member& member) -> Status {
    std::vector<float> data(kElements);
    const std::atomic<bool> cancel = false;
    RmaMember rma_member(std::as_writable_bytes(std::span(data)), 64 << 10, seconds(30));
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto communicator, rma_member.Connect(std::move(host), &cancel));
    for (const size_t elements : {kElements, size_t{300}}) {
      for (size_t i = 0; i < elements; ++i) data[i] = at(member.id(), i);
      RM_TRY(communicator->AllReduce(std::span(data).first(elements), ReduceOp::kSum));
      for (size_t i = 0; i < elements; ++i) {
        const float sum = (at(0, i) + at(1, i)) + at(2, i);
        if (data[i] != sum) return Error{Code::kCorrupt, fmt::format("{}: {} is not {}", i, data[i], sum)};
      }
    }
    return Ok();
  });
}

TEST(Rma, MismatchedCallsAreReported) {
  RunAll(2, OverSharedMemory(), 0, [](Member& member) -> Status {
    std::vector<int32_t> data(1000);
    const std::atomic<bool> cancel = false;
    RmaMember rma_member(std::as_writable_bytes(std::span(data)), 64 << 10, seconds(30));
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto communicator, rma_member.Connect(std::move(host), &cancel));
    const Status status =
        communicator->AllReduce(std::span(data).first(member.id() == 0 ? 1000 : 999), ReduceOp::kSum);
    if (status.ok()) return Error{Code::kInternal, "it was accepted"};
    return Ok();
  });
}

TEST(Rma, UnregisteredMemoryIsRejected) {
  RunAll(2, OverSharedMemory(), 0, [](Member& member) -> Status {
    std::vector<int32_t> data(1000);
    std::vector<int32_t> other(1000);
    const std::atomic<bool> cancel = false;
    RmaMember rma_member(std::as_writable_bytes(std::span(data)), 64 << 10, seconds(30));
    RM_ASSIGN(auto host, member.ConnectAll(1));
    auto communicator = rma_member.Connect(std::move(host), &cancel);
    if (!communicator.ok() && member.id() == 1) return Ok();  // the other member failed first
    if (!communicator.ok()) return communicator.error();
    const Status status = (*communicator)->AllReduce(std::span(other), ReduceOp::kSum);
    if (status.ok()) return Error{Code::kInternal, "it was accepted"};
    if (member.id() == 0 && status.error().code != Code::kInternal) return status;
    return Ok();
  });
}

// GPU memory with a UCX that does not support CUDA: no member gets a communicator, and all agree on that.
TEST(Rma, WithoutCudaInUcxThereIsNoGroup) {
  RunAll(2, OverSharedMemory(), 0, [](Member& member) -> Status {
    const auto domain =
        rma::Domain::Create({.cuda = member.id() == 1, .host_id = "test", .timeout = seconds(30)});
    if (domain->supported() != (member.id() == 0)) return Error{Code::kInternal, "this UCX supports CUDA"};
    const std::atomic<bool> cancel = false;
    DeferredWork work;
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto made, domain->Connect(host.get(), &cancel, &work, {}));
    if (made != nullptr || !domain->transport().empty())
      return Error{Code::kInternal, "a communicator was created"};
    return Ok();
  });
}

// One member has no scratch memory, or another amount: no member gets a communicator, and all agree on that.
TEST(Rma, WithoutTheSameScratchThereIsNoGroup) {
  for (const bool refuses : {false, true}) {
    RunAll(2, OverSharedMemory(), 0, [refuses](Member& member) -> Status {
      const bool other = member.id() == 1;
      std::vector<std::byte> scratch(other && !refuses ? 32 << 10 : 64 << 10);
      const auto domain = rma::Domain::Create({.cuda = false, .host_id = "test", .timeout = seconds(30)});
      domain->Register(scratch);
      if (other && refuses) domain->Disable("no memory");
      const std::atomic<bool> cancel = false;
      DeferredWork work;
      RM_ASSIGN(auto host, member.ConnectAll(1));
      RM_ASSIGN(auto made, domain->Connect(host.get(), &cancel, &work, scratch));
      if (made != nullptr || !domain->transport().empty())
        return Error{Code::kInternal, "a communicator was created"};
      return Ok();
    });
  }
}

// Over TCP a get needs the peer's help: if UCX can disable that emulation, no member gets a communicator.
TEST(Rma, EmulatedGetsAreNotUsed) {
  if (!ucx::CanDisableEmulation())
    GTEST_SKIP() << "UCX " << ucx::LibraryVersion() << " cannot disable emulation";
  ASSERT_EQ(::setenv("UCX_TLS", "tcp", 1), 0);
  RunAll(3, OverSharedMemory(), 0, [](Member& member) -> Status {
    std::vector<std::byte> scratch(64 << 10);
    const auto domain = rma::Domain::Create({.cuda = false, .host_id = "test", .timeout = seconds(30)});
    domain->Register(scratch);
    const std::atomic<bool> cancel = false;
    DeferredWork work;
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto made, domain->Connect(host.get(), &cancel, &work, scratch));
    if (made != nullptr || !domain->transport().empty())
      return Error{Code::kInternal, "a communicator was created"};
    return Ok();
  });
  ASSERT_EQ(::unsetenv("UCX_TLS"), 0);
}

// A connection fails during gets, and the group is destroyed at once: UCX must get the time to tear down such
// a connection, since newer versions end the process otherwise. The gets themselves fail when the peer is
// dead, and succeed when it has only left.
void GetFromAPeerThatIsGone(bool dead) {
  constexpr size_t kBytes = 3 << 20;
  Processes processes(2, [](Member& member) -> Status {
    RM_TRY(member.Create(OverSharedMemory()));
    RM_TRY(member.Exchange());
    std::vector<std::byte> data(kBytes);
    rma::Memory memory;
    RM_ASSIGN(memory.context,
              ucx::Context::Create(UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP, true));
    RM_ASSIGN(ucx::RegisteredMemory mapped, memory.context->Register(data, memory.type));
    memory.regions.push_back(std::move(mapped));
    RM_ASSIGN(auto host, member.ConnectAll(1));
    RM_ASSIGN(auto group,
              rma::Group::Create(
                  &memory,
                  {.rank = host->rank(), .world = host->world(), .generation = 1, .timeout = seconds(30)}));
    rma::PeerInfo own;
    own.worker = group->address();
    own.regions = {{reinterpret_cast<uint64_t>(data.data()), kBytes, memory.regions.front().key()}};
    RM_ASSIGN(auto infos, rma::ExchangePeerInfo(host.get(), own));
    RM_TRY(group->Connect(std::move(infos)));
    RM_TRY(group->Expose(data, {}));
    if (member.id() == 0) {
      RM_TRY(group->Get(1, 0, data));
      RM_TRY(group->WaitForGets());
    }
    RM_TRY(group->Expose(data, {}));
    if (member.id() == 1) group.reset();
    member.Send("ready");
    member.Receive();
    if (member.id() == 1) return Ok();
    Status status;  // of a get if UCX has noticed by now, else of WaitForGets
    for (int i = 0; i < 3 && status.ok(); ++i) status = group->Get(1, 0, data);
    if (status.ok()) status = group->WaitForGets();
    group.reset();
    if (status.ok() || status.error().code != Code::kUnavailable)
      return Error{Code::kInternal, "read from a peer that is gone"};
    return Ok();
  });
  processes.Exchange();
  for (const int id : {0, 1}) ASSERT_EQ(processes.Receive(id), "ready");
  if (dead) {
    processes.Signal(1, SIGKILL);
    ASSERT_EQ(processes.Wait(1), "killed");
  }
  processes.Send(0, "it is gone");
  EXPECT_EQ(processes.Wait(0), "ok");
  if (dead) return;
  processes.Send(1, "leave");
  EXPECT_EQ(processes.Wait(1), "ok");
}

TEST(Rma, AGroupIsDestroyedDuringGetsFromADeadPeer) { GetFromAPeerThatIsGone(true); }
TEST(Rma, AGroupIsDestroyedDuringGetsFromAPeerThatLeft) { GetFromAPeerThatIsGone(false); }

TEST(PeerInfo, EncodesAndDecodes) {
  using namespace std::string_literals;
  const rma::PeerInfo info{.unsupported_reason = "no \xff GPU",
                           .host_id = "host",
                           .worker = "\0\x80raw"s,
                           .regions = {{1, 2, "key\0"s}, {uint64_t{1} << 63, 4, ""}},
                           .scratch_bytes = 4096};
  const auto decoded = rma::Decode(rma::Encode(info));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, info);
  EXPECT_EQ(rma::Decode("not a peer info").error().code, Code::kCorrupt);
  EXPECT_EQ(rma::Decode("").error().code, Code::kCorrupt);
}

// Members with incompatible builds, or with different scratch memory, do without RMA; none of them fails.
TEST(PeerInfo, IncompatibleMembers) {
  rma::PeerInfo supported;
  supported.scratch_bytes = 4096;
  rma::PeerInfo unable;  // without scratch memory
  unable.unsupported_reason = "no GPU";
  rma::PeerInfo smaller = supported;
  smaller.scratch_bytes = 2048;
  rma::PeerInfo newer = supported;
  newer.protocol = rma::kProtocol + 1;
  const auto decoded = rma::Decode(rma::Encode(newer));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(rma::WhyIncompatible({supported, supported}), "");
  EXPECT_EQ(rma::WhyIncompatible({supported, unable, smaller}), "rank 1: no GPU");
  EXPECT_EQ(rma::WhyIncompatible({unable, supported}), "rank 0: no GPU");
  EXPECT_EQ(rma::WhyIncompatible({supported, supported, smaller}),
            "rank 2 has 2048 bytes of scratch memory, rank 0 has 4096");
  EXPECT_EQ(rma::WhyIncompatible({supported, *decoded}), "rank 1 runs another build: protocol 3, not 2");
}

TEST(PeerInfo, TransportsOfGpuMemory) {
  EXPECT_EQ(rma::GpuTransports(true, "cuda_ipc+tcp"), "cuda_ipc");
  EXPECT_EQ(rma::GpuTransports(true, "cuda_ipc+rc_mlx5"), "cuda_ipc");
  EXPECT_EQ(rma::GpuTransports(true, "rc_mlx5+tcp"), "rc_mlx5");
  EXPECT_EQ(rma::GpuTransports(true, "cma+tcp"), "");
  EXPECT_EQ(rma::GpuTransports(false, "cuda_ipc+tcp"), "");
  EXPECT_EQ(rma::GpuTransports(false, "dc_mlx5+rc_verbs+tcp"), "dc_mlx5+rc_verbs");
  EXPECT_EQ(rma::GpuTransports(false, "tcp"), "");
  EXPECT_EQ(rma::GpuTransports(false, ""), "");
}

}  // namespace
}  // namespace ringmaster::fabric::testing
