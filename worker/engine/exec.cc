#include "worker/engine/exec.h"

namespace ringmaster::engine {
namespace {

using kernels::Matrix;
using kernels::MatrixBf16;
using kernels::Product;

// A panel of a float product: large enough that oneDNN's packing is paid back, small enough that a layer of a
// small model still gives several threads something to do.
constexpr int64_t kPanelRows = 128;
constexpr int64_t kPanelColumns = 256;

// A panel of a bfloat16 product: this many rows or columns of the larger operand, and at most this depth, so
// that the converted panel lies in the second-level cache.
constexpr int64_t kPanelDepth = 2048;
int64_t PanelWidth(int64_t extent) { return extent >= 2048 ? 256 : 128; }

int64_t Count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

// Room for `size` elements; what it held is lost when it grows.
void Grow(Buffer<uint16_t>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<uint16_t>(size);
}

}  // namespace

Exec::Exec(int threads, Precision precision, const kernels::Kernels& kernels)
    : kernels_(kernels), precision_(precision), pool_(threads) {
  if (precision == Precision::kBf16) workers_.resize(static_cast<size_t>(threads));
}

void Exec::Reserve(int64_t m, int64_t n, int64_t k) {
  if (precision_ != Precision::kBf16) return;
  Grow(whole_, std::min(m, n) * k);
  const int64_t extent = std::max(m, n);
  for (Worker& worker : workers_)
    Grow(worker.panel, std::min(PanelWidth(extent), extent) * std::min(k, kPanelDepth));
}

void Exec::ReserveHere(int64_t m, int64_t n, int64_t k) {
  // With three sides a, b, c the operands of the forward, weight and input products are pairs of the three
  // faces.
  const int64_t largest = std::max({m * k + k * n, m * k + m * n, m * n + k * n});
  for (Worker& worker : workers_) Grow(worker.panel, largest);
}

int64_t Exec::ScratchBytes() const {
  int64_t bytes = whole_.bytes();
  for (const Worker& worker : workers_) bytes += worker.panel.bytes() + worker.matmul.ScratchBytes();
  return bytes;
}

void Exec::AddEpilogue(const Product& product, const Epilogue& epilogue, int64_t row, int64_t rows,
                       int64_t column, int64_t columns) const {
  if (epilogue.bias == nullptr && epilogue.residual == nullptr) return;
  const int64_t at = row * product.ldc + column;
  kernels_.AddBias(rows, columns, product.c + at, product.ldc,
                   epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
                   epilogue.residual == nullptr ? nullptr : epilogue.residual + at, product.ldc);
}

void Exec::Matmul(const Product& product, const Epilogue& epilogue) {
  if (precision_ == Precision::kBf16)
    MatmulBf16(product, epilogue);
  else
    MatmulFp32(product, epilogue);
}

void Exec::MatmulFp32(const Product& product, const Epilogue& epilogue) {
  const int64_t down = Count(product.m, kPanelRows);
  const int64_t across = Count(product.n, kPanelColumns);
  // Neighbouring units share the panel of B.
  pool_.Run(down * across, [&](int64_t unit, int) {
    const int64_t row = unit % down * kPanelRows;
    const int64_t column = unit / down * kPanelColumns;
    Product panel = product;
    panel.m = std::min(kPanelRows, product.m - row);
    panel.n = std::min(kPanelColumns, product.n - column);
    panel.a.data = product.a.At(row, 0);
    panel.b.data = product.b.At(0, column);
    panel.c = product.c + row * product.ldc + column;
    kernels::Matmul(panel);
    AddEpilogue(product, epilogue, row, panel.m, column, panel.n);
  });
}

void Exec::MatmulBf16(const Product& product, const Epilogue& epilogue) {
  // The larger operand is cut along the side that it does not share with the other: B by columns, A by rows.
  const bool cut_b = product.n >= product.m;
  const int64_t extent = cut_b ? product.n : product.m;
  const int64_t width = PanelWidth(extent);
  Reserve(product.m, product.n, product.k);

  // The smaller one is converted as it lies in memory, packed.
  const Matrix& small = cut_b ? product.a : product.b;
  const bool rows_are_k = small.transposed == cut_b;  // whether its rows in memory run along the depth k
  const int64_t small_rows = rows_are_k ? product.k : std::min(product.m, product.n);
  const int64_t small_columns = rows_are_k ? std::min(product.m, product.n) : product.k;
  Pieces(small_rows, RowGrain(small_columns), [&](int64_t begin, int64_t end) {
    kernels_.ToBf16(end - begin, small_columns, small.data + begin * small.ld, small.ld,
                    whole_.get() + begin * small_columns, small_columns);
  });
  const MatrixBf16 whole{whole_.get(), small_columns, small.transposed};

  pool_.Run(Count(extent, width), [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t at = unit * width;
    const int64_t wide = std::min(width, extent - at);
    for (int64_t depth = 0; depth < product.k; depth += kPanelDepth) {
      const int64_t deep = std::min(kPanelDepth, product.k - depth);
      const Matrix& large = cut_b ? product.b : product.a;
      const bool depth_down = large.transposed != cut_b;  // its rows in memory run along k
      const int64_t rows = depth_down ? deep : wide;
      const int64_t columns = depth_down ? wide : deep;
      kernels_.ToBf16(rows, columns, cut_b ? large.At(depth, at) : large.At(at, depth), large.ld,
                      worker.panel.get(), columns);
      const MatrixBf16 panel{worker.panel.get(), columns, large.transposed};
      const int64_t row = cut_b ? 0 : at;
      const int64_t column = cut_b ? at : 0;
      worker.matmul.Run({.m = cut_b ? product.m : wide,
                         .n = cut_b ? wide : product.n,
                         .k = deep,
                         .a = cut_b ? MatrixBf16{whole.At(0, depth), whole.ld, whole.transposed} : panel,
                         .b = cut_b ? panel : MatrixBf16{whole.At(depth, 0), whole.ld, whole.transposed},
                         .c = product.c + row * product.ldc + column,
                         .ldc = product.ldc,
                         .accumulate = product.accumulate || depth > 0});
    }
    if (cut_b)
      AddEpilogue(product, epilogue, 0, product.m, at, wide);
    else
      AddEpilogue(product, epilogue, at, wide, 0, product.n);
  });
}

void Exec::MatmulHere(int worker, const Product& p) {
  if (precision_ != Precision::kBf16) {
    kernels::Matmul(p);
    return;
  }
  Worker& own = workers_[static_cast<size_t>(worker)];
  Grow(own.panel, p.m * p.k + p.k * p.n);
  const auto convert = [&](const Matrix& from, int64_t rows, int64_t columns, uint16_t* to) {
    if (from.transposed) std::swap(rows, columns);
    kernels_.ToBf16(rows, columns, from.data, from.ld, to, columns);
    return MatrixBf16{to, columns, from.transposed};
  };
  const MatrixBf16 a = convert(p.a, p.m, p.k, own.panel.get());
  const MatrixBf16 b = convert(p.b, p.k, p.n, own.panel.get() + p.m * p.k);
  own.matmul.Run(
      {.m = p.m, .n = p.n, .k = p.k, .a = a, .b = b, .c = p.c, .ldc = p.ldc, .accumulate = p.accumulate});
}

}  // namespace ringmaster::engine
