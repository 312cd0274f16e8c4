// SPDX-License-Identifier: Apache-2.0

// Every attention backend against the reference of the CPU: the native kernels, the emulated cuDNN, and on a
// GPU the real cuDNN where it is installed.
#include "worker/compute/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tests/cuda/runtime/with_device.h"
#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/engine/kernels/attention.h"
#ifndef RINGMASTER_TESTS_ON_GPU
#include "tests/cuda/runtime/cudnn.h"
#endif

namespace ringmaster::cuda {
namespace {

class AttentionOfDevice : public WithDevice<testing::Test> {
#ifndef RINGMASTER_TESTS_ON_GPU
  const emulation::WithCudnn cudnn_{{.there = true}};
#endif
};

struct Arrays {
  std::vector<Bf16> out, d_qkv;
  std::vector<float> lse;
};

bool SameBits(const std::vector<Bf16>& a, const std::vector<Bf16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Bf16)) == 0;
}

std::vector<Bf16> RandomBf16(uint64_t seed, int64_t size) {
  std::vector<Bf16> values(static_cast<size_t>(size));
  SplitMix64 random(seed);
  for (Bf16& value : values) value = FromFloat<Bf16>(static_cast<float>(4 * random.Uniform() - 2));
  return values;
}

std::vector<float> Floats(const std::vector<Bf16>& values) {
  std::vector<float> floats;
  for (const Bf16 value : values) floats.push_back(ToFloat(value));
  return floats;
}

// Returns |got - want| / |want| as vectors.
double Distance(const std::vector<float>& got, const std::vector<float>& want) {
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    size += double{want[i]} * want[i];
  }
  return std::sqrt(off / (size + 1e-30));
}

// Runs forward with one backend and backward with another.
Arrays Walk(Attention& attention, const AttentionProblem& p, bool forward_by_library,
            bool backward_by_library) {
  const OwnedStream stream = OwnedStream::Create().value();
  const int64_t cells = p.samples * p.context * p.heads * p.head_size;
  const auto qkv = Uploaded(stream.get(), RandomBf16(1, 3 * cells));
  const auto d_out = Uploaded(stream.get(), RandomBf16(2, cells));
  const auto out = Buffer<Bf16>::Create(cells).value();
  const auto d_qkv = Buffer<Bf16>::Create(3 * cells).value();
  const auto lse = Buffer<float>::Create(p.samples * p.heads * p.context).value();
  const auto scratch = Buffer<float>::Create(Attention::Scratch(p)).value();
  const AttentionOperands operands{qkv.get(), out.get(), lse.get(), d_out.get(), d_qkv.get()};
  const auto run = [&](bool library, AttentionPass pass) {
    const Status done = attention.RunWith(library, stream.get(), p, pass, operands, scratch.get());
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  };
  run(forward_by_library, AttentionPass::kForward);
  run(backward_by_library, AttentionPass::kBackward);
  return {Downloaded(stream.get(), out), Downloaded(stream.get(), d_qkv), Downloaded(stream.get(), lse)};
}

Arrays Reference(const AttentionProblem& p, const std::vector<Bf16>& kept_out) {
  const int64_t width = p.heads * p.head_size;
  const int64_t cells = p.samples * p.context * width;
  const std::vector<float> qkv = Floats(RandomBf16(1, 3 * cells)), d_out = Floats(RandomBf16(2, cells));
  const std::vector<float> kept = Floats(kept_out);
  std::vector<float> out(static_cast<size_t>(cells)), d_qkv(static_cast<size_t>(3 * cells));
  std::vector<float> lse(static_cast<size_t>(p.samples * p.heads * p.context));
  for (int64_t n = 0; n < p.samples; ++n)
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t in = n * p.context * 3 * width + h * p.head_size;
      const int64_t to = n * p.context * width + h * p.head_size;
      const engine::kernels::AttentionHead head{.context = p.context,
                                                .size = p.head_size,
                                                .ld_qkv = 3 * width,
                                                .ld_out = width,
                                                .q = qkv.data() + in,
                                                .k = qkv.data() + in + width,
                                                .v = qkv.data() + in + 2 * width};
      float* const row = lse.data() + (n * p.heads + h) * p.context;
      engine::kernels::AttentionForwardReference(head, out.data() + to, row);
      engine::kernels::AttentionBackwardReference(head, {.out = kept.data() + to,
                                                         .d_out = d_out.data() + to,
                                                         .lse = row,
                                                         .d_q = d_qkv.data() + in,
                                                         .d_k = d_qkv.data() + in + width,
                                                         .d_v = d_qkv.data() + in + 2 * width});
    }
  Arrays want;
  want.lse = lse;
  for (const float value : out) want.out.push_back(FromFloat<Bf16>(value));
  for (const float value : d_qkv) want.d_qkv.push_back(FromFloat<Bf16>(value));
  return want;
}

// Both backends, and the backward pass of each after the forward pass of the other: both define lse the same
// way.
TEST_F(AttentionOfDevice, EveryBackendAgreesWithTheCpu) {
  const auto attention = Attention::Create({}, BindDevice(0).value()).value();
  const AttentionProblem problems[] = {
      {.samples = 2, .heads = 4, .context = 67, .head_size = 64, .type = DType::kBf16},
      {.samples = 1, .heads = 2, .context = 130, .head_size = 128, .type = DType::kBf16},
      {.samples = 4, .heads = 1, .context = 37, .head_size = 8, .type = DType::kBf16},
      {.samples = 1, .heads = 2, .context = 64, .head_size = 40, .type = DType::kBf16},
  };
  for (const AttentionProblem& p : problems) {
    SCOPED_TRACE(testing::Message() << "heads of " << p.head_size << ", context " << p.context);
    ASSERT_TRUE(attention->Prepare(p).ok());
    const Arrays own = Walk(*attention, p, false, false);
    const OwnedStream stream = OwnedStream::Create().value();
    for (const auto& [forward, backward] :
         {std::pair(true, true), std::pair(true, false), std::pair(false, true), std::pair(false, false)}) {
      if (const Status there =
              attention->RunWith(true, stream.get(), {}, AttentionPass::kForward, {}, nullptr);
          (forward || backward) && !there.ok() && there.error().code == Code::kUnavailable)
        GTEST_SKIP() << there.error().message;
      const Arrays got = Walk(*attention, p, forward, backward);
      const Arrays want = Reference(p, got.out);
      for (size_t i = 0; i < want.lse.size(); ++i) ASSERT_NEAR(got.lse[i], want.lse[i], 1e-3) << i;
      EXPECT_LT(Distance(Floats(got.out), Floats(want.out)), 8e-3);
      EXPECT_LT(Distance(Floats(got.d_qkv), Floats(want.d_qkv)), 1.5e-2);
      EXPECT_LT(Distance(Floats(got.out), Floats(own.out)), 1.2e-2);
      const Arrays again = Walk(*attention, p, forward, backward);
      EXPECT_TRUE(SameBits(again.out, got.out) && SameBits(again.d_qkv, got.d_qkv) && again.lse == got.lse)
          << "must be deterministic";
    }
  }
}

TEST_F(AttentionOfDevice, AnotherProcessAdoptsTheChoices) {
  const AttentionProblem p{.samples = 2, .heads = 2, .context = 64, .head_size = 32, .type = DType::kBf16};
  const auto one = Attention::Create({}, BindDevice(0).value()).value();
  const auto other = Attention::Create({}, BindDevice(0).value()).value();
  ASSERT_TRUE(one->Prepare(p).ok());
  EXPECT_NE(one->Fingerprint(), other->Fingerprint());
  ASSERT_TRUE(other->Adopt(one->Choices()).ok());
  ASSERT_TRUE(other->Prepare(p).ok());
  EXPECT_EQ(one->Fingerprint(), other->Fingerprint());
  EXPECT_EQ(one->Choices(), other->Choices());
  EXPECT_FALSE(other->Adopt("something else").ok());
}

}  // namespace
}  // namespace ringmaster::cuda
