// SPDX-License-Identifier: Apache-2.0

#include "bench/step/raw_matmul.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/time.h"

extern "C" void omp_set_num_threads(int threads);

namespace ringmaster::bench {
namespace {

template <class Work>
double Best(double flops, size_t sets, const Work& work) {
  const size_t repeat = std::max(sets, static_cast<size_t>(std::clamp(4e9 / flops, 1.0, 200.0)));
  double best = 1e9;
  work(0);
  for (int round = 0; round < 3; ++round) {
    const Time begin = Now();
    for (size_t i = 0; i < repeat; ++i) work(i);
    best = std::min(best, ToSeconds(Now() - begin) / static_cast<double>(repeat));
  }
  return best;
}

}  // namespace

std::vector<GemmShape> ProductsOf(const engine::ModelConfig& config, int samples) {
  const int64_t rows = static_cast<int64_t>(samples) * config.context;
  const int64_t c = config.width;
  std::vector<GemmShape> out;
  const auto layer = [&](int64_t in, int64_t wide, int64_t count, bool head) {
    out.push_back({rows, wide, in, false, head, count});   // forward
    out.push_back({rows, in, wide, false, !head, count});  // gradient of the input
    if (head)
      out.push_back({wide, in, rows, true, false, count});  // gradient of the weight
    else
      out.push_back({in, wide, rows, true, false, count});
  };
  layer(c, 3 * c, config.layers, false);
  layer(c, c, config.layers, false);
  layer(c, 4 * c, config.layers, false);
  layer(4 * c, c, config.layers, false);
  layer(c, config.vocabulary, 1, true);
  return out;
}

namespace {

double Measured(const GemmShape& s, engine::Precision precision, int threads, Operands operands) {
  using Memory = dnnl::memory;
  omp_set_num_threads(threads);
  const bool bf16 = precision == engine::Precision::kBf16;
  // kOfAStep: each call has operands at another address, as each layer does.
  const auto sets = static_cast<size_t>(operands == Operands::kOfAStep ? s.count : 1);
  const auto faces = [&](int64_t rows, int64_t columns, float value) {
    return std::vector<std::vector<float>>(sets,
                                           std::vector<float>(static_cast<size_t>(rows * columns), value));
  };
  const auto a = faces(s.m, s.k, 0.5f), b = faces(s.k, s.n, 0.25f);
  auto c = faces(s.m, s.n, 0.0f);
  const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(cpu);
  const auto type = bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
  const Memory::desc a_desc({s.m, s.k}, type, s.a_transposed ? Memory::dims{1, s.m} : Memory::dims{s.k, 1});
  const Memory::desc b_desc({s.k, s.n}, type, s.b_transposed ? Memory::dims{1, s.k} : Memory::dims{s.n, 1});
  const Memory::desc c_desc({s.m, s.n}, Memory::data_type::f32, Memory::dims{s.n, 1});
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_desc, b_desc, c_desc), cpu));
  const auto memory = [&](const Memory::desc& desc, const std::vector<float>& data) {
    return Memory(desc, cpu, const_cast<float*>(data.data()));  // oneDNN takes no const pointers
  };
  double best = Best(s.Flops(), sets, [&](size_t call) {
    const size_t set = call % sets;
    product.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, a[set])},
                             {DNNL_ARG_WEIGHTS, memory(b_desc, b[set])},
                             {DNNL_ARG_DST, memory(c_desc, c[set])}});
    stream.wait();
  });
  if (!bf16)
    best = std::min(best, Best(s.Flops(), sets, [&](size_t call) {
                      const size_t set = call % sets;
                      dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                                 a[set].data(), s.a_transposed ? s.m : s.k, b[set].data(),
                                 s.b_transposed ? s.k : s.n, 0.0f, c[set].data(), s.n);
                    }));
  return best;
}

}  // namespace

std::optional<double> RawSeconds(const GemmShape& shape, engine::Precision precision, int threads,
                                 Operands operands) {
  try {
    return Measured(shape, precision, threads, operands);
  } catch (const dnnl::error&) {  // no implementation for this CPU
    return std::nullopt;
  }
}

}  // namespace ringmaster::bench
