// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu/ceilings.h"

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/event.h"

namespace ringmaster::bench {
namespace {

constexpr int kWarmUps = 2;
constexpr int kRuns = 9;
constexpr double kSustained_ms = 2000.0 / (kWarmUps + kRuns);
constexpr int kMostCalls = 1000;

}  // namespace

Result<double> Milliseconds(cuda::Stream stream, const std::function<void()>& enqueue) {
  RM_ASSIGN(cuda::Event begin, cuda::Event::Create());
  RM_ASSIGN(cuda::Event end, cuda::Event::Create());
  std::vector<double> runs;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    begin.Record(stream);
    enqueue();
    end.Record(stream);
    RM_TRY(end.Synchronize());
    RM_ASSIGN(const double milliseconds, cuda::Event::Elapsed_ms(begin, end));
    if (i >= kWarmUps) runs.push_back(milliseconds);
  }
  std::ranges::nth_element(runs, runs.begin() + kRuns / 2);
  return runs[kRuns / 2];
}

template <class T>
Result<cuda::Buffer<T>> RandomBuffer(cuda::Stream stream, int64_t size) {
  constexpr int64_t kPattern = 1'000'003;  // elements; a prime, so that rows do not repeat each other
  RM_ASSIGN(auto buffer, cuda::Buffer<T>::Create(size));
  const int64_t count = std::min(size, kPattern);
  RM_ASSIGN(const auto host, cuda::Pinned<T>::Create(count));
  SplitMix64 random(1);
  for (int64_t i = 0; i < count; ++i)
    host.get()[i] = cuda::FromFloat<T>(static_cast<float>(2 * random.Uniform() - 1));
  for (int64_t at = 0; at < size; at += count)
    cuda::CopyToDevice(stream, buffer.get() + at, host.get(),
                       std::min(count, size - at) * static_cast<int64_t>(sizeof(T)));
  RM_TRY(cuda::Synchronize(stream));
  return buffer;
}
template Result<cuda::Buffer<float>> RandomBuffer(cuda::Stream, int64_t);
template Result<cuda::Buffer<cuda::Bf16>> RandomBuffer(cuda::Stream, int64_t);

Result<Ceilings> MeasureCeilings(cuda::Stream stream, cuda::Gemm& gemm, int64_t product_size,
                                 int64_t copy_bytes) {
  Ceilings ceilings;
  const int64_t n = product_size;
  const cuda::GemmShape shape{.m = n, .n = n, .k = n, .in = cuda::DType::kBf16, .out = cuda::DType::kBf16};
  {
    RM_TRY(gemm.Prepare(shape));
    RM_ASSIGN(const auto a, RandomBuffer<cuda::Bf16>(stream, n * n));
    RM_ASSIGN(const auto b, RandomBuffer<cuda::Bf16>(stream, n * n));
    RM_ASSIGN(const auto c, cuda::Buffer<cuda::Bf16>::Create(n * n));
    RM_ASSIGN(const double milliseconds, Milliseconds(stream, [&] {
                gemm.Run(stream, shape, {.a = a.get(), .b = b.get(), .c = c.get()});
              }));
    const auto side = static_cast<double>(n);
    const double work = 2 * side * side * side * 1e-9;
    ceilings.products_tflops = work / milliseconds;
    const int calls = std::clamp(static_cast<int>(kSustained_ms / milliseconds), 1, kMostCalls);
    RM_ASSIGN(const double sustained, Milliseconds(stream, [&] {
                for (int i = 0; i < calls; ++i)
                  gemm.Run(stream, shape, {.a = a.get(), .b = b.get(), .c = c.get()});
              }));
    ceilings.sustained_tflops = work * calls / sustained;
  }
  RM_ASSIGN(const auto from, RandomBuffer<float>(stream, copy_bytes / 4));
  RM_ASSIGN(const auto to, cuda::Buffer<float>::Create(copy_bytes / 4));
  RM_ASSIGN(const double milliseconds,
            Milliseconds(stream, [&] { cuda::CopyOnDevice(stream, to.get(), from.get(), from.bytes()); }));
  ceilings.copy_gbps = 2 * static_cast<double>(from.bytes()) / milliseconds * 1e-6;
  return ceilings;
}

}  // namespace ringmaster::bench
