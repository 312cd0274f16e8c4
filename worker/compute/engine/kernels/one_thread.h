// SPDX-License-Identifier: Apache-2.0

// oneDNN splits its work by the number of OpenMP threads that the calling thread may use, and with it the
// order of sums. We cut the work ourselves, so within this scope that number is 1; it belongs to the calling
// thread only, and is put back.
#pragma once

// From the OpenMP run-time that oneDNN is linked with; declared here since nothing else of OpenMP is used.
extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();

namespace ringmaster::engine::kernels {

class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace ringmaster::engine::kernels
