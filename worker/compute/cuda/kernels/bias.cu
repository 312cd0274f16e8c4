// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/bias.h"

#include "worker/compute/cuda/kernels/column_sums.h"

namespace ringmaster::cuda::kernels {

int64_t ColumnSumsScratch(int64_t rows, int64_t columns) { return SumColumnsScratch(rows, columns); }

template <class T>
void ColumnSums(Stream stream, int64_t rows, int64_t columns, const T* x, float* sums, float* scratch) {
  SumColumns(stream, rows, columns, columns, x, sums, scratch);
}

template void ColumnSums(Stream, int64_t, int64_t, const float*, float*, float*);
template void ColumnSums(Stream, int64_t, int64_t, const Bf16*, float*, float*);

}  // namespace ringmaster::cuda::kernels
