#include "worker/engine/exec.h"

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

// A piece of a bfloat16 product: what it takes of both operands and its result lie in the second-level cache.
constexpr int64_t kPieceRows = 512;
constexpr int64_t kPieceColumns = 512;
// Columns of a piece when rows are few and the second operand is large; rows, when the first one is
// transposed. Small products are cut smaller, so that several threads have something to do.
int64_t PieceSide(int64_t extent, int64_t depth) {
  if (depth >= 8192) return 384;  // every piece reads the whole first operand
  return extent >= 512 ? 256 : 64;
}

// Results from this size on are written past the caches.
constexpr int64_t kStreamedElements = 1024 * 1024;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t Count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

// Room for `size` elements; what it held is lost when it grows.
template <class T>
void Grow(Buffer<T>& buffer, int64_t size) {
  if (buffer.size() < size) buffer = Buffer<T>(size);
}

}  // namespace

Exec::Exec(int threads, Precision precision, const kernels::Kernels& kernels)
    : kernels_(kernels), precision_(precision), pool_(threads), weights_(kernels) {
  if (precision == Precision::kBf16) workers_.resize(static_cast<size_t>(threads));
}

void Exec::AddWeight(const Weight& w, int64_t rows) {
  if (precision_ != Precision::kBf16) return;
  weights_.Add(w.offset, w.transposed ? w.out : w.in, w.transposed ? w.in : w.out,
               !w.transposed || w.input_gradient, w.transposed || w.input_gradient);
  ReserveBf16(rows, w.out, w.in, false, true);
  if (w.input_gradient) ReserveBf16(rows, w.in, w.out, false, true);
  ReserveBf16(w.transposed ? w.out : w.in, w.transposed ? w.in : w.out, rows, true, false);
}

void Exec::ReserveBf16(int64_t m, int64_t n, int64_t k, bool a_transposed, bool known) {
  const int64_t side = PieceSide(a_transposed ? m : n, k);
  if (!a_transposed) Grow(first_, m * k);
  if (!known) Grow(second_, PackedShape{k, n}.Size());
  for (Worker& worker : workers_) {
    if (a_transposed) Grow(worker.panel, side * RoundUp(k, kernels::kStripDepth));
    Grow(worker.out, a_transposed ? side * std::min(kPieceColumns, n) : std::min(kPieceRows, m) * side);
  }
}

void Exec::ReserveHere(int64_t m, int64_t n, int64_t k) {
  // The operands of the forward, weight and input products are pairs of the three faces.
  const int64_t faces = m * k + k * n + m * n;
  for (Worker& worker : workers_) Grow(worker.panel, faces - std::min({m * k, k * n, m * n}));
}

int64_t Exec::ScratchBytes() const {
  int64_t bytes = weights_.Bytes() + first_.bytes() + second_.bytes();
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

template <class Work>
void Exec::Timed(const Product& product, const Work& work) {
  const Time begin = Now();
  ProductEffort& effort = EffortOf(product);
  work(effort);
  effort.seconds += ToSeconds(Now() - begin);
  ++effort.calls;
}

void Exec::Matmul(const Product& product, const Epilogue& epilogue) {
  Timed(product, [&](ProductEffort& effort) {
    if (precision_ != Precision::kBf16) return MatmulFp32(product, epilogue);
    const uint16_t* second = SecondOf(product, effort);
    if (!product.a.transposed) SliceFirst(product.a, product.m, product.k);
    MultiplyBf16(product, epilogue, second);
  });
}

void Exec::MatmulGradients(const Product& of_weight, const Product& of_input) {
  const Matrix& d = of_weight.b;
  CHECK(of_weight.a.transposed && of_input.b.transposed && d.data == of_input.a.data &&
        d.ld == of_input.a.ld && of_weight.n == of_input.k && of_weight.k == of_input.m);
  if (precision_ != Precision::kBf16) {
    Matmul(of_weight);
    Matmul(of_input);
    return;
  }
  Timed(of_weight, [&](ProductEffort&) {
    ReserveBf16(of_weight.m, of_weight.n, of_weight.k, true, false);
    ReserveBf16(of_input.m, of_input.n, of_input.k, false, true);
    RoundGradient(d, of_weight.k, of_weight.n);
    MultiplyBf16(of_weight, {}, second_.get());
  });
  Timed(of_input, [&](ProductEffort& effort) { MultiplyBf16(of_input, {}, SecondOf(of_input, effort)); });
}

ProductEffort& Exec::EffortOf(const Product& p) {
  for (ProductEffort& effort : effort_)
    if (effort.m == p.m && effort.n == p.n && effort.k == p.k && effort.a_transposed == p.a.transposed &&
        effort.b_transposed == p.b.transposed)
      return effort;
  effort_.push_back(
      {.m = p.m, .n = p.n, .k = p.k, .a_transposed = p.a.transposed, .b_transposed = p.b.transposed});
  return effort_.back();
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

void Exec::PackSecond(const Matrix& b, int64_t k, int64_t n) {
  const PackedShape shape{k, n};
  const int64_t slice = PackedShape::SliceDepth(k);
  const int64_t across = Count(n, kPieceColumns);
  pool_.Run(Count(k, slice) * across, [&](int64_t unit, int) {
    const int64_t depth = unit / across * slice;
    const int64_t column = unit % across * kPieceColumns;
    (b.transposed ? kernels_.PackColumns : kernels_.PackRows)(
        std::min(slice, k - depth), std::min(kPieceColumns, n - column), b.At(depth, column), b.ld,
        second_.get() + shape.At(depth, column), shape.Stride(depth));
  });
}

void Exec::SliceFirst(const Matrix& a, int64_t m, int64_t k) {
  const int64_t slice = PackedShape::SliceDepth(k);
  Pieces(m, RowGrain(k), [&](int64_t row, int64_t end) {
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      kernels_.ToBf16(end - row, deep, a.At(row, depth), a.ld, first_.get() + depth * m + row * deep, deep);
    }
  });
}

void Exec::RoundGradient(const Matrix& d, int64_t rows, int64_t columns) {
  const PackedShape packed{rows, columns};
  const int64_t packed_slice = PackedShape::SliceDepth(rows);
  const int64_t slice = PackedShape::SliceDepth(columns);
  // What a unit has read for one image it finds in cache for the other.
  pool_.Run(Count(rows, kernels::kStripDepth), [&](int64_t unit, int) {
    const int64_t row = unit * kernels::kStripDepth;
    const int64_t tall = std::min(kernels::kStripDepth, rows - row);
    const int64_t depth = row / packed_slice * packed_slice;
    for (int64_t column = 0; column < columns; column += kPieceColumns)
      kernels_.PackRows(tall, std::min(kPieceColumns, columns - column), d.At(row, column), d.ld,
                        second_.get() + packed.At(depth, column) + (row - depth) * kernels::kStripColumns,
                        packed.Stride(depth));
    for (int64_t column = 0; column < columns; column += slice) {
      const int64_t wide = std::min(slice, columns - column);
      kernels_.ToBf16(tall, wide, d.At(row, column), d.ld, first_.get() + column * rows + row * wide, wide);
    }
  });
}

const uint16_t* Exec::SecondOf(const Product& product, ProductEffort& effort) {
  const Time begin = Now();
  const uint16_t* known = weights_.Find(product.b, product.k, product.n, pool_);
  effort.rounding += ToSeconds(Now() - begin);
  ReserveBf16(product.m, product.n, product.k, product.a.transposed, known != nullptr);
  if (known != nullptr) return known;
  PackSecond(product.b, product.k, product.n);
  return second_.get();
}

void Exec::MultiplyBf16(const Product& product, const Epilogue& epilogue, const uint16_t* second) {
  CHECK(!product.accumulate || epilogue.residual == nullptr);
  const int64_t m = product.m;
  const int64_t n = product.n;
  const int64_t k = product.k;
  const Matrix& a = product.a;
  const PackedShape packed{k, n};
  const int64_t slice = PackedShape::SliceDepth(k);
  const int64_t side = PieceSide(a.transposed ? m : n, k);
  const int64_t rows = a.transposed ? side : kPieceRows;
  const int64_t columns = a.transposed ? kPieceColumns : side;

  const auto piece = [&](int64_t row, int64_t column, int index) {
    Worker& worker = workers_[static_cast<size_t>(index)];
    const int64_t tall = std::min(rows, m - row);
    const int64_t wide = std::min(columns, n - column);
    for (int64_t depth = 0; depth < k; depth += slice) {
      const int64_t deep = std::min(slice, k - depth);
      const MatrixBf16 left = a.transposed
                                  ? MatrixBf16{worker.panel.get() + depth, RoundUp(k, kernels::kStripDepth)}
                                  : MatrixBf16{first_.get() + depth * m + row * deep, deep};
      worker.matmul.Run({.m = tall,
                         .n = wide,
                         .k = deep,
                         .a = left,
                         .b = {second + packed.At(depth, column)},
                         .c = worker.out.get(),
                         .ldc = wide,
                         .accumulate = depth > 0,
                         .b_packed = true});
    }
    float* c = product.c + row * product.ldc + column;
    const float* residual =
        epilogue.residual == nullptr ? nullptr : epilogue.residual + row * product.ldc + column;
    kernels_.StorePanel(
        tall, wide, worker.out.get(), wide, epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
        product.accumulate ? c : residual, product.ldc, m * n >= kStreamedElements, c, product.ldc);
  };
  if (a.transposed) {
    // Rows of the transpose are made where they are used, and meet all of the second operand.
    pool_.Run(Count(m, rows), [&](int64_t unit, int index) {
      const int64_t row = unit * rows;
      kernels_.TransposeToBf16(k, std::min(rows, m - row), a.At(row, 0), a.ld,
                               workers_[static_cast<size_t>(index)].panel.get(),
                               RoundUp(k, kernels::kStripDepth));
      for (int64_t column = 0; column < n; column += columns) piece(row, column, index);
    });
    return;
  }
  const int64_t down = Count(m, rows);
  pool_.Run(down * Count(n, columns),
            [&](int64_t unit, int index) { piece(unit % down * rows, unit / down * columns, index); });
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
