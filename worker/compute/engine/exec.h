// SPDX-License-Identifier: Apache-2.0

// Where a model's work runs: the kernels of this CPU, the threads, and the matrix products cut into panels. A
// device with streams would put its own Exec behind the same calls.
//
// Every cut depends on the shape of the work alone, never on the number of threads: see the determinism
// contract in model.h. One thread, the model's caller, uses an Exec at a time.
//
// bf16 is a property of products only: operands are rounded to bfloat16 on their way into a product, sums and
// everything else stay float. Weights are rounded and packed where they are used, panel by panel in the cache
// of the core that takes them: an image of them would cost more in memory traffic than it saves.
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

// What is added to a product while its panel is still in cache.
struct Epilogue {
  const float* bias = nullptr;      // [n]
  const float* residual = nullptr;  // [m, n], rows ldc apart as in C
};

class Exec {
 public:
  Exec(int threads, Precision precision, const kernels::Kernels& kernels);

  const kernels::Kernels& kernels() const { return kernels_; }
  int threads() const { return pool_.threads(); }
  Precision precision() const { return precision_; }

  // Takes the scratch for products with a weight W [in, out] and up to `rows` rows: x W, x^T d, and d W^T.
  // `transposed`: W lies as [out, in], as the tied head does.
  struct Weight {
    int64_t in = 0;
    int64_t out = 0;
    bool transposed = false;
  };
  void Reserve(const Weight& weight, int64_t rows);
  void ReserveSerial(int64_t m, int64_t n, int64_t k);  // for MatmulSerial
  int64_t ScratchBytes() const;

  const std::vector<MatmulCost>& matmul_costs() const { return matmul_costs_; }

  // op(A) op(B) (+ C) + epilogue, by panels over the threads.
  void Matmul(const kernels::MatmulArgs& product, const Epilogue& epilogue = {});

  // The two products that take the gradient d of x W: x^T d, and d W^T. The same bits as one after the other,
  // but d is read and rounded once.
  void MatmulGradients(const kernels::MatmulArgs& of_weight, const kernels::MatmulArgs& of_input);

  // The same on the calling worker alone: for use inside Units.
  void MatmulSerial(int worker, const kernels::MatmulArgs& product);

  // work(unit, worker) for units in [0, units).
  template <class Work>
  void RunUnits(int64_t units, const Work& work) {
    pool_.Run(units, work);
  }

  // work(begin, end) over [0, n) in pieces of `grain`: for kernels whose pieces do not touch each other.
  template <class Work>
  void ParallelFor(int64_t n, int64_t grain, const Work& work) {
    pool_.Run((n + grain - 1) / grain, [&](int64_t unit, int) {
      const int64_t begin = unit * grain;
      work(begin, std::min(n, begin + grain));
    });
  }

  // Rows of a piece so that it has about 16 Ki elements.
  static int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)); }

 private:
  struct Worker {
    kernels::MatmulBf16 matmul;
    Buffer<uint16_t> panel;  // of the transposed first operand, or of the second one, packed
    Buffer<float> out;       // sums of a piece, while they are not finished
  };
  // What a unit of work computes at a time.
  struct Piece {
    const kernels::MatmulArgs& product;
    const Epilogue& epilogue;
    int64_t row, rows, column, columns;
  };
  // An operand of one slice of a piece's depth.
  struct Strips {
    const uint16_t* data;
    int64_t stride;
  };

  void MatmulFp32(const kernels::MatmulArgs& product, const Epilogue& epilogue);
  MatmulCost& CostOf(const kernels::MatmulArgs& product);
  // work(), whose seconds count as the product's.
  template <class Work>
  void Timed(const kernels::MatmulArgs& product, const Work& work);
  // x W and d W^T: the first operand rounded in first_, the second one packed where it is used.
  void MultiplyByWeight(const kernels::MatmulArgs& product, const Epilogue& epilogue);
  // x^T d: the second operand packed in second_, the first one transposed where it is used.
  void MultiplyTransposed(const kernels::MatmulArgs& product, const Epilogue& epilogue);
  void MultiplySlice(Worker& worker, const Piece& piece, int64_t depth, const uint16_t* first, Strips second,
                     const kernels::PrefetchRegion& ahead);
  void ReserveBf16(int64_t m, int64_t n, int64_t k, bool a_transposed);
  void PackSecond(const kernels::Matrix& b, int64_t k, int64_t n);
  void SliceFirst(const kernels::Matrix& a, int64_t m, int64_t k);
  // Both at once, of d [rows, columns]: as the second operand of x^T d and as the first of d W^T.
  void RoundGradient(const kernels::Matrix& d, int64_t rows, int64_t columns);
  // Rows [row, row + rows) of one slice of a matrix of `all` rows, to first_.
  void SliceRows(const float* x, int64_t ld, int64_t depth, int64_t k, int64_t row, int64_t rows,
                 int64_t all);
  void AddEpilogue(const kernels::MatmulArgs& product, const Epilogue& epilogue, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) const;

  const kernels::Kernels& kernels_;
  Precision precision_;
  ThreadPool pool_;
  std::vector<MatmulCost> matmul_costs_;  // by shape, in the order of their first products
  // bf16 only:
  Buffer<uint16_t> first_;       // the first operand of the product under way, in slices of its depth
  Buffer<uint16_t> second_;      // the second one, packed
  std::vector<Worker> workers_;  // one per thread
};

}  // namespace ringmaster::engine
