// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/matmul.h"

#include <oneapi/dnnl/dnnl.h>

#include "base/check.h"
#include "worker/compute/engine/kernels/one_thread.h"

namespace ringmaster::engine::kernels {

void Matmul(const MatmulArgs& p) {
  if (p.m == 0 || p.n == 0) return;
  const OneThread one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f, p.a.data,
                 p.a.ld, p.b.data, p.b.ld, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc);
  CHECK(status == dnnl_success, "dnnl_sgemm m={} n={} k={}: status {}", p.m, p.n, p.k,
        static_cast<int>(status));
}

}  // namespace ringmaster::engine::kernels
