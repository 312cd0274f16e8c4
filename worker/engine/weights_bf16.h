// The bfloat16 images of a model's weight matrices: what products take instead of the float masters. Made
// once per change of the parameters, at the first product that asks, and kept packed (packed.h): one image
// for x W, one for d W^T.
//
// Invariant: an image handed out equals the masters of the last Begin, each rounded to nearest even. It rests
// on the caller's version: equal versions (but 0) mean equal values.
//
// Thread rule: the model's caller; the conversion itself uses the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/engine/buffer.h"
#include "worker/engine/kernels/kernels.h"
#include "worker/engine/kernels/matmul.h"
#include "worker/engine/packed.h"
#include "worker/engine/thread_pool.h"

namespace ringmaster::engine {

class WeightsBf16 {
 public:
  explicit WeightsBf16(const kernels::Kernels& kernels) : kernels_(kernels) {}

  // A matrix of `rows` by `columns` at `offset` of the parameters. by_rows: products contract over its rows
  // (x W); by_columns: over its columns (d W^T).
  void Add(int64_t offset, int64_t rows, int64_t columns, bool by_rows, bool by_columns);

  // The products to come are with these parameters. with_gradient: both images will be needed.
  void Begin(const float* params, uint64_t version, bool with_gradient);

  // The packed image of `b`, k by n after transposition, when it is one of the matrices; null when not.
  const uint16_t* Find(const kernels::Matrix& b, int64_t k, int64_t n, ThreadPool& pool);

  int64_t Bytes() const;

 private:
  struct Image {
    PackedShape shape;
    Buffer<uint16_t> data;
    uint64_t made_in = 0;  // the epoch_ whose masters it holds
  };
  struct Weight {
    int64_t offset = 0;
    int64_t rows = 0;
    int64_t columns = 0;
    Image by_rows;
    Image by_columns;
  };

  void Make(Weight& weight, bool by_rows, bool by_columns, ThreadPool& pool);

  const kernels::Kernels& kernels_;
  std::vector<Weight> weights_;  // by offset
  const float* params_ = nullptr;
  uint64_t version_ = 0;
  uint64_t epoch_ = 0;  // counts the changes of the masters
  bool with_gradient_ = false;
};

}  // namespace ringmaster::engine
