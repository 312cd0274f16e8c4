// SPDX-License-Identifier: Apache-2.0

// The definition of the optimizers, one element at a time. The formulas are those of PyTorch's
// torch.optim.SGD (momentum, no dampening, no Nesterov; weight decay is added to the gradient) and
// torch.optim.AdamW (decoupled decay), as their documentation gives them:
//
//   SGD     g = g + wd p;  b = mu b + g;  p = p - lr b
//   AdamW   p = p (1 - lr wd);  m = m + (1 - b1)(g - m);  v = b2 v + (1 - b2) g g
//           p = p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//
// Scalars are computed in double and rounded to float once. The division by sqrt(1 - b2^t) is a
// multiplication by the inverse. Each operation below is one float operation of IEEE 754, with subnormals.
// What is stored is a normal number or zero: values below 2^-126 become zero, after the last operation.
#include <cmath>

#include "base/check.h"
#include "base/subnormals.h"
#include "worker/compute/optimizer/kernels.h"

namespace ringmaster::optimizer {
namespace {

float Normal(float value) { return std::fabs(value) < kSmallestNormal ? 0.0F : value; }

void SgdElement(const SgdScalars& k, const Slices& s, size_t i) {
  const float scaled = s.gradient[i] * k.gradient_scale;
  const float decay = k.weight_decay * s.params[i];
  const float gradient = scaled + decay;
  const float carried = k.momentum * s.state0[i];
  const float buffer = Normal(carried + gradient);
  const float move = k.negative_rate * buffer;
  s.next_params[i] = Normal(s.params[i] + move);
  s.next_state0[i] = buffer;
}

void AdamWElement(const AdamWScalars& k, const Slices& s, size_t i) {
  const float gradient = s.gradient[i] * k.gradient_scale;
  const float toward = gradient - s.state0[i];
  const float step_m = k.one_minus_beta1 * toward;
  const float m = Normal(s.state0[i] + step_m);
  const float carried = k.beta2 * s.state1[i];
  const float weighted = k.one_minus_beta2 * gradient;
  const float fresh = weighted * gradient;
  const float v = Normal(carried + fresh);
  const float corrected = std::sqrt(v) * k.inverse_root;
  const float ratio = m / (corrected + k.epsilon);
  const float kept = s.params[i] * k.keep;
  const float move = k.negative_size * ratio;
  s.next_params[i] = Normal(kept + move);
  s.next_state0[i] = m;
  s.next_state1[i] = v;
}

}  // namespace

void StepReference(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices) {
  CHECK(scalars.step >= 1, "step {}", scalars.step);
  const KeepSubnormals keep;
  for (size_t i = 0; i < slices.params.size(); ++i) {
    switch (config.kind) {
      case Kind::kSgd:
        SgdElement(MakeSgd(config, scalars, decay), slices, i);
        break;
      case Kind::kAdamW:
        AdamWElement(MakeAdamW(config, scalars, decay), slices, i);
        break;
    }
  }
}

}  // namespace ringmaster::optimizer
