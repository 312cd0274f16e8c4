// SPDX-License-Identifier: Apache-2.0

// The emulated cuDNN (attention.cc): its faults and its simulated durations.
#pragma once

#include <string>

namespace ringmaster::cuda::emulation {

// Settings of the libraries that are loaded from now on. RINGMASTER_EMULATED_CUDNN configures a process:
// "quicker" or "slower" than the native kernels in both passes; unset: no library.
struct Cudnn {
  bool there = false;
  double forward_saves_ms = 0;  // saved time compared with the native kernels; below 0: slower
  double backward_saves_ms = 0;
  std::string name = "cuDNN-emulated";
  std::string plan = "plain";
  bool refuses = false;  // Run fails on a healthy device
  // Further faults of Run.
  bool unscaled = false;    // wrong results in both passes
  bool restless = false;    // nondeterministic last bits
  bool unrecorded = false;  // fails during a capture
};
void SetCudnn(const Cudnn& cudnn);
Cudnn CudnnOfEnvironment();

// Applies the settings for the lifetime of the object.
class WithCudnn {
 public:
  explicit WithCudnn(const Cudnn& cudnn) { SetCudnn(cudnn); }
  ~WithCudnn() { SetCudnn(CudnnOfEnvironment()); }
  WithCudnn(const WithCudnn&) = delete;
  WithCudnn& operator=(const WithCudnn&) = delete;
};

// The simulated time between two events is 1 ms plus the time that the thread spent in between.
void Spend(double milliseconds);
double Spent();

}  // namespace ringmaster::cuda::emulation
