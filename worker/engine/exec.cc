#include "worker/engine/exec.h"

#include <bit>

#include "base/check.h"
#include "base/time.h"

namespace ringmaster::engine {
namespace {

using kernels::Matrix;
using kernels::MatrixBf16;
using kernels::Product;

// A panel of a float product: large enough that oneDNN's packing is paid back, small enough that a layer of a
// small model still gives several threads something to do.
constexpr int64_t kPanelColumns = 384;
int64_t PanelRows(const Product& p) { return p.m * p.n * p.k >= (int64_t{1} << 26) ? 256 : 128; }

// A panel of a bfloat16 product: this many rows or columns of the larger operand, to a depth that lets the
// converted panel lie in the second-level cache, by a part of the smaller operand that lets the result lie
// there.
int64_t PanelWidth(int64_t extent) { return extent >= 2048 ? 256 : 128; }
int64_t PanelDepth(int64_t extent) { return 512 * 1024 / PanelWidth(extent); }
constexpr int64_t kPanelAcross = 512;

// Results from this size on are written past the caches.
constexpr int64_t kStreamedElements = 1024 * 1024;

int64_t Count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

// Room for `size` elements; what it held is lost when it grows.
template <class T>
void Grow(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
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
  const int64_t width = std::min(PanelWidth(extent), extent);
  for (Worker& worker : workers_) {
    Grow(worker.panel, width * std::min(k, PanelDepth(extent)));
    Grow(worker.out, width * std::min(kPanelAcross, std::min(m, n)));
  }
}

void Exec::ReserveHere(int64_t m, int64_t n, int64_t k) {
  // The operands of the forward, weight and input products are pairs of the three faces.
  const int64_t faces = m * k + k * n + m * n;
  for (Worker& worker : workers_) Grow(worker.panel, faces - std::min({m * k, k * n, m * n}));
}

int64_t Exec::ScratchBytes() const {
  int64_t bytes = whole_.bytes();
  for (const Worker& worker : workers_)
    bytes += worker.panel.bytes() + worker.out.bytes() + worker.matmul.ScratchBytes();
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
  const Time begin = Now();
  if (precision_ == Precision::kBf16)
    MatmulBf16(product, epilogue);
  else
    MatmulFp32(product, epilogue);
  effort_.seconds += ToSeconds(Now() - begin);
  effort_.flops +=
      2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
}

void Exec::MatmulFp32(const Product& product, const Epilogue& epilogue) {
  const int64_t panel_rows = PanelRows(product);
  const int64_t down = Count(product.m, panel_rows);
  const int64_t across = Count(product.n, kPanelColumns);
  // Neighbouring units share the panel of B.
  pool_.Run(down * across, [&](int64_t unit, int) {
    const int64_t row = unit % down * panel_rows;
    const int64_t column = unit / down * kPanelColumns;
    Product panel = product;
    panel.m = std::min(panel_rows, product.m - row);
    panel.n = std::min(kPanelColumns, product.n - column);
    panel.a.data = product.a.At(row, 0);
    panel.b.data = product.b.At(0, column);
    panel.c = product.c + row * product.ldc + column;
    kernels::Matmul(panel);
    AddEpilogue(product, epilogue, row, panel.m, column, panel.n);
  });
}

void Exec::MatmulBf16(const Product& product, const Epilogue& epilogue) {
  CHECK(!product.accumulate || epilogue.residual == nullptr);
  // The larger operand is cut along the side that it does not share with the other: B by columns, A by rows.
  const bool cut_b = product.n >= product.m;
  const int64_t extent = cut_b ? product.n : product.m;
  const int64_t width = PanelWidth(extent);
  Reserve(product.m, product.n, product.k);

  // The smaller one is converted as it lies in memory, in blocks of what one product takes of it. Each is
  // dense, as are the panels: oneDNN has its fast kernels for nothing else.
  const Matrix& small = cut_b ? product.a : product.b;
  const bool rows_are_k = small.transposed == cut_b;  // whether its rows in memory run along the depth k
  const int64_t across = cut_b ? product.m : product.n;
  const int64_t panel_depth = PanelDepth(extent);
  const auto block_at = [&](int64_t begin, int64_t depth) {
    return whole_.get() + begin * product.k + std::min(kPanelAcross, across - begin) * depth;
  };
  const int64_t block_rows = rows_are_k ? panel_depth : kPanelAcross;
  const int64_t block_columns = rows_are_k ? kPanelAcross : panel_depth;
  const int64_t small_rows = rows_are_k ? product.k : across;
  const int64_t small_columns = rows_are_k ? across : product.k;
  // Blocks have powers of two of rows, so that no piece lies in two.
  const auto grain = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::min(block_rows, RowGrain(small_columns)))));
  Pieces(small_rows, grain, [&](int64_t row, int64_t end) {
    const int64_t in_block = row % block_rows;
    for (int64_t column = 0; column < small_columns; column += block_columns) {
      const int64_t wide = std::min(block_columns, small_columns - column);
      uint16_t* block = rows_are_k ? block_at(column, row - in_block) : block_at(row - in_block, column);
      kernels_.ToBf16(end - row, wide, small.data + row * small.ld + column, small.ld,
                      block + in_block * wide, wide);
    }
  });

  const Matrix& large = cut_b ? product.b : product.a;
  const bool depth_down = large.transposed != cut_b;  // its rows in memory run along k
  pool_.Run(Count(extent, width), [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t at = unit * width;
    const int64_t wide = std::min(width, extent - at);
    for (int64_t begin = 0; begin < across; begin += kPanelAcross) {
      const int64_t part = std::min(kPanelAcross, across - begin);
      const int64_t rows = cut_b ? part : wide;
      const int64_t columns = cut_b ? wide : part;
      for (int64_t depth = 0; depth < product.k; depth += panel_depth) {
        const int64_t deep = std::min(panel_depth, product.k - depth);
        const int64_t panel_columns = depth_down ? wide : deep;
        // A panel of full depth serves all parts of the other operand.
        if (begin == 0 || product.k > panel_depth)
          kernels_.ToBf16(depth_down ? deep : wide, panel_columns,
                          cut_b ? large.At(depth, at) : large.At(at, depth), large.ld, worker.panel.get(),
                          panel_columns);
        const MatrixBf16 panel{worker.panel.get(), panel_columns, large.transposed};
        const MatrixBf16 other{block_at(begin, depth), rows_are_k ? part : deep, small.transposed};
        worker.matmul.Run({.m = rows,
                           .n = columns,
                           .k = deep,
                           .a = cut_b ? other : panel,
                           .b = cut_b ? panel : other,
                           .c = worker.out.get(),
                           .ldc = columns,
                           .accumulate = depth > 0});
      }
      const int64_t row = cut_b ? begin : at;
      const int64_t column = cut_b ? at : begin;
      float* c = product.c + row * product.ldc + column;
      const float* residual =
          epilogue.residual == nullptr ? nullptr : epilogue.residual + row * product.ldc + column;
      kernels_.StorePanel(rows, columns, worker.out.get(), columns,
                          epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
                          product.accumulate ? c : residual, product.ldc,
                          product.m * product.n >= kStreamedElements, c, product.ldc);
    }
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
