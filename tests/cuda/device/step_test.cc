// SPDX-License-Identifier: Apache-2.0

// A step on the emulated GPU: the host enqueues the whole step before it waits, and an update that was
// enqueued speculatively has no effect when the speculation was wrong.
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda/runtime/faults.h"
#include "tests/temp_folder.h"
#include "worker/compute/cuda/cuda_device.h"
#include "worker/trainer/step.h"
#include "worker/trainer/validate.h"

namespace ringmaster::trainer {
namespace {

using fabric::ReduceOp;

// The host communicator of a world of two ranks with equal data.
class Echo : public fabric::Communicator {
 public:
  int rank() const override { return 0; }
  int world() const override { return 2; }
  uint64_t generation() const override { return 1; }
  Status AllReduce(std::span<int32_t>, ReduceOp op) override {
    CHECK(op == ReduceOp::kMax, "buckets do not travel by the host");
    return Ok();
  }
  Status AllReduce(std::span<float>, ReduceOp) override { return Ok(); }
  Status ReduceScatter(std::span<int32_t>, ReduceOp) override { return Ok(); }
  Status ReduceScatter(std::span<float>, ReduceOp) override { return Ok(); }
  Status AllGather(std::span<std::byte>) override { return Ok(); }
  Status Broadcast(std::span<std::byte>, int) override { return Ok(); }
  Status Reduce(std::span<int32_t>, ReduceOp, int) override { return Ok(); }
  Status Reduce(std::span<float>, ReduceOp, int) override { return Ok(); }
  Status AllToAll(std::span<const std::byte>, std::span<std::byte>) override { return Ok(); }
  Status Barrier() override { return Ok(); }
  Status Send(std::span<const std::byte>, int) override { return Ok(); }
  Status Receive(std::span<std::byte>, int) override { return Ok(); }
};

// The device communicator: sums of two equal gradients, up to the operation at which the other rank fails.
class EchoOnDevice : public fabric::AsyncCommunicator {
 public:
  explicit EchoOnDevice(int operations) : left_(operations) {}
  int rank() const override { return host_.rank(); }
  int world() const override { return host_.world(); }
  uint64_t generation() const override { return 1; }
  Status AllReduce(std::span<int32_t> d, ReduceOp op) override { return host_.AllReduce(d, op); }
  Status AllReduce(std::span<float> d, ReduceOp op) override { return host_.AllReduce(d, op); }
  Status ReduceScatter(std::span<int32_t> d, ReduceOp op) override { return host_.ReduceScatter(d, op); }
  Status ReduceScatter(std::span<float> d, ReduceOp op) override { return host_.ReduceScatter(d, op); }
  Status AllGather(std::span<std::byte>) override { return Ok(); }
  Status Broadcast(std::span<std::byte>, int) override { return Ok(); }
  Status Reduce(std::span<int32_t>, ReduceOp, int) override { return Ok(); }
  Status Reduce(std::span<float>, ReduceOp, int) override { return Ok(); }
  Status AllToAll(std::span<const std::byte>, std::span<std::byte>) override { return Ok(); }
  Status Barrier() override { return Ok(); }
  Status Send(std::span<const std::byte>, int) override { return Ok(); }
  Status Receive(std::span<std::byte>, int) override { return Ok(); }

  Status StartAllReduce(std::span<int32_t> data, ReduceOp) override {
    ++started;
    if (left_-- > 0)
      for (int32_t& each : data) each *= 2;
    return Ok();
  }
  Status StartAllReduce(std::span<float>, ReduceOp) override { return Ok(); }
  Status Finish() override {
    if (left_ >= 0) return Ok();
    return Error{Code::kUnavailable, "a peer is gone"};
  }
  int started = 0;

 private:
  Echo host_;
  int left_;
};

class StepOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "many bits make one ring ";
    config_.model = {.kind = engine::ModelKind::kGpt,
                     .layers = 1,
                     .heads = 2,
                     .width = 16,
                     .context = 8,
                     .vocabulary = 256,
                     .max_samples = 1};
    config_.data = {.kind = data::Kind::kText,
                    .path = folder_.Write("text", text),
                    .validation_path = "",
                    .validation_fraction = 0.1,
                    .context = 8};
    config_.optimizer.clip_norm = 1.0;
    config_.schedule = {.base = 1e-2, .total_steps = 9};
    config_.samples_per_step = 4;
    config_.micro_batches = 4;
    config_.steps = 9;
    dataset_ = OpenData(&config_).value();
    fabric_ = fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}).value();
    device_ = cuda::CreateDevice().value();
    model_ = device_->CreateModel(config_.model).value();
    state_ = TrainState::Create(device_.get(), fabric_.get(), model_->layout(), config_.optimizer.kind,
                                config_.exact)
                 .value();
    stepper_ =
        Stepper::Create({&config_, dataset_.get(), device_.get(), model_.get(), fabric_.get(), state_.get()})
            .value();
    alone_ = fabric_->Connect({1, 0, {fabric_->Address()}}).value();
    ASSERT_TRUE(state_->Initialise(*model_, 5).ok());
  }

  Result<StepResult> Run(const Communicators& comms) {
    return stepper_->Run(comms, &cancel_, [] { return false; });
  }
  // The test can read memory of the emulated device.
  static std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

  const TempFolder folder_;
  RunConfig config_;
  std::unique_ptr<data::Dataset> dataset_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<engine::Model> model_;
  std::unique_ptr<TrainState> state_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<fabric::Communicator> alone_;
  std::atomic<bool> cancel_{false};
};

TEST_F(StepOnGpu, UpdateIsDoneWhenTheFirstWaitReturns) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run({alone_.get()}).ok());
  const int64_t before = cuda::emulation::Waits();
  std::vector<float> guessed;
  const auto result = stepper_->Run({alone_.get()}, &cancel_, [&] {
    EXPECT_LE(cuda::emulation::Waits() - before, 2);  // both for the losses
    guessed = Copy(state_->next().params);
    return false;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(guessed, Copy(state_->current().params));
  EXPECT_NE(guessed, Copy(state_->next().params));
  EXPECT_LE(cuda::emulation::Waits() - before, 3);
}

TEST_F(StepOnGpu, LostPeerKeepsTheUndo) {
  ASSERT_TRUE(Run({alone_.get()}).ok());
  const uint64_t first = state_->ParamsHash().value();
  ASSERT_TRUE(Run({alone_.get()}).ok());
  const uint64_t second = state_->ParamsHash().value();
  Echo host;
  const auto buckets = static_cast<int>(model_->layout().buckets.size());
  for (int reached = 0; reached <= buckets; ++reached) {
    SCOPED_TRACE(reached);
    EchoOnDevice device(reached);
    const auto result = Run({&host, &device});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_EQ(device.started, buckets + 1);
    EXPECT_EQ(state_->step(), 2);
    EXPECT_EQ(state_->ParamsHash().value(), second);
    ASSERT_TRUE(state_->can_roll_back());
    state_->RollBack();
    EXPECT_EQ(state_->ParamsHash().value(), first);
    // Roll back to the image that the commit swapped out.
    state_->Commit();
    ASSERT_EQ(state_->ParamsHash().value(), second);
  }
  // All gradients arrived, so every member has committed the last step, and its undo may be overwritten.
  EchoOnDevice whole(buckets + 1);
  class Deaf : public Echo {
    Status AllReduce(std::span<int32_t>, ReduceOp) override {
      return Error{Code::kUnavailable, "a peer is gone"};
    }
  } deaf;
  ASSERT_FALSE(Run({&deaf, &whole}).ok());
  EXPECT_FALSE(state_->can_roll_back());
  EXPECT_EQ(state_->ParamsHash().value(), second);
  ASSERT_TRUE(Run({alone_.get()}).ok());
  EXPECT_EQ(state_->step(), 3);
}

TEST_F(StepOnGpu, CancelledStepKeepsTheUndo) {
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Run({alone_.get()}).ok());
  cancel_ = true;
  EXPECT_EQ(Run({alone_.get()}).error().code, Code::kCancelled);
  EXPECT_TRUE(state_->can_roll_back());
}

}  // namespace
}  // namespace ringmaster::trainer
