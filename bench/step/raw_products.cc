#include "bench/step/raw_products.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/time.h"

extern "C" void omp_set_num_threads(int threads);

namespace ringmaster::bench {
namespace {

template <class Work>
double Best(double flops, const Work& work) {
  const int repeat = static_cast<int>(std::clamp(4e9 / flops, 1.0, 200.0));
  double best = 1e9;
  work();
  for (int round = 0; round < 3; ++round) {
    const Time begin = Now();
    for (int i = 0; i < repeat; ++i) work();
    best = std::min(best, ToSeconds(Now() - begin) / repeat);
  }
  return best;
}

}  // namespace

std::vector<ProductShape> ProductsOf(const engine::ModelConfig& config, int samples) {
  const int64_t rows = static_cast<int64_t>(samples) * config.context;
  const int64_t c = config.width;
  std::vector<ProductShape> out;
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

double RawSeconds(const ProductShape& s, engine::Precision precision, int threads) {
  using Memory = dnnl::memory;
  omp_set_num_threads(threads);
  const bool bf16 = precision == engine::Precision::kBf16;
  std::vector<float> a(static_cast<size_t>(s.m * s.k), 0.5f), b(static_cast<size_t>(s.k * s.n), 0.25f);
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(cpu);
  const auto type = bf16 ? Memory::data_type::bf16 : Memory::data_type::f32;
  const Memory::desc a_desc({s.m, s.k}, type, s.a_transposed ? Memory::dims{1, s.m} : Memory::dims{s.k, 1});
  const Memory::desc b_desc({s.k, s.n}, type, s.b_transposed ? Memory::dims{1, s.k} : Memory::dims{s.n, 1});
  const Memory::desc c_desc({s.m, s.n}, Memory::data_type::f32, Memory::dims{s.n, 1});
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_desc, b_desc, c_desc), cpu));
  const std::unordered_map<int, Memory> arguments = {{DNNL_ARG_SRC, Memory(a_desc, cpu, a.data())},
                                                     {DNNL_ARG_WEIGHTS, Memory(b_desc, cpu, b.data())},
                                                     {DNNL_ARG_DST, Memory(c_desc, cpu, c.data())}};
  double best = Best(s.Flops(), [&] {
    product.execute(stream, arguments);
    stream.wait();
  });
  if (!bf16)
    best = std::min(best, Best(s.Flops(), [&] {
                      dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                                 a.data(), s.a_transposed ? s.m : s.k, b.data(), s.b_transposed ? s.k : s.n,
                                 0.0f, c.data(), s.n);
                    }));
  return best;
}

}  // namespace ringmaster::bench
