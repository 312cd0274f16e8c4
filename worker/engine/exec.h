// Where a model's work runs: the kernels of this CPU, the threads, and the matrix products cut into panels. A
// device with streams would put its own Exec behind the same calls.
//
// Every cut depends on the shape of the work alone, never on the number of threads: see the determinism
// contract in model.h. One thread, the model's caller, uses an Exec at a time.
//
// bf16 is a property of products only: operands are rounded to bfloat16 on their way into a product, sums and
// everything else stay float. The smaller operand is converted once, the larger panel by panel in cache, so
// no bfloat16 copy of the weights exists that could be stale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/engine/buffer.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/kernels/matmul.h"
#include "worker/engine/kernels/matmul_bf16.h"
#include "worker/engine/model.h"
#include "worker/engine/thread_pool.h"

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

  // Takes the scratch that products of this shape need (in any orientation of the operands).
  void Reserve(int64_t m, int64_t n, int64_t k);
  void ReserveHere(int64_t m, int64_t n, int64_t k);  // for MatmulHere
  int64_t ScratchBytes() const;

  const ProductEffort& effort() const { return effort_; }

  // op(A) op(B) (+ C) + epilogue, by panels over the threads.
  void Matmul(const kernels::Product& product, const Epilogue& epilogue = {});

  // The same on the calling worker alone: for use inside Units.
  void MatmulHere(int worker, const kernels::Product& product);

  // work(unit, worker) for units in [0, units).
  template <class Work>
  void Units(int64_t units, const Work& work) {
    pool_.Run(units, work);
  }

  // work(begin, end) over [0, n) in pieces of `grain`: for kernels whose pieces do not touch each other.
  template <class Work>
  void Pieces(int64_t n, int64_t grain, const Work& work) {
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
    Buffer<uint16_t> panel;  // a converted piece of the larger operand
    Buffer<float> out;       // its product, before it goes to its place
  };

  void MatmulFp32(const kernels::Product& product, const Epilogue& epilogue);
  void MatmulBf16(const kernels::Product& product, const Epilogue& epilogue);
  void AddEpilogue(const kernels::Product& product, const Epilogue& epilogue, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) const;

  const kernels::Kernels& kernels_;
  Precision precision_;
  ThreadPool pool_;
  ProductEffort effort_;
  Buffer<uint16_t> whole_;       // bf16: the smaller operand of the product under way
  std::vector<Worker> workers_;  // bf16: one per thread
};

}  // namespace ringmaster::engine
