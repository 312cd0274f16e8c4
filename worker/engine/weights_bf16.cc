#include "worker/engine/weights_bf16.h"

#include <algorithm>

#include "base/check.h"

namespace ringmaster::engine {
namespace {

// A piece of a matrix that is read from memory once for both images. Its rows are a page long, since to find
// the next page costs as much as to read half of one. Multiples of a strip's columns and depth, so that two
// pieces never write into one line.
constexpr int64_t kPatchRows = 64;
constexpr int64_t kPatchColumns = 1024;

// fn(begin, end) for the pieces of [begin, end) that do not cross a slice.
template <class Fn>
void BySlices(int64_t depth, int64_t begin, int64_t end, const Fn& fn) {
  const int64_t slice = PackedShape::SliceDepth(depth);
  while (begin < end) {
    const int64_t next = std::min(end, (begin / slice + 1) * slice);
    fn(begin, next);
    begin = next;
  }
}

}  // namespace

void WeightsBf16::Add(int64_t offset, int64_t rows, int64_t columns, bool by_rows, bool by_columns) {
  Weight weight{.offset = offset, .rows = rows, .columns = columns, .by_rows = {}, .by_columns = {}};
  const auto image = [](int64_t depth, int64_t n) {
    const PackedShape shape{depth, n};
    return Image{.shape = shape, .data = Buffer<uint16_t>(shape.Size())};
  };
  if (by_rows) weight.by_rows = image(rows, columns);
  if (by_columns) weight.by_columns = image(columns, rows);
  const auto at = std::ranges::lower_bound(weights_, offset, {}, &Weight::offset);
  weights_.insert(at, std::move(weight));
}

void WeightsBf16::Begin(const float* params, uint64_t version, bool with_gradient) {
  if (version == 0 || version != version_) ++epoch_;
  params_ = params;
  version_ = version;
  with_gradient_ = with_gradient;
}

const uint16_t* WeightsBf16::Find(const kernels::Matrix& b, int64_t k, int64_t n, ThreadPool& pool) {
  const auto before = [&](const Weight& weight) { return std::less<>()(params_ + weight.offset, b.data); };
  if (params_ == nullptr) return nullptr;
  const auto found = std::partition_point(weights_.begin(), weights_.end(), before);
  if (found == weights_.end() || params_ + found->offset != b.data) return nullptr;
  Weight& weight = *found;
  CHECK(weight.columns == b.ld &&
        (b.transposed ? n == weight.rows && k == weight.columns : k == weight.rows && n == weight.columns));
  Image& image = b.transposed ? weight.by_columns : weight.by_rows;
  if (image.data.size() == 0) return nullptr;
  if (image.made_in != epoch_)
    Make(weight, with_gradient_ || !b.transposed, with_gradient_ || b.transposed, pool);
  return image.data.get();
}

void WeightsBf16::Make(Weight& weight, bool by_rows, bool by_columns, ThreadPool& pool) {
  const auto stale = [&](const Image& image) { return image.data.size() > 0 && image.made_in != epoch_; };
  by_rows = by_rows && stale(weight.by_rows);
  by_columns = by_columns && stale(weight.by_columns);
  const float* from = params_ + weight.offset;
  const int64_t down = (weight.rows + kPatchRows - 1) / kPatchRows;
  const int64_t across = (weight.columns + kPatchColumns - 1) / kPatchColumns;
  pool.Run(down * across, [&](int64_t unit, int) {
    const int64_t row = unit % down * kPatchRows;
    const int64_t column = unit / down * kPatchColumns;
    const int64_t row_end = std::min(weight.rows, row + kPatchRows);
    const int64_t column_end = std::min(weight.columns, column + kPatchColumns);
    const auto pack = [&](const Image& image, kernels::PackRowsFn* kernel, int64_t k_begin, int64_t k_end,
                          int64_t n_begin, int64_t n_end, bool transposed) {
      BySlices(image.shape.depth, k_begin, k_end, [&](int64_t k, int64_t end) {
        const int64_t slice =
            k / PackedShape::SliceDepth(image.shape.depth) * PackedShape::SliceDepth(image.shape.depth);
        const float* x =
            transposed ? from + n_begin * weight.columns + k : from + k * weight.columns + n_begin;
        kernel(end - k, n_end - n_begin, x, weight.columns,
               const_cast<uint16_t*>(image.data.get()) + image.shape.At(slice, n_begin) +
                   (k - slice) * kernels::kStripColumns,
               image.shape.Stride(slice));
      });
    };
    if (by_rows) pack(weight.by_rows, kernels_.PackRows, row, row_end, column, column_end, false);
    if (by_columns) pack(weight.by_columns, kernels_.PackColumns, column, column_end, row, row_end, true);
  });
  if (by_rows) weight.by_rows.made_in = epoch_;
  if (by_columns) weight.by_columns.made_in = epoch_;
}

int64_t WeightsBf16::Bytes() const {
  int64_t bytes = 0;
  for (const Weight& weight : weights_) bytes += weight.by_rows.data.bytes() + weight.by_columns.data.bytes();
  return bytes;
}

}  // namespace ringmaster::engine
