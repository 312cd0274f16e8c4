// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/exec.h"

#include "base/check.h"
#include "base/time.h"

namespace ringmaster::engine {
namespace {

using kernels::MatmulArgs;
using kernels::Matrix;
using kernels::MatrixBf16;

// A panel of a float product: large enough that oneDNN's packing is paid back, small enough that a layer of a
// small model still gives several threads something to do.
constexpr int64_t kPanelColumns = 384;
int64_t PanelRows(const MatmulArgs& p) { return p.m * p.n * p.k >= (int64_t{1} << 26) ? 256 : 128; }

// A piece of a bfloat16 product: what it takes of both operands and its result lie in the second-level cache.
constexpr int64_t kPieceRows = 512;
constexpr int64_t kPieceColumns = kernels::kMostColumns;
// Columns of the weight, or rows of the transposed operand, that a unit rounds for itself. Small products are
// cut smaller, so that several threads have something to do.
int64_t PieceSide(int64_t extent, int64_t depth) {
  if (depth >= 8192) return 384;  // every unit reads the whole first operand
  return extent >= 512 ? 256 : 64;
}

// Results from this size on are written past the caches; gradients of weights are not read before all of them
// are there.
constexpr int64_t kStreamedElements = 1024 * 1024;
constexpr int64_t kStreamedGradient = 128 * 1024;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
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

void Exec::Reserve(const Weight& w, int64_t rows) {
  if (precision_ != Precision::kBf16) return;
  ReserveBf16(rows, w.out, w.in, false);
  ReserveBf16(rows, w.in, w.out, false);
  ReserveBf16(w.transposed ? w.out : w.in, w.transposed ? w.in : w.out, rows, true);
}

void Exec::ReserveBf16(int64_t m, int64_t n, int64_t k, bool a_transposed) {
  const int64_t side = PieceSide(a_transposed ? m : n, k);
  const int64_t depth = RoundUp(k, kernels::kStripDepth);
  if (a_transposed) {
    Grow(second_, PackedMatrix{k, n}.Size());
  } else {
    Grow(first_, RoundUp(m, kernels::kTileRows) * depth);
  }
  const int64_t rows = a_transposed ? side : RoundUp(std::min(kPieceRows, m), kernels::kTileRows);
  const int64_t columns = a_transposed ? RoundUp(std::min(kPieceColumns, n), kernels::kStripColumns) : side;
  for (Worker& worker : workers_) {
    Grow(worker.panel, side * (a_transposed ? depth : std::min(depth, PackedMatrix::kLargestSlice)));
    Grow(worker.out, rows * columns);
  }
}

void Exec::ReserveSerial(int64_t m, int64_t n, int64_t k) {
  // The operands of the forward, weight and input products are pairs of the three faces.
  const int64_t faces = m * k + k * n + m * n;
  for (Worker& worker : workers_) Grow(worker.panel, faces - std::min({m * k, k * n, m * n}));
}

int64_t Exec::ScratchBytes() const {
  int64_t bytes = first_.bytes() + second_.bytes();
  for (const Worker& worker : workers_)
    bytes += worker.panel.bytes() + worker.out.bytes() + worker.matmul.ScratchBytes();
  return bytes;
}

void Exec::AddEpilogue(const MatmulArgs& product, const Epilogue& epilogue, int64_t row, int64_t rows,
                       int64_t column, int64_t columns) const {
  if (epilogue.bias == nullptr && epilogue.residual == nullptr) return;
  const int64_t at = row * product.ldc + column;
  kernels_.AddBias(rows, columns, product.c + at, product.ldc,
                   epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
                   epilogue.residual == nullptr ? nullptr : epilogue.residual + at, product.ldc);
}

template <class Work>
void Exec::Timed(const MatmulArgs& product, const Work& work) {
  const Time begin = Now();
  work();
  MatmulCost& effort = CostOf(product);
  effort.seconds += ToSeconds(Now() - begin);
  ++effort.calls;
}

void Exec::Matmul(const MatmulArgs& product, const Epilogue& epilogue) {
  Timed(product, [&] {
    if (precision_ != Precision::kBf16) return MatmulFp32(product, epilogue);
    ReserveBf16(product.m, product.n, product.k, product.a.transposed);
    if (product.a.transposed) {
      PackSecond(product.b, product.k, product.n);
      MultiplyTransposed(product, epilogue);
    } else {
      SliceFirst(product.a, product.m, product.k);
      MultiplyByWeight(product, epilogue);
    }
  });
}

void Exec::MatmulGradients(const MatmulArgs& of_weight, const MatmulArgs& of_input) {
  const Matrix& d = of_weight.b;
  CHECK(of_weight.a.transposed && of_input.b.transposed && d.data == of_input.a.data &&
        d.ld == of_input.a.ld && of_weight.n == of_input.k && of_weight.k == of_input.m);
  if (precision_ != Precision::kBf16) {
    Matmul(of_weight);
    Matmul(of_input);
    return;
  }
  Timed(of_weight, [&] {
    ReserveBf16(of_weight.m, of_weight.n, of_weight.k, true);
    ReserveBf16(of_input.m, of_input.n, of_input.k, false);
    RoundGradient(d, of_weight.k, of_weight.n);
    MultiplyTransposed(of_weight, {});
  });
  Timed(of_input, [&] { MultiplyByWeight(of_input, {}); });
}

MatmulCost& Exec::CostOf(const MatmulArgs& p) {
  for (MatmulCost& effort : matmul_costs_)
    if (effort.m == p.m && effort.n == p.n && effort.k == p.k && effort.a_transposed == p.a.transposed &&
        effort.b_transposed == p.b.transposed)
      return effort;
  matmul_costs_.push_back(
      {.m = p.m, .n = p.n, .k = p.k, .a_transposed = p.a.transposed, .b_transposed = p.b.transposed});
  return matmul_costs_.back();
}

void Exec::MatmulFp32(const MatmulArgs& product, const Epilogue& epilogue) {
  const int64_t panel_rows = PanelRows(product);
  const int64_t down = Count(product.m, panel_rows);
  const int64_t across = Count(product.n, kPanelColumns);
  // Neighbouring units share the panel of B.
  pool_.Run(down * across, [&](int64_t unit, int) {
    const int64_t row = unit % down * panel_rows;
    const int64_t column = unit / down * kPanelColumns;
    MatmulArgs panel = product;
    panel.m = std::min(panel_rows, product.m - row);
    panel.n = std::min(kPanelColumns, product.n - column);
    panel.a.data = product.a.At(row, 0);
    panel.b.data = product.b.At(0, column);
    panel.c = product.c + row * product.ldc + column;
    kernels::Matmul(panel);
    AddEpilogue(product, epilogue, row, panel.m, column, panel.n);
  });
}

void Exec::PackSecond(const Matrix& b, int64_t k, int64_t n) {
  const PackedMatrix shape{k, n};
  const int64_t slice = PackedMatrix::SliceDepth(k);
  const int64_t across = Count(n, kPieceColumns);
  pool_.Run(Count(k, slice) * across, [&](int64_t unit, int) {
    const int64_t depth = unit / across * slice;
    const int64_t column = unit % across * kPieceColumns;
    (b.transposed ? kernels_.PackColumns : kernels_.PackRows)(
        std::min(slice, k - depth), std::min(kPieceColumns, n - column), b.At(depth, column), b.ld,
        second_.get() + shape.At(depth, column), shape.Stride(depth));
  });
}

void Exec::SliceRows(const float* x, int64_t ld, int64_t depth, int64_t k, int64_t row, int64_t rows,
                     int64_t all) {
  const int64_t deep = std::min(PackedMatrix::SliceDepth(k), k - depth);
  const int64_t padded = RoundUp(deep, kernels::kStripDepth);
  uint16_t* const to = first_.get() + depth * RoundUp(all, kernels::kTileRows) + row * padded;
  kernels_.ToBf16(rows, deep, x, ld, to, padded);
  for (int64_t r = 0; deep < padded && r < rows; ++r)
    std::fill(to + r * padded + deep, to + (r + 1) * padded, uint16_t{0});
}

void Exec::SliceFirst(const Matrix& a, int64_t m, int64_t k) {
  const int64_t slice = PackedMatrix::SliceDepth(k);
  ParallelFor(m, RowGrain(k), [&](int64_t row, int64_t end) {
    for (int64_t depth = 0; depth < k; depth += slice)
      SliceRows(a.At(row, depth), a.ld, depth, k, row, end - row, m);
  });
}

void Exec::RoundGradient(const Matrix& d, int64_t rows, int64_t columns) {
  const PackedMatrix packed{rows, columns};
  const int64_t packed_slice = PackedMatrix::SliceDepth(rows);
  const int64_t slice = PackedMatrix::SliceDepth(columns);
  // What a unit has read for one image it finds in cache for the other.
  pool_.Run(Count(rows, kernels::kStripDepth), [&](int64_t unit, int) {
    const int64_t row = unit * kernels::kStripDepth;
    const int64_t tall = std::min(kernels::kStripDepth, rows - row);
    const int64_t depth = row / packed_slice * packed_slice;
    for (int64_t column = 0; column < columns; column += kPieceColumns)
      kernels_.PackRows(tall, std::min(kPieceColumns, columns - column), d.At(row, column), d.ld,
                        second_.get() + packed.At(depth, column) + (row - depth) * kernels::kStripColumns,
                        packed.Stride(depth));
    for (int64_t column = 0; column < columns; column += slice)
      SliceRows(d.At(row, column), d.ld, column, columns, row, tall, rows);
  });
}

void Exec::MultiplySlice(Worker& worker, const Piece& piece, int64_t depth, const uint16_t* first,
                         Strips second, const kernels::PrefetchRegion& ahead) {
  const MatmulArgs& p = piece.product;
  const int64_t deep = std::min(PackedMatrix::SliceDepth(p.k), p.k - depth);
  const int64_t padded = RoundUp(deep, kernels::kStripDepth);
  const bool begins = depth == 0;
  const bool ends = depth + deep == p.k;
  const int64_t at = piece.row * p.ldc + piece.column;
  float* const c = p.c + at;
  const float* const bias = piece.epilogue.bias == nullptr ? nullptr : piece.epilogue.bias + piece.column;
  const float* const residual = p.accumulate                         ? c
                                : piece.epilogue.residual == nullptr ? nullptr
                                                                     : piece.epilogue.residual + at;
  const bool stream = p.m * p.n >= (p.a.transposed ? kStreamedGradient : kStreamedElements);
  if (kernels_.multiply_tiles != nullptr) {
    kernels_.multiply_tiles({.rows = piece.rows,
                             .columns = piece.columns,
                             .depth = padded,
                             .a = first,
                             .lda = padded,
                             .strips = second.data,
                             .stride = second.stride,
                             .sums = begins && ends ? nullptr : worker.out.get(),
                             .lds = RoundUp(piece.columns, kernels::kStripColumns),
                             .first = begins,
                             .last = ends,
                             .bias = bias,
                             .residual = residual,
                             .ldr = p.ldc,
                             .stream = stream,
                             .c = c,
                             .ldc = p.ldc,
                             .ahead = ahead});
    return;
  }
  // Padded with zeros on both sides: oneDNN is fast with dense rows only.
  worker.matmul.Run({.m = piece.rows,
                     .n = piece.columns,
                     .k = padded,
                     .a = {first, padded},
                     .b = {second.data},
                     .c = worker.out.get(),
                     .ldc = piece.columns,
                     .accumulate = !begins,
                     .b_packed = true});
  if (ends)
    kernels_.StorePanel(piece.rows, piece.columns, worker.out.get(), piece.columns, bias, residual, p.ldc,
                        stream, c, p.ldc);
}

void Exec::MultiplyByWeight(const MatmulArgs& product, const Epilogue& epilogue) {
  CHECK(!product.accumulate || epilogue.residual == nullptr);
  const int64_t k = product.k;
  const Matrix& b = product.b;
  const int64_t slice = PackedMatrix::SliceDepth(k);
  const int64_t side = PieceSide(product.n, k);
  const int64_t all = RoundUp(product.m, kernels::kTileRows);
  const int64_t down = Count(product.m, kPieceRows);
  const int64_t units = down * Count(product.n, side);
  // What a unit packs of a slice, as it lies in memory.
  const auto part = [&](int64_t unit, int64_t depth) {
    const int64_t column = unit / down * side;
    const int64_t columns = std::min(side, product.n - column);
    const int64_t deep = std::min(slice, k - depth);
    return kernels::PrefetchRegion{b.At(depth, column), b.transposed ? columns : deep,
                                   b.transposed ? deep : columns, b.ld};
  };
  pool_.Run(units, [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t row = unit % down * kPieceRows;
    const int64_t column = unit / down * side;
    const Piece piece{product, epilogue,
                      row,     std::min(kPieceRows, product.m - row),
                      column,  std::min(side, product.n - column)};
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      const int64_t padded = RoundUp(deep, kernels::kStripDepth);
      const int64_t stride = padded * kernels::kStripColumns;
      (b.transposed ? kernels_.PackColumns : kernels_.PackRows)(deep, piece.columns, b.At(depth, column),
                                                                b.ld, worker.panel.get(), stride);
      const int64_t next = unit + threads();  // most likely this worker's
      const kernels::PrefetchRegion ahead = depth + slice < k ? part(unit, depth + slice)
                                            : next < units    ? part(next, 0)
                                                              : kernels::PrefetchRegion{};
      MultiplySlice(worker, piece, depth, first_.get() + depth * all + row * padded,
                    {worker.panel.get(), stride}, ahead);
    }
  });
}

void Exec::MultiplyTransposed(const MatmulArgs& product, const Epilogue& epilogue) {
  CHECK(!product.accumulate || epilogue.residual == nullptr);
  const int64_t k = product.k;
  const Matrix& a = product.a;
  const PackedMatrix packed{k, product.n};
  const int64_t slice = PackedMatrix::SliceDepth(k);
  const int64_t side = PieceSide(product.m, k);
  pool_.Run(Count(product.m, side), [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t row = unit * side;
    const int64_t rows = std::min(side, product.m - row);
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      kernels_.TransposeToBf16(deep, rows, a.At(row, depth), a.ld, worker.panel.get() + depth * side,
                               RoundUp(deep, kernels::kStripDepth));
    }
    // Rows of the transpose meet all of the second operand.
    for (int64_t column = 0; column < product.n; column += kPieceColumns) {
      const Piece piece{product, epilogue, row, rows, column, std::min(kPieceColumns, product.n - column)};
      for (int64_t depth = 0; depth < k; depth += slice)
        MultiplySlice(worker, piece, depth, worker.panel.get() + depth * side,
                      {second_.get() + packed.At(depth, column), packed.Stride(depth)}, {});
    }
  });
}

void Exec::MatmulSerial(int worker, const MatmulArgs& p) {
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
