// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/exec.h"

#include "base/check.h"
#include "base/time.h"

namespace ringmaster::engine {
namespace {

using kernels::MatmulArgs;
using kernels::Matrix;
using kernels::MatrixBf16;

// The panel of a float product that one thread computes. A thread alone reads each packed part as often as it
// can; several threads take panels small enough that a layer of a small model has work for all of them. The
// division changes no bits (matmul.h).
struct PanelSize {
  int64_t rows, columns;
};
PanelSize PanelOf(const MatmulArgs& p, int threads) {
  if (threads == 1) return {p.m, kernels::kPackedColumns};
  return {p.m * p.n * p.k >= (int64_t{1} << 26) ? 256 : 128, 384};
}

// The piece of a bfloat16 product: its parts of both operands and its result fit the second-level cache.
constexpr int64_t kPieceRows = 512;
constexpr int64_t kPieceColumns = kernels::kMostColumns;
// Returns the columns of the weight, or rows of the transposed operand, that one unit rounds. Small products
// use smaller units, so that several threads have work.
int64_t PieceSide(int64_t extent, int64_t depth) {
  if (depth >= 8192) return 384;  // every unit reads the whole first operand
  return extent >= 512 ? 256 : 64;
}

// Results of at least this many elements are written with non-temporal stores. The limit is lower for
// gradients of weights, which are not read before all of them are complete.
constexpr int64_t kStreamedElements = 1024 * 1024;
constexpr int64_t kStreamedGradient = 128 * 1024;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t Count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

// Grows the buffer to at least `size` elements; growing discards the contents.
template <class T>
void Grow(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
}

}  // namespace

Exec::Exec(int threads, Precision precision, const kernels::Kernels& kernels)
    : kernels_(kernels), precision_(precision), pool_(threads) {
  if (precision == Precision::kBf16) workers_.resize(static_cast<size_t>(threads));
  for (int i = 0; precision == Precision::kFp32 && i < threads; ++i)
    product_scratch_.emplace_back(kernels::kMatmulScratch);
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
  // The operands of the forward product and of both gradients are pairs out of these three matrices.
  const int64_t faces = m * k + k * n + m * n;
  for (Worker& worker : workers_) Grow(worker.panel, faces - std::min({m * k, k * n, m * n}));
}

int64_t Exec::ScratchBytes() const {
  int64_t bytes = first_.bytes() + second_.bytes();
  for (const Buffer<float>& scratch : product_scratch_) bytes += scratch.bytes();
  for (const Worker& worker : workers_)
    bytes += worker.panel.bytes() + worker.out.bytes() + worker.matmul.ScratchBytes();
  return bytes;
}

void Exec::AddEpilogue(const MatmulArgs& args, const Epilogue& epilogue, int64_t row, int64_t rows,
                       int64_t column, int64_t columns) const {
  if (epilogue.bias == nullptr && epilogue.residual == nullptr) return;
  const int64_t at = row * args.ldc + column;
  kernels_.AddBias(rows, columns, args.c + at, args.ldc,
                   epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
                   epilogue.residual == nullptr ? nullptr : epilogue.residual + at, args.ldc);
}

template <class Work>
void Exec::Timed(const MatmulArgs& args, const Work& work) {
  const Time begin = Now();
  work();
  MatmulCost& cost = CostOf(args);
  cost.seconds += ToSeconds(Now() - begin);
  ++cost.calls;
}

void Exec::Matmul(const MatmulArgs& args, const Epilogue& epilogue) {
  Timed(args, [&] {
    if (precision_ != Precision::kBf16) return MatmulFp32(args, epilogue);
    ReserveBf16(args.m, args.n, args.k, args.a.transposed);
    if (args.a.transposed) {
      PackSecond(args.b, args.k, args.n);
      MultiplyTransposed(args, epilogue);
    } else {
      SliceFirst(args.a, args.m, args.k);
      MultiplyByWeight(args, epilogue);
    }
  });
}

void Exec::MatmulGradients(const MatmulArgs& weight_gradient, const MatmulArgs& input_gradient) {
  const Matrix& d = weight_gradient.b;
  CHECK(weight_gradient.a.transposed && input_gradient.b.transposed && d.data == input_gradient.a.data &&
        d.ld == input_gradient.a.ld && weight_gradient.n == input_gradient.k &&
        weight_gradient.k == input_gradient.m);
  if (precision_ != Precision::kBf16) {
    Matmul(weight_gradient);
    Matmul(input_gradient);
    return;
  }
  Timed(weight_gradient, [&] {
    ReserveBf16(weight_gradient.m, weight_gradient.n, weight_gradient.k, true);
    ReserveBf16(input_gradient.m, input_gradient.n, input_gradient.k, false);
    RoundGradient(d, weight_gradient.k, weight_gradient.n);
    MultiplyTransposed(weight_gradient, {});
  });
  Timed(input_gradient, [&] { MultiplyByWeight(input_gradient, {}); });
}

MatmulCost& Exec::CostOf(const MatmulArgs& p) {
  for (MatmulCost& cost : matmul_costs_)
    if (cost.m == p.m && cost.n == p.n && cost.k == p.k && cost.a_transposed == p.a.transposed &&
        cost.b_transposed == p.b.transposed)
      return cost;
  matmul_costs_.push_back(
      {.m = p.m, .n = p.n, .k = p.k, .a_transposed = p.a.transposed, .b_transposed = p.b.transposed});
  return matmul_costs_.back();
}

void Exec::MatmulFp32(const MatmulArgs& args, const Epilogue& epilogue) {
  if (args.m == 0 || args.n == 0) return;
  const PanelSize size = PanelOf(args, threads());
  const int64_t down = Count(args.m, size.rows);
  const int64_t across = Count(args.n, size.columns);
  // Consecutive units share the panel of B.
  pool_.Run(down * across, [&](int64_t unit, int worker) {
    const int64_t row = unit % down * size.rows;
    const int64_t column = unit / down * size.columns;
    MatmulArgs panel = args;
    panel.m = std::min(size.rows, args.m - row);
    panel.n = std::min(size.columns, args.n - column);
    panel.a.data = args.a.At(row, 0);
    panel.b.data = args.b.At(0, column);
    panel.c = args.c + row * args.ldc + column;
    kernels_.MatmulFp32(panel, product_scratch_[static_cast<size_t>(worker)].get());
    AddEpilogue(args, epilogue, row, panel.m, column, panel.n);
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
  // A unit reads its rows of d from memory once: the second conversion finds them in cache.
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
  const MatmulArgs& p = piece.args;
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
  // Both operands are zero-padded, because oneDNN is fast with dense rows only.
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

void Exec::MultiplyByWeight(const MatmulArgs& args, const Epilogue& epilogue) {
  CHECK(!args.accumulate || epilogue.residual == nullptr);
  const int64_t k = args.k;
  const Matrix& b = args.b;
  const int64_t slice = PackedMatrix::SliceDepth(k);
  const int64_t side = PieceSide(args.n, k);
  const int64_t all = RoundUp(args.m, kernels::kTileRows);
  const int64_t down = Count(args.m, kPieceRows);
  const int64_t units = down * Count(args.n, side);
  // Returns the part of B that a unit packs for a slice, to prefetch it.
  const auto part = [&](int64_t unit, int64_t depth) {
    const int64_t column = unit / down * side;
    const int64_t columns = std::min(side, args.n - column);
    const int64_t deep = std::min(slice, k - depth);
    return kernels::PrefetchRegion{b.At(depth, column), b.transposed ? columns : deep,
                                   b.transposed ? deep : columns, b.ld};
  };
  pool_.Run(units, [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t row = unit % down * kPieceRows;
    const int64_t column = unit / down * side;
    const Piece piece{
        args, epilogue, row, std::min(kPieceRows, args.m - row), column, std::min(side, args.n - column)};
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      const int64_t padded = RoundUp(deep, kernels::kStripDepth);
      const int64_t stride = padded * kernels::kStripColumns;
      (b.transposed ? kernels_.PackColumns : kernels_.PackRows)(deep, piece.columns, b.At(depth, column),
                                                                b.ld, worker.panel.get(), stride);
      const int64_t next = unit + threads();  // most likely taken by the same worker
      const kernels::PrefetchRegion ahead = depth + slice < k ? part(unit, depth + slice)
                                            : next < units    ? part(next, 0)
                                                              : kernels::PrefetchRegion{};
      MultiplySlice(worker, piece, depth, first_.get() + depth * all + row * padded,
                    {worker.panel.get(), stride}, ahead);
    }
  });
}

void Exec::MultiplyTransposed(const MatmulArgs& args, const Epilogue& epilogue) {
  CHECK(!args.accumulate || epilogue.residual == nullptr);
  const int64_t k = args.k;
  const Matrix& a = args.a;
  const PackedMatrix packed{k, args.n};
  const int64_t slice = PackedMatrix::SliceDepth(k);
  const int64_t side = PieceSide(args.m, k);
  pool_.Run(Count(args.m, side), [&](int64_t unit, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t row = unit * side;
    const int64_t rows = std::min(side, args.m - row);
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      kernels_.TransposeToBf16(deep, rows, a.At(row, depth), a.ld, worker.panel.get() + depth * side,
                               RoundUp(deep, kernels::kStripDepth));
    }
    // Multiply the rows of the transpose by all of the second operand.
    for (int64_t column = 0; column < args.n; column += kPieceColumns) {
      const Piece piece{args, epilogue, row, rows, column, std::min(kPieceColumns, args.n - column)};
      for (int64_t depth = 0; depth < k; depth += slice)
        MultiplySlice(worker, piece, depth, worker.panel.get() + depth * side,
                      {second_.get() + packed.At(depth, column), packed.Stride(depth)}, {});
    }
  });
}

void Exec::MatmulSerial(int worker, const MatmulArgs& p) {
  if (precision_ != Precision::kBf16) {
    kernels_.MatmulFp32(p, product_scratch_[static_cast<size_t>(worker)].get());
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
