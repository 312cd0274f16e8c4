// Where a model's work runs: the kernels of this CPU, the threads, and the matrix products cut into panels. A
// device with streams would put its own Exec behind the same calls.
//
// Every cut depends on the shape of the work alone, never on the number of threads: see the determinism
// contract in model.h. One thread, the model's caller, uses an Exec at a time.
//
// bf16 is a property of products only: operands are rounded to bfloat16 on their way into a product, sums and
// everything else stay float. Weights that were made known are rounded once per change of the parameters
// (weights_bf16.h), everything else in the product that takes it.
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
#include "worker/engine/weights_bf16.h"

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

  // Makes a weight known, at `offset` of the parameters, [in, out] in memory or, for the tied head, [out,
  // in]; takes the scratch for its products with up to `rows` rows: x W, x^T d, and, with input_gradient, d
  // W^T.
  struct Weight {
    int64_t offset = 0;
    int64_t in = 0;
    int64_t out = 0;
    bool transposed = false;
    bool input_gradient = true;
  };
  void AddWeight(const Weight& weight, int64_t rows);

  // The products to come are with these parameters; equal versions, but 0, mean equal values. with_gradient:
  // those of backward are among them.
  void Begin(const float* params, uint64_t version, bool with_gradient) {
    weights_.Begin(params, version, with_gradient);
  }

  void ReserveHere(int64_t m, int64_t n, int64_t k);  // for MatmulHere
  int64_t ScratchBytes() const;

  const std::vector<ProductEffort>& effort() const { return effort_; }

  // op(A) op(B) (+ C) + epilogue, by panels over the threads.
  void Matmul(const kernels::Product& product, const Epilogue& epilogue = {});

  // The two products that take the gradient d of x W: x^T d, and d W^T. The same bits as one after the other,
  // but d is read and rounded once.
  void MatmulGradients(const kernels::Product& of_weight, const kernels::Product& of_input);

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
    Buffer<uint16_t> panel;  // converted operands, or rows of one
    Buffer<float> out;       // a piece of the product, before it goes to its place
  };

  void MatmulFp32(const kernels::Product& product, const Epilogue& epilogue);
  ProductEffort& EffortOf(const kernels::Product& product);
  // work(effort), whose seconds count as the product's.
  template <class Work>
  void Timed(const kernels::Product& product, const Work& work);
  // Returns the weight's image when the second operand is one, else packs it.
  const uint16_t* SecondOf(const kernels::Product& product, ProductEffort& effort);
  // Of rounded operands: `second` packed, the first in first_ unless it is transposed.
  void MultiplyBf16(const kernels::Product& product, const Epilogue& epilogue, const uint16_t* second);
  // Scratch of a product; `known`: its second operand is a weight.
  void ReserveBf16(int64_t m, int64_t n, int64_t k, bool a_transposed, bool known);
  void PackSecond(const kernels::Matrix& b, int64_t k, int64_t n);
  void SliceFirst(const kernels::Matrix& a, int64_t m, int64_t k);
  // Both at once, of d [rows, columns]: as the second operand of x^T d and as the first of d W^T.
  void RoundGradient(const kernels::Matrix& d, int64_t rows, int64_t columns);
  void AddEpilogue(const kernels::Product& product, const Epilogue& epilogue, int64_t row, int64_t rows,
                   int64_t column, int64_t columns) const;

  const kernels::Kernels& kernels_;
  Precision precision_;
  ThreadPool pool_;
  std::vector<ProductEffort> effort_;  // by shape, in the order of their first products
  // bf16 only:
  WeightsBf16 weights_;
  Buffer<uint16_t> first_;       // the first operand of the product under way, in slices of its depth
  Buffer<uint16_t> second_;      // the second one, packed, when it is no weight
  std::vector<Worker> workers_;  // one per thread
};

}  // namespace ringmaster::engine
