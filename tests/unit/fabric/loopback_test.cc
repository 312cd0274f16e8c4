// SPDX-License-Identifier: Apache-2.0

// The collectives over messages, on the deterministic network: correct results under every delay, and an
// error for every survivor at whichever message a rank dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tests/sanitized.h"
#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/worlds.h"
#include "worker/fabric/algorithms.h"
#include "worker/fabric/loopback/domain.h"
#include "worker/fabric/message_communicator.h"

namespace ringmaster::fabric::testing {
namespace {

using loopback::Domain;
using loopback::NetworkOptions;

// Runs `body` for each rank in a separate thread and returns the results.
std::vector<Status> RunRanks(Domain& domain, int world,
                             const std::function<Status(std::unique_ptr<Transport>)>& body) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < world; ++rank) transports.push_back(domain.Connect(rank));
  std::vector<Status> statuses(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] { statuses[rank] = body(std::move(transports[rank])); });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

Status Everything(Communicator& communicator, size_t elements, uint64_t seed) {
  std::vector<std::byte> memory(2 * communicator.world() * elements * 4);
  return CheckAll(communicator, elements, seed, memory);
}

class LoopbackWorld : public ::testing::TestWithParam<int> {};

TEST_P(LoopbackWorld, AllCollectivesUnderRandomDelays) {
  const int world = GetParam();
  for (const uint64_t max_delay : {0, 3, 1000}) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{13}, size_t{997}, size_t{10007}}) {
      NetworkOptions options;
      options.world = world;
      options.seed = KeyedRandom(max_delay, elements, world);
      options.max_delay = max_delay;
      options.segment_bytes = elements % 2 == 0 ? 512 : 4096;
      Domain domain(options);
      const auto statuses = RunRanks(domain, world, [&](std::unique_ptr<Transport> transport) {
        const auto communicator = NewMessageCommunicator(std::move(transport));
        return Everything(*communicator, elements, options.seed);
      });
      for (int rank = 0; rank < world; ++rank)
        ASSERT_TRUE(statuses[rank].ok()) << "delay " << max_delay << ": " << statuses[rank].error().message;
    }
  }
}

TEST_P(LoopbackWorld, LargeAllReduce) {
  const int world = GetParam();
  NetworkOptions options;
  options.world = world;
  options.segment_bytes = 256 << 10;
  Domain domain(options);
  const size_t elements = (kSanitized ? 1 << 19 : 1 << 20) + 1;  // too large for the direct algorithm
  const auto statuses = RunRanks(domain, world, [&](std::unique_ptr<Transport> transport) {
    const auto communicator = NewMessageCommunicator(std::move(transport));
    std::vector<std::byte> memory(elements * 4);
    return CheckAllReduce(*communicator, elements, 5, memory);
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.error().message;
}

INSTANTIATE_TEST_SUITE_P(Worlds, LoopbackWorld, ::testing::ValuesIn(Worlds()));

using Algorithm = Status (*)(Transport&, const Operation&, std::span<std::byte>, const Combiner&);

// A communicator chooses the algorithm by world and size; here each algorithm runs in every world.
TEST(Loopback, EveryAllReduceEqualsTheReference) {
  const Combiner sum{Element::kInt32, ReduceOp::kSum};
  for (const int world : Worlds()) {
    if (world == 1) continue;
    for (const size_t elements : {size_t{1}, size_t{13}, size_t{997}, size_t{10007}, size_t{100003}}) {
      const auto input = [&](int rank, size_t i) { return static_cast<int32_t>(KeyedRandom(11, rank, i)); };
      std::vector<int32_t> want;
      for (const Algorithm algorithm : {&ReferenceAllReduce, &RingAllReduce, &DirectAllReduce}) {
        NetworkOptions options;
        options.world = world;
        options.seed = elements;
        options.max_delay = 20;
        Domain domain(options);
        std::vector<std::vector<int32_t>> data(world);
        const auto statuses = RunRanks(domain, world, [&](std::unique_ptr<Transport> transport) {
          std::vector<int32_t>& own = data[transport->rank()];
          for (size_t i = 0; i < elements; ++i) own.push_back(input(transport->rank(), i));
          return algorithm(*transport, {}, std::as_writable_bytes(std::span(own)), sum);
        });
        for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.error().message;
        if (want.empty()) want = data[0];
        for (int rank = 0; rank < world; ++rank)
          ASSERT_EQ(data[rank], want) << "world " << world << " elements " << elements << " rank " << rank;
      }
    }
  }
}

// Floats whose sum depends on the order: every algorithm must give all ranks the same bits, under every
// delay, and values close to the reference.
TEST(Loopback, FloatBitsDoNotDependOnTiming) {
  const Combiner sum{Element::kFloat, ReduceOp::kSum};
  const size_t elements = 500;
  for (const int world : Worlds()) {
    if (world == 1) continue;
    std::vector<float> reference;
    for (const Algorithm algorithm :
         {&ReferenceAllReduce, &RingAllReduce, &DirectAllReduce, &DoublingAllReduce}) {
      std::vector<float> first;
      for (uint64_t seed = 0; seed < 5; ++seed) {
        NetworkOptions options;
        options.world = world;
        options.seed = seed;
        options.max_delay = seed * 10;
        Domain domain(options);
        std::vector<std::vector<float>> data(world);
        const auto statuses = RunRanks(domain, world, [&](std::unique_ptr<Transport> transport) {
          std::vector<float>& own = data[transport->rank()];
          own.resize(elements);
          for (size_t i = 0; i < elements; ++i)
            own[i] = static_cast<float>(SplitMix64(KeyedRandom(7, transport->rank(), i)).Uniform() - 0.5);
          return algorithm(*transport, {}, std::as_writable_bytes(std::span(own)), sum);
        });
        for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.error().message;
        if (first.empty()) first = data[0];
        for (int rank = 0; rank < world; ++rank)
          ASSERT_TRUE(std::equal(first.begin(), first.end(), data[rank].begin()))
              << "world " << world << " seed " << seed;
      }
      if (reference.empty()) reference = first;
      for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(first[i], reference[i], 1e-5);
    }
  }
}

// The operations of a rank in the death tests: several collectives, in segments.
Status Program(Communicator& communicator) {
  std::vector<int32_t> data(600);
  RM_TRY(communicator.AllReduce(std::span(data).first(10), ReduceOp::kSum));
  RM_TRY(Everything(communicator, 150, 3));
  return communicator.AllReduce(std::span<int32_t>(data), ReduceOp::kMax);
}

class LoopbackDeath : public ::testing::TestWithParam<bool> {};

// Instrumented code of a larger world sees a death at every fifth message.
uint64_t StrideOf(int world) { return kSanitized && world > 3 ? 5 : 1; }

TEST_P(LoopbackDeath, AtEveryMessageIndexEverySurvivorGetsAnError) {
  const bool announced = GetParam();
  for (const int world : {2, 3, 5}) {
    NetworkOptions options;
    options.world = world;
    options.segment_bytes = 256;
    options.max_delay = 5;
    const auto program = [](std::unique_ptr<Transport> transport) -> Status {
      const auto communicator = NewMessageCommunicator(std::move(transport));
      RM_TRY(Program(*communicator));
      // No survivor may miss a death for good: the next barrier reports it at the latest.
      return communicator->Barrier();
    };
    std::vector<uint64_t> messages;
    {
      Domain domain(options);
      for (const Status& status : RunRanks(domain, world, program))
        ASSERT_TRUE(status.ok()) << status.error().message;
      for (int rank = 0; rank < world; ++rank) messages.push_back(domain.messages(rank));
    }
    for (int victim = 0; victim < world; ++victim) {
      // If only messages of the last barrier are missing, a survivor that has its messages may succeed.
      uint64_t in_last_barrier = 1;
      while ((1 << in_last_barrier) < world) ++in_last_barrier;
      for (uint64_t at = 0; at < messages[victim]; at += StrideOf(world)) {
        options.victim = victim;
        options.end_at = at;
        options.announced = announced;
        Domain domain(options);
        const auto statuses = RunRanks(domain, world, program);
        EXPECT_FALSE(statuses[victim].ok());
        for (int rank = 0; rank < world; ++rank) {
          if (rank == victim) continue;
          if (statuses[rank].ok()) {
            ASSERT_GE(at + in_last_barrier, messages[victim])
                << "rank " << rank << " missed the death of " << victim << " at " << at;
            continue;
          }
          const Code code = statuses[rank].error().code;
          ASSERT_TRUE(code == Code::kUnavailable || code == Code::kDeadlineExceeded)
              << "world " << world << " victim " << victim << " at " << at << ": "
              << statuses[rank].error().message;
        }
      }
    }
  }
}

// The same for each algorithm of large data, also in worlds in which a communicator prefers another.
TEST_P(LoopbackDeath, AtEveryMessageOfEveryAllReduce) {
  const Combiner sum{Element::kInt32, ReduceOp::kSum};
  for (const int world : {2, 4, 5}) {
    for (const Algorithm algorithm : {&RingAllReduce, &DirectAllReduce}) {
      NetworkOptions options;
      options.world = world;
      options.segment_bytes = 256;
      options.max_delay = 5;
      const auto program = [&](std::unique_ptr<Transport> transport) -> Status {
        std::vector<int32_t> data(700, 1);
        RM_TRY(algorithm(*transport, {}, std::as_writable_bytes(std::span(data)), sum));
        if (data.front() != world || data.back() != world) return Error{Code::kInternal, "wrong sum"};
        return Ok();
      };
      std::vector<uint64_t> messages;
      {
        Domain domain(options);
        for (const Status& status : RunRanks(domain, world, program))
          ASSERT_TRUE(status.ok()) << status.error().message;
        for (int rank = 0; rank < world; ++rank) messages.push_back(domain.messages(rank));
      }
      for (int victim = 0; victim < world; ++victim) {
        for (uint64_t at = 0; at < messages[victim]; at += StrideOf(world)) {
          options.victim = victim;
          options.end_at = at;
          options.announced = GetParam();
          Domain domain(options);
          const auto statuses = RunRanks(domain, world, program);
          EXPECT_FALSE(statuses[victim].ok());
          int failed = 0;
          for (int rank = 0; rank < world; ++rank) {
            if (statuses[rank].ok()) continue;  // it had received all data: its sum was checked
            ++failed;
            const Code code = statuses[rank].error().code;
            ASSERT_TRUE(code == Code::kUnavailable || code == Code::kDeadlineExceeded)
                << "world " << world << " victim " << victim << " at " << at << ": "
                << statuses[rank].error().message;
          }
          // Without the first message of the victim no rank has a sum.
          if (at == 0) {
            EXPECT_EQ(failed, world);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AnnouncedOrSilent, LoopbackDeath, ::testing::Bool());

TEST(Loopback, AbortEndsEveryRank) {
  NetworkOptions options;
  options.world = 3;
  Domain domain(options);
  const auto statuses = RunRanks(domain, 3, [&](std::unique_ptr<Transport> transport) -> Status {
    const int rank = transport->rank();
    const auto communicator = NewMessageCommunicator(std::move(transport));
    RM_TRY(communicator->Barrier());
    if (rank == 2) {
      domain.Abort();
      return Error{Code::kCancelled, "own"};
    }
    return communicator->Barrier();
  });
  for (const Status& status : statuses) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kCancelled);
  }
}

// Mismatched calls are a programming error, and reported.
TEST(Loopback, MismatchedCallsAreReported) {
  NetworkOptions options;
  options.world = 2;
  Domain domain(options);
  const auto statuses = RunRanks(domain, 2, [&](std::unique_ptr<Transport> transport) -> Status {
    const int rank = transport->rank();
    const auto communicator = NewMessageCommunicator(std::move(transport));
    std::vector<int32_t> data(rank == 0 ? 4 : 5);
    return communicator->AllReduce(std::span<int32_t>(data), ReduceOp::kSum);
  });
  EXPECT_TRUE(std::any_of(statuses.begin(), statuses.end(), [](const Status& status) {
    return !status.ok() && status.error().code == Code::kInternal;
  }));
}

}  // namespace
}  // namespace ringmaster::fabric::testing
