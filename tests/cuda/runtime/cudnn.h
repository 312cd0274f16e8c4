// SPDX-License-Identifier: Apache-2.0

// What stands in cuDNN's place on the emulated device (attention.cc), and how long it seems to take.
#pragma once

#include <string>

namespace ringmaster::cuda::emulation {

// Of the libraries that are loaded from now on. RINGMASTER_EMULATED_CUDNN has the same for a process:
// "quicker" or "slower" than our kernels, both ways; without it there is none.
struct Cudnn {
  bool there = false;
  double forward_saves_ms = 0;  // less than our kernels take; below 0: it takes longer
  double backward_saves_ms = 0;
  std::string name = "cuDNN-emulated";
  std::string plan = "plain";
  bool refuses = false;  // Run fails, although the device is well
  // What Run does else that it should not.
  bool unscaled = false;    // computes something else, in both passes
  bool restless = false;    // other last bits every time
  bool unrecorded = false;  // fails while the stream is recorded
};
void SetCudnn(const Cudnn& cudnn);
Cudnn CudnnOfEnvironment();

// As long as it lives.
class WithCudnn {
 public:
  explicit WithCudnn(const Cudnn& cudnn) { SetCudnn(cudnn); }
  ~WithCudnn() { SetCudnn(CudnnOfEnvironment()); }
  WithCudnn(const WithCudnn&) = delete;
  WithCudnn& operator=(const WithCudnn&) = delete;
};

// Everything between two events takes 1 ms, and what the thread has spent in between.
void Spend(double milliseconds);
double Spent();

}  // namespace ringmaster::cuda::emulation
