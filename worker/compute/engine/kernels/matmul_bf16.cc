// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/matmul_bf16.h"

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "worker/compute/engine/buffer.h"
#include "worker/compute/engine/kernels/one_thread.h"

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

}  // namespace

struct MatmulBf16::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Prepared> prepared;
  Buffer<uint8_t> scratch;
};

bool MatmulBf16::Supported() {
#if defined(__x86_64__)
  // The values are bit sets: a newer instruction set contains the bits of the older ones.
  const auto all = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & all) == all;
#else
  return false;
#endif
}

MatmulBf16::MatmulBf16() : state_(std::make_unique<State>()) {}
MatmulBf16::~MatmulBf16() = default;
MatmulBf16::MatmulBf16(MatmulBf16&&) noexcept = default;
MatmulBf16& MatmulBf16::operator=(MatmulBf16&&) noexcept = default;

int64_t MatmulBf16::ScratchBytes() const { return state_->scratch.bytes(); }

void MatmulBf16::Run(const MatmulBf16Args& p) {
  if (p.m == 0 || p.n == 0) return;
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
