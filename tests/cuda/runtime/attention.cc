// SPDX-License-Identifier: Apache-2.0

// The emulated cuDNN: attention in plain loops. It adds from the last key to the first, in double, so its
// bits differ from those of the native kernels.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/capture.h"
#include "tests/cuda/runtime/cudnn.h"
#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/attention_library.h"
#include "worker/compute/cuda/kernels/bf16.h"

namespace ringmaster::cuda {
namespace emulation {
namespace {

Cudnn OfEnvironment() {
  const char* const asked = std::getenv("RINGMASTER_EMULATED_CUDNN");
  if (asked == nullptr || *asked == '\0') return {};
  const double saved = std::string(asked) == "quicker" ? 0.5 : -0.5;
  return {.there = true, .forward_saves_ms = saved, .backward_saves_ms = saved};
}

thread_local constinit double spent = 0;

struct Setting {
  std::mutex mutex;
  Cudnn cudnn = OfEnvironment();
};
Setting& TheSetting() {
  static Setting setting;
  return setting;
}

Cudnn Now() {
  const std::lock_guard lock(TheSetting().mutex);
  return TheSetting().cudnn;
}

}  // namespace

void SetCudnn(const Cudnn& cudnn) {
  const std::lock_guard lock(TheSetting().mutex);
  TheSetting().cudnn = cudnn;
}
Cudnn CudnnOfEnvironment() { return OfEnvironment(); }

void Spend(double milliseconds) { spent += milliseconds; }
double Spent() { return spent; }

}  // namespace emulation

namespace {

// One head of one sample, with a row stride of `stride` elements.
struct Rows {
  const Bf16* first;
  int64_t stride;
  double At(int64_t row, int64_t column) const { return double{ToFloat(first[row * stride + column])}; }
};

struct HeadOf {
  const AttentionProblem& p;
  int64_t sample, head;
  bool unscaled;
  int64_t Width() const { return p.heads * p.head_size; }
  // 0 for q, 1 for k, 2 for v.
  int64_t Packed(int which) const {
    return sample * p.context * 3 * Width() + which * Width() + head * p.head_size;
  }
  int64_t Plain() const { return sample * p.context * Width() + head * p.head_size; }
  int64_t Lse() const { return (sample * p.heads + head) * p.context; }
  double Scale() const { return unscaled ? 1 : 1 / std::sqrt(static_cast<double>(p.head_size)); }
};

double Dot(const Rows& a, int64_t i, const Rows& b, int64_t j, int64_t size) {
  double sum = 0;
  for (int64_t c = size; c-- > 0;) sum += a.At(i, c) * b.At(j, c);
  return sum;
}

void ForwardHead(const HeadOf& of, const AttentionOperands& operands) {
  const auto* const qkv = static_cast<const Bf16*>(operands.qkv);
  const int64_t stride = 3 * of.Width();
  const Rows q{qkv + of.Packed(0), stride}, k{qkv + of.Packed(1), stride}, v{qkv + of.Packed(2), stride};
  for (int64_t i = 0; i < of.p.context; ++i) {
    std::vector<double> scores(static_cast<size_t>(i + 1));
    double most = -1e300, sum = 0;
    for (int64_t j = i + 1; j-- > 0;) {
      scores[static_cast<size_t>(j)] = Dot(q, i, k, j, of.p.head_size) * of.Scale();
      most = std::max(most, scores[static_cast<size_t>(j)]);
    }
    for (int64_t j = i + 1; j-- > 0;) sum += std::exp(scores[static_cast<size_t>(j)] - most);
    operands.lse[of.Lse() + i] = static_cast<float>(most + std::log(sum));
    for (int64_t c = 0; c < of.p.head_size; ++c) {
      double value = 0;
      for (int64_t j = i + 1; j-- > 0;)
        value += std::exp(scores[static_cast<size_t>(j)] - most) / sum * v.At(j, c);
      static_cast<Bf16*>(operands.out)[of.Plain() + i * of.Width() + c] =
          RoundToBf16(static_cast<float>(value));
    }
  }
}

void BackwardHead(const HeadOf& of, const AttentionOperands& operands) {
  const auto* const qkv = static_cast<const Bf16*>(operands.qkv);
  const int64_t stride = 3 * of.Width();
  const Rows q{qkv + of.Packed(0), stride}, k{qkv + of.Packed(1), stride}, v{qkv + of.Packed(2), stride};
  const Rows out{static_cast<const Bf16*>(operands.out) + of.Plain(), of.Width()};
  const Rows d_out{static_cast<const Bf16*>(operands.d_out) + of.Plain(), of.Width()};
  const int64_t size = of.p.head_size;
  std::vector<double> d_qkv(static_cast<size_t>(3 * of.p.context * size));
  const auto at = [&](int which, int64_t row, int64_t column) -> double& {
    return d_qkv[static_cast<size_t>((which * of.p.context + row) * size + column)];
  };
  for (int64_t i = of.p.context; i-- > 0;) {
    const double delta = Dot(out, i, d_out, i, size);
    for (int64_t j = i + 1; j-- > 0;) {
      const double p = std::exp(Dot(q, i, k, j, size) * of.Scale() - double{operands.lse[of.Lse() + i]});
      const double d = p * (Dot(d_out, i, v, j, size) - delta) * of.Scale();
      for (int64_t c = 0; c < size; ++c) {
        at(0, i, c) += d * k.At(j, c);
        at(1, j, c) += d * q.At(i, c);
        at(2, j, c) += p * d_out.At(i, c);
      }
    }
  }
  for (int which = 0; which < 3; ++which)
    for (int64_t row = 0; row < of.p.context; ++row)
      for (int64_t c = 0; c < size; ++c)
        static_cast<Bf16*>(operands.d_qkv)[of.Packed(which) + row * stride + c] =
            RoundToBf16(static_cast<float>(at(which, row, c)));
}

class PlainAttention final : public AttentionLibrary {
 public:
  explicit PlainAttention(emulation::Cudnn cudnn) : cudnn_(std::move(cudnn)) {}

  std::string Name() const override { return cudnn_.name; }

  Result<Plan> Prepare(const AttentionProblem& problem, AttentionPass pass) override {
    const bool backward = pass == AttentionPass::kBackward;
    if (problem.type != DType::kBf16) return Error{Code::kInvalid, "only bf16"};
    if (problem.head_size % 8 != 0) return Error{Code::kInvalid, "the head size is not a multiple of 8"};
    if (backward && problem.context == 1) return Error{Code::kInvalid, "a context of 1 has no backward"};
    prepared_.insert({problem, pass});
    return Plan{.name = cudnn_.plan, .workspace_bytes = backward ? Workspace(problem) : 256};
  }

  Status Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
             const AttentionOperands& operands, void* workspace) override {
    CHECK(stream != nullptr && prepared_.contains({problem, pass}), "not prepared");
    if (cudnn_.refuses || (cudnn_.unrecorded && emulation::Records(stream)))
      return Error{Code::kGone, "the emulated cuDNN is configured to fail"};
    emulation::Spend(pass == AttentionPass::kForward ? -cudnn_.forward_saves_ms : -cudnn_.backward_saves_ms);
    emulation::Give(stream, [=, this] {
      Work(problem, pass, operands, workspace, cudnn_.unscaled);
      if (cudnn_.restless) Disturb(problem, pass, operands);
    });
    return Ok();
  }

 private:
  static int64_t Workspace(const AttentionProblem& p) { return 4 * p.samples * p.heads * p.context; }

  static void Work(const AttentionProblem& p, AttentionPass pass, const AttentionOperands& operands,
                   void* workspace, bool unscaled) {
    const bool backward = pass == AttentionPass::kBackward;
    const int64_t cells = p.samples * p.context * p.heads * p.head_size * 2;
    CHECK(emulation::InDevice(operands.qkv, 3 * cells) && emulation::InDevice(operands.out, cells) &&
              emulation::InDevice(operands.lse, 4 * p.samples * p.heads * p.context) &&
              (!backward || (emulation::InDevice(operands.d_out, cells) &&
                             emulation::InDevice(operands.d_qkv, 3 * cells))),
          "operands of attention are not in device memory");
    CHECK(emulation::InDevice(workspace, backward ? Workspace(p) : 256),
          "the workspace of attention is not in device memory");
    for (int64_t sample = 0; sample < p.samples; ++sample)
      for (int64_t head = 0; head < p.heads; ++head)
        backward ? BackwardHead({p, sample, head, unscaled}, operands)
                 : ForwardHead({p, sample, head, unscaled}, operands);
  }

  // Changes the last bit of one result.
  void Disturb(const AttentionProblem& p, AttentionPass pass, const AttentionOperands& operands) {
    const int64_t cells = p.samples * p.context * p.heads * p.head_size;
    const bool backward = pass == AttentionPass::kBackward;
    Bf16* const last =
        static_cast<Bf16*>(backward ? operands.d_qkv : operands.out) + (backward ? 3 : 1) * cells - 1;
    last->bits = static_cast<uint16_t>(last->bits ^ (++runs_ & 1));
  }

  const emulation::Cudnn cudnn_;
  uint64_t runs_ = 0;
  std::set<std::pair<AttentionProblem, AttentionPass>> prepared_;
};

}  // namespace

Result<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary() {
  const emulation::Cudnn cudnn = emulation::Now();
  if (!cudnn.there) return Error{Code::kUnavailable, "the emulated machine has no libcudnn.so.9"};
  return std::unique_ptr<AttentionLibrary>(std::make_unique<PlainAttention>(cudnn));
}

}  // namespace ringmaster::cuda
