// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/matmul_bf16.h"

#include <algorithm>
#include <bit>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "worker/compute/engine/buffer.h"
#include "worker/compute/engine/kernels/isa.h"
#include "worker/compute/engine/kernels/kernels.h"
#include "worker/compute/engine/kernels/matmul.h"
#include "worker/compute/engine/kernels/one_thread.h"
#include "worker/compute/engine/kernels/pack.h"

namespace ringmaster::engine::kernels {
namespace {

using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool, bool>;

struct Prepared {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c, scratch;
};

Prepared Prepare(const MatmulBf16Args& p, const dnnl::engine& engine) {
  using Memory = dnnl::memory;
  const auto desc = [](int64_t rows, int64_t columns, Memory::data_type type, int64_t ld, bool transposed) {
    return Memory::desc({rows, columns}, type, transposed ? Memory::dims{1, ld} : Memory::dims{ld, 1});
  };
  const Memory::desc a = desc(p.m, p.k, Memory::data_type::bf16, p.a.ld, p.a.transposed);
  const Memory::desc b =
      p.b_packed ? Memory::desc({p.k, p.n}, Memory::data_type::bf16, Memory::format_tag::BA16a64b2a)
                 : desc(p.k, p.n, Memory::data_type::bf16, p.b.ld, p.b.transposed);
  const Memory::desc c = desc(p.m, p.n, Memory::data_type::f32, p.ldc, false);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, c), attr, engine);
  return {dnnl::matmul(made), a, b, c, made.scratchpad_desc()};
}

float Widen(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// Copies rows of a matrix to contiguous rows of `columns` floats.
void WidenRows(int64_t rows, int64_t columns, const uint16_t* from, int64_t ld, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = Widen(from[r * ld + c]);
}

// Converts the strips of one slice (packed_matrix.h) of depth k, a multiple of kStripDepth, to contiguous
// rows of shape (k, columns).
void WidenStrips(int64_t k, int64_t columns, const uint16_t* strips, float* to) {
  for (int64_t first = 0; first < columns; first += kStripColumns, strips += k * kStripColumns) {
    const int64_t count = std::min(kStripColumns, columns - first);
    for (int64_t row = 0; row < k; ++row) {
      const uint16_t* const pairs = strips + row / 2 * 2 * kStripColumns + row % 2;
      for (int64_t c = 0; c < count; ++c) to[row * columns + first + c] = Widen(pairs[2 * c]);
    }
  }
}

}  // namespace

struct MatmulBf16::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Prepared> prepared;
  Buffer<uint8_t> scratch;
  Buffer<float>
      widened;  // scratch of the product, and both operands as float, on a CPU without bfloat16 products
};

bool MatmulBf16::InHardware() { return UsedIsa() >= Isa::kAvx512Bf16; }

MatmulBf16::MatmulBf16() : state_(std::make_unique<State>()) {}
MatmulBf16::~MatmulBf16() = default;
MatmulBf16::MatmulBf16(MatmulBf16&&) noexcept = default;
MatmulBf16& MatmulBf16::operator=(MatmulBf16&&) noexcept = default;

int64_t MatmulBf16::ScratchBytes() const { return state_->scratch.bytes() + state_->widened.bytes(); }

// The same product on a CPU without bfloat16 products: converts the operands to float, which is exact.
void MatmulBf16::RunInSoftware(const MatmulBf16Args& p) {
  Buffer<float>& widened = state_->widened;
  const int64_t need = kMatmulScratch + p.m * p.k + p.k * p.n;
  if (widened.size() < need) widened = Buffer<float>(need);
  float* const a = widened.get() + kMatmulScratch;
  float* const b = a + p.m * p.k;
  const auto widen = [](const MatrixBf16& from, int64_t rows, int64_t columns, float* to) {
    if (from.transposed) std::swap(rows, columns);
    WidenRows(rows, columns, from.data, from.ld, to);
    return Matrix{to, columns, from.transposed};
  };
  const Matrix first = widen(p.a, p.m, p.k, a);
  Matrix second{b, p.n, false};
  if (p.b_packed) {
    WidenStrips(p.k, p.n, p.b.data, b);
  } else {
    second = widen(p.b, p.k, p.n, b);
  }
  FastKernels().MatmulFp32({.m = p.m,
                            .n = p.n,
                            .k = p.k,
                            .a = first,
                            .b = second,
                            .c = p.c,
                            .ldc = p.ldc,
                            .accumulate = p.accumulate},
                           widened.get());
}

void MatmulBf16::Run(const MatmulBf16Args& p) {
  if (p.m == 0 || p.n == 0) return;
  if (!InHardware()) return RunInSoftware(p);
  const OneThread one_thread;
  State& s = *state_;
  try {
    const Key key{p.m,          p.n,       p.k, p.a.ld, p.b.ld, p.ldc, p.a.transposed, p.b.transposed,
                  p.accumulate, p.b_packed};
    auto found = s.prepared.find(key);
    if (found == s.prepared.end()) found = s.prepared.emplace(key, Prepare(p, s.engine)).first;
    const Prepared& prepared = found->second;
    const auto need = static_cast<int64_t>(prepared.scratch.get_size());
    if (need > s.scratch.size()) s.scratch = Buffer<uint8_t>(need);
    const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, s.engine, const_cast<void*>(data));  // the API of oneDNN has no const handles
    };
    prepared.primitive.execute(s.stream, {{DNNL_ARG_SRC, memory(prepared.a, p.a.data)},
                                          {DNNL_ARG_WEIGHTS, memory(prepared.b, p.b.data)},
                                          {DNNL_ARG_DST, memory(prepared.c, p.c)},
                                          {DNNL_ARG_SCRATCHPAD, memory(prepared.scratch, s.scratch.get())}});
    s.stream.wait();
  } catch (const dnnl::error& error) {
    CHECK(false, "oneDNN bf16 product m={} n={} k={}: {}", p.m, p.n, p.k, error.what());
  }
}

}  // namespace ringmaster::engine::kernels
