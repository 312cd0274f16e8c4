// SPDX-License-Identifier: Apache-2.0

// Limits oneDNN to one thread within a scope. oneDNN divides work, and with it the order of additions, by the
// number of OpenMP threads of the calling thread; Exec divides the work itself. The limit applies to the
// calling thread only, and the destructor restores the previous one.
#pragma once

// From the OpenMP runtime that oneDNN links. Declared here because nothing else of OpenMP is used.
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
