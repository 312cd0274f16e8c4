// SPDX-License-Identifier: Apache-2.0

// Executes the work of a CPU model: selects the kernels, runs them on a thread pool, and divides matrix
// products into panels.
//
// Work is divided by its shape only, never by the number of threads (determinism contract of model.h), except
// for products of floats, whose bits depend on no division (kernels/matmul.h).
//
// bf16 affects matrix products only: operands are rounded to bfloat16, sums and everything else stay float.
// Weights are rounded and packed where they are used, panel by panel in the cache of the core that multiplies
// them; a bfloat16 copy of all weights would cost more memory traffic than it saves.
//
// Not thread-safe: the caller of the model uses it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/compute/engine/buffer.h"
#include "worker/compute/engine/kernels/kernels.h"
#include "worker/compute/engine/kernels/matmul.h"
#include "worker/compute/engine/kernels/matmul_bf16.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/engine/packed_matrix.h"
#include "worker/compute/engine/thread_pool.h"

namespace ringmaster::engine {

// Terms added to a product while its panel is still in cache; null: none.
struct Epilogue {
  const float* bias = nullptr;      // (n)
  const float* residual = nullptr;  // (m, n), row stride ldc as C
};

class Exec {
 public:
  Exec(int threads, Precision precision, const kernels::Kernels& kernels);

  const kernels::Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_.threads(); }
  Precision precision() const { return precision_; }

  // A weight W of shape (in, out). `transposed`: it is stored as (out, in), as the tied head is.
  struct Weight {
    int64_t in = 0;
    int64_t out = 0;
    bool transposed = false;
  };
  // Allocates the scratch for x W, x^T d and d W^T with up to `rows` rows of x.
  void Reserve(const Weight& weight, int64_t rows);
  void ReserveSerial(int64_t m, int64_t n, int64_t k);  // for MatmulSerial of this shape
  int64_t ScratchBytes() const;

  const std::vector<MatmulCost>& matmul_costs() const { return matmul_costs_; }

  // C = op(A) op(B) + epilogue, or C += op(A) op(B) + epilogue; divides the panels over the threads.
  void Matmul(const kernels::MatmulArgs& args, const Epilogue& epilogue = {});

  // Both gradients of y = x W, given d = dy: dW = x^T d and dx = d W^T. Same bits as two calls of Matmul, but
  // reads and rounds d once.
  void MatmulGradients(const kernels::MatmulArgs& weight_gradient, const kernels::MatmulArgs& input_gradient);

  // Matmul on the calling worker alone. REQUIRES: called by the work of RunUnits.
  void MatmulSerial(int worker, const kernels::MatmulArgs& args);

  // Calls work(unit, worker) for every unit in [0, units), on all threads.
  template <class Work>
  void RunUnits(int64_t units, const Work& work) {
    pool_.Run(units, work);
  }

  // Calls work(begin, end) for ranges of `grain` that cover [0, n), on all threads. REQUIRES: the ranges are
  // independent of each other.
  template <class Work>
  void ParallelFor(int64_t n, int64_t grain, const Work& work) {
    pool_.Run((n + grain - 1) / grain, [&](int64_t unit, int) {
      const int64_t begin = unit * grain;
      work(begin, std::min(n, begin + grain));
    });
  }

  // Returns the rows of a range that has about 16 Ki elements.
  static int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)); }

 private:
  struct Worker {
    kernels::MatmulBf16 matmul;
    Buffer<uint16_t> panel;  // of the transposed first operand, or of the packed second operand
    Buffer<float> out;       // partial sums of a piece
  };
  // A block of C that a worker computes at a time.
  struct Piece {
    const kernels::MatmulArgs& args;
    const Epilogue& epilogue;
    int64_t row, rows, column, columns;
  };
  // The packed second operand of a slice.
  struct Strips {
    const uint16_t* data;
    int64_t stride;
  };

  void MatmulFp32(const kernels::MatmulArgs& args, const Epilogue& epilogue);
  MatmulCost& CostOf(const kernels::MatmulArgs& args);
  // Calls work() and adds its duration to the cost of the product.
  template <class Work>
  void Timed(const kernels::MatmulArgs& args, const Work& work);
  // x W and d W^T: reads the rounded first operand from first_ and packs the second one where it is used.
  void MultiplyByWeight(const kernels::MatmulArgs& args, const Epilogue& epilogue);
  // x^T d: reads the packed second operand from second_ and transposes the first one where it is used.
  void MultiplyTransposed(const kernels::MatmulArgs& args, const Epilogue& epilogue);
  void MultiplySlice(Worker& worker, const Piece& piece, int64_t depth, const uint16_t* first, Strips second,
                     const kernels::PrefetchRegion& ahead);
  void ReserveBf16(int64_t m, int64_t n, int64_t k, bool a_transposed);
  void PackSecond(const kernels::Matrix& b, int64_t k, int64_t n);
  void SliceFirst(const kernels::Matrix& a, int64_t m, int64_t k);
  // PackSecond and SliceFirst in one pass over d, shape (rows, columns): the second operand of x^T d, and the
  // first one of d W^T.
  void RoundGradient(const kernels::Matrix& d, int64_t rows, int64_t columns);
  // Writes rows [row, row + rows) of one slice of a matrix with `all` rows to first_.
  void SliceRows(const float* x, int64_t ld, int64_t depth, int64_t k, int64_t row, int64_t rows,
                 int64_t all);
  void AddEpilogue(const kernels::MatmulArgs& args, const Epilogue& epilogue, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) const;

  const kernels::Kernels& kernels_;
  Precision precision_;
  ThreadPool pool_;
  std::vector<Buffer<float>> product_scratch_;  // one per thread, for fp32
  std::vector<MatmulCost> matmul_costs_;        // one per shape, in the order of first use
  // bf16 only:
  Buffer<uint16_t> first_;       // the first operand of the current product, in slices of its depth
  Buffer<uint16_t> second_;      // its second operand, packed
  std::vector<Worker> workers_;  // one per thread
};

}  // namespace ringmaster::engine
