// SPDX-License-Identifier: Apache-2.0

// Ranks that call different operations: every one of them gets an error, none gets a result, and the error
// names both calls.
#include "worker/fabric/operation.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/fabric/processes.h"
#include "tests/unit/fabric/rma_member.h"

namespace ringmaster::fabric::testing {
namespace {

TEST(Operation, IsDescribed) {
  const Combiner max{Element::kFloat, ReduceOp::kMax};
  EXPECT_EQ(Describe({7, MakeCall(OperationKind::kAllReduce, &max), 1024}),
            "all-reduce of 1024 bytes (float, max), number 7");
  EXPECT_EQ(Describe({0, MakeCall(OperationKind::kBroadcast, nullptr, 4095), 8}),
            "broadcast of 8 bytes with root 4095, number 0");
}

using Call = std::function<Status(Communicator&, std::span<float>)>;

struct Difference {
  std::string name;
  Call calls[2];         // of rank 0 and of rank 1
  std::string texts[2];  // that the error contains
};

Call AllReduce(size_t elements, ReduceOp op) {
  return [=](Communicator& c, std::span<float> data) { return c.AllReduce(data.first(elements), op); };
}

Call BroadcastAndBarrier(int root) {
  return [=](Communicator& c, std::span<float> data) -> Status {
    RM_TRY(c.Broadcast(std::as_writable_bytes(data.first(256)), root));
    return c.Barrier();
  };
}

const std::vector<Difference>& Differences() {
  static const std::vector<Difference> all = {
      {"sizes of two paths",
       {AllReduce(256, ReduceOp::kSum), AllReduce(25600, ReduceOp::kSum)},
       {"all-reduce of 1024 bytes", "all-reduce of 102400 bytes"}},
      {"sizes of one path",
       {AllReduce(256, ReduceOp::kSum), AllReduce(255, ReduceOp::kSum)},
       {"all-reduce of 1024 bytes", "all-reduce of 1020 bytes"}},
      {"no data and data",
       {[](Communicator& c, std::span<float> data) -> Status {
          RM_TRY(c.AllReduce(data.first(0), ReduceOp::kSum));
          return c.AllReduce(data.first(256), ReduceOp::kSum);
        },
        AllReduce(256, ReduceOp::kSum)},
       {"number 3", "number 2"}},
      {"reductions",
       {AllReduce(256, ReduceOp::kSum), AllReduce(256, ReduceOp::kMax)},
       {"(float, sum)", "(float, max)"}},
      {"element types",
       {AllReduce(256, ReduceOp::kSum),
        [](Communicator& c, std::span<float> data) {
          return c.AllReduce(std::span(reinterpret_cast<int32_t*>(data.data()), 256), ReduceOp::kSum);
        }},
       {"(float, sum)", "(int32, sum)"}},
      {"kinds",
       {AllReduce(256, ReduceOp::kSum), [](Communicator& c, std::span<float>) { return c.Barrier(); }},
       {"all-reduce of 1024 bytes", "barrier of 0 bytes"}},
      // Over messages a root waits for no rank, so each root learns of the other in the next operation.
      {"roots",
       {BroadcastAndBarrier(0), BroadcastAndBarrier(1)},
       {"broadcast of 1024 bytes with root", "here"}},
  };
  return all;
}

class DifferentOperations : public ::testing::TestWithParam<std::string> {};

TEST_P(DifferentOperations, AreAnErrorThatNamesBoth) {
  const bool by_rma = GetParam() == "rma";
  FabricOptions options;
  options.transport = by_rma ? "shm" : GetParam();
  options.timeout = seconds(10);
  Processes processes(2, [&](Member& member) -> Status {
    RM_TRY(member.Create(options));
    RM_TRY(member.Exchange());
    std::vector<float> data(1 << 16, 1.0f);
    std::unique_ptr<RmaMember> rma_member;
    if (by_rma)
      rma_member =
          std::make_unique<RmaMember>(std::as_writable_bytes(std::span(data)), 128 << 10, options.timeout);
    uint64_t generation = 0;
    for (const Difference& difference : Differences()) {
      RM_ASSIGN(auto communicator, member.ConnectAll(++generation));
      if (by_rma) {
        RM_ASSIGN(communicator, rma_member->Connect(std::move(communicator), nullptr));
      }
      // An earlier operation must not pass for this one.
      for (int i = 0; i < 2; ++i) RM_TRY(AllReduce(256, ReduceOp::kSum)(*communicator, data));
      const Status status = difference.calls[member.id()](*communicator, data);
      communicator.reset();
      member.Send(status.ok() ? "ok"
                              : std::string(CodeName(status.error().code)) + ": " + status.error().message);
      if (member.Receive() != "next") break;
    }
    return Ok();
  });
  processes.Exchange();
  for (const Difference& difference : Differences()) {
    int named = 0;
    for (int id = 0; id < 2; ++id) {
      const std::string answer = processes.Receive(id);
      EXPECT_NE(answer, "ok") << difference.name << ": rank " << id << " got a result";
      if (answer.find(difference.texts[0]) != std::string::npos &&
          answer.find(difference.texts[1]) != std::string::npos)
        ++named;
      else
        EXPECT_EQ(answer.rfind(CodeName(Code::kCancelled), 0), 0u) << difference.name << ": " << answer;
    }
    EXPECT_GE(named, 1) << difference.name << ": no error names both operations";
    for (int id = 0; id < 2; ++id) processes.Send(id, "next");
  }
  for (int id = 0; id < 2; ++id) EXPECT_EQ(processes.Wait(id), "ok");
}

INSTANTIATE_TEST_SUITE_P(Transports, DifferentOperations, ::testing::Values("shm", "ucx", "rma"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace ringmaster::fabric::testing
