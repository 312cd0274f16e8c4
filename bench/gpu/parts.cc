// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu/parts.h"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "base/rng.h"
#include "bench/gpu/ceilings.h"
#include "worker/compute/cuda/attention.h"
#include "worker/compute/cuda/kernels/bias.h"
#include "worker/compute/cuda/kernels/convert.h"
#include "worker/compute/cuda/kernels/cross_entropy.h"
#include "worker/compute/cuda/kernels/embedding.h"
#include "worker/compute/cuda/kernels/hash.h"
#include "worker/compute/cuda/kernels/layernorm.h"
#include "worker/compute/cuda/kernels/numerics.h"
#include "worker/compute/cuda/kernels/optimizer.h"
#include "worker/compute/engine/layout.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::bench {
namespace {

using cuda::Bf16;
using cuda::Buffer;
using cuda::Stream;
namespace kernels = cuda::kernels;

// Bytes of logits that exist at a time, the models' default.
constexpr int64_t kLogitsBytes = int64_t{1} << 30;

class Table {
 public:
  explicit Table(Stream stream) : stream_(stream) {}
  Status Add(std::string name, int64_t calls, double bytes, double flops,
             const std::function<void()>& enqueue, std::string by = "", bool counted = true) {
    RM_ASSIGN(const double milliseconds, Milliseconds(stream_, enqueue));
    parts_.push_back({std::move(name), calls, std::move(by), milliseconds, bytes, flops, counted});
    return Ok();
  }
  std::vector<Part> Take() { return std::move(parts_); }

 private:
  Stream stream_;
  std::vector<Part> parts_;
};

Result<Buffer<int32_t>> RandomTokens(Stream stream, int64_t rows, int64_t vocabulary) {
  RM_ASSIGN(auto tokens, Buffer<int32_t>::Create(rows));
  RM_ASSIGN(const auto host, cuda::Pinned<int32_t>::Create(rows));
  SplitMix64 random(2);
  for (int64_t i = 0; i < rows; ++i)
    host.get()[i] = static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocabulary)));
  cuda::CopyToDevice(stream, tokens.get(), host.get(), tokens.bytes());
  RM_TRY(cuda::Synchronize(stream));
  return tokens;
}

// Adds attention by the chosen implementation, and by the other one where it exists.
template <class T>
Status OfAttention(const engine::ModelConfig& config, Stream stream, const cuda::AttentionOperands& operands,
                   Table& table) {
  const cuda::AttentionProblem problem{
      .samples = config.max_samples,
      .heads = config.heads,
      .context = config.context,
      .head_size = config.width / config.heads,
      .type = std::is_same_v<T, Bf16> ? cuda::DType::kBf16 : cuda::DType::kFloat};
  RM_ASSIGN(const cuda::DeviceProperties device, cuda::BindDevice(0));
  RM_ASSIGN(const auto attention, cuda::Attention::Create({.cache_folder = ""}, device));
  RM_TRY(attention->Prepare(problem));
  RM_ASSIGN(const auto scratch, Buffer<float>::Create(cuda::Attention::Scratch(problem)));
  const double cells = static_cast<double>(problem.samples * problem.context) * config.width;
  const double bytes = cells * sizeof(T);
  for (const auto pass : {cuda::AttentionPass::kForward, cuda::AttentionPass::kBackward}) {
    const bool forward = pass == cuda::AttentionPass::kForward;
    const cuda::AttentionBackend chosen = attention->Backend(problem, pass);
    for (const bool library : {!chosen.native(), chosen.native()}) {
      const auto run = [&] {
        return attention->RunWith(library, stream, problem, pass, operands, scratch.get());
      };
      const bool counted = library == !chosen.native();
      if (!counted && !run().ok()) continue;  // no alternative here
      const std::string by = library ? (counted ? chosen.library : "the library") : "our kernels";
      RM_TRY(table.Add(
          forward ? "attention" : "attention, backward", config.layers, (forward ? 4 : 8) * bytes,
          (forward ? 2 : 5) * cells * config.context, [&] { (void)run(); }, by, counted));
    }
  }
  return Ok();
}

// Adds the kernels that work on activations.
template <class T>
Status OfActivations(Stream stream, const engine::ModelConfig& config, Table& table) {
  const int64_t rows = int64_t{config.max_samples} * config.context;
  const int64_t c = config.width;
  const int64_t layers = config.layers;
  const int64_t vocabulary = config.vocabulary;
  const auto size = static_cast<double>(sizeof(T));
  const double narrow_bytes = static_cast<double>(rows * c) * size;
  RM_ASSIGN(const auto x, RandomBuffer<T>(stream, rows * 4 * c));
  RM_ASSIGN(const auto y, RandomBuffer<T>(stream, rows * 4 * c));
  RM_ASSIGN(const auto z, RandomBuffer<T>(stream, rows * 4 * c));
  RM_ASSIGN(const auto w, RandomBuffer<T>(stream, rows * c));
  RM_ASSIGN(const auto row, RandomBuffer<float>(stream, 4 * c));
  RM_ASSIGN(const auto row_gradient, Buffer<float>::Create(8 * c));
  RM_ASSIGN(const auto mean, RandomBuffer<float>(stream, rows));
  RM_ASSIGN(const auto rstd, RandomBuffer<float>(stream, rows));
  RM_ASSIGN(const auto tokens, RandomTokens(stream, rows, vocabulary));

  {
    RM_ASSIGN(const auto embedding, RandomBuffer<float>(stream, vocabulary * c));
    RM_ASSIGN(const auto positions, RandomBuffer<float>(stream, int64_t{config.context} * c));
    RM_ASSIGN(const auto sorted, Buffer<int32_t>::Create(kernels::EmbeddingBackwardScratch(rows)));
    RM_TRY(table.Add("embedding", 1, static_cast<double>(rows * c) * (4 + size), 0, [&] {
      kernels::EmbeddingForward<T>(stream, rows, c, config.context, tokens.get(), embedding.get(),
                                   positions.get(), x.get());
    }));
    RM_TRY(table.Add("embedding, backward", 1, 2 * narrow_bytes + static_cast<double>(rows * c) * 8, 0, [&] {
      kernels::PositionBackward<T>(stream, config.max_samples, config.context, c, y.get(), positions.get());
      kernels::EmbeddingBackward<T>(stream, rows, c, vocabulary, tokens.get(), y.get(), embedding.get(),
                                    sorted.get());
    }));
  }
  RM_TRY(table.Add("residual + LayerNorm", 2 * layers, 4 * narrow_bytes, 0, [&] {
    kernels::ResidualLayerNormForward<T>(stream, rows, c, x.get(), y.get(), row.get(), row.get(), row.get(),
                                         z.get(), w.get(), mean.get(), rstd.get());
  }));
  {
    RM_ASSIGN(const auto scratch, Buffer<float>::Create(kernels::LayerNormBackwardScratch(rows, c)));
    RM_TRY(table.Add("LayerNorm, backward", 2 * layers + 1, 4 * narrow_bytes, 0, [&] {
      kernels::LayerNormBackward<T>(stream, rows, c, x.get(), y.get(), row.get(), mean.get(), rstd.get(),
                                    true, z.get(), row_gradient.get(), row_gradient.get() + 2 * c,
                                    row_gradient.get() + 4 * c, scratch.get());
    }));
  }
  {
    RM_ASSIGN(const auto scratch, Buffer<float>::Create(kernels::ColumnSumsScratch(rows, 4 * c)));
    RM_TRY(table.Add("gradients of biases", layers, 7 * narrow_bytes, 0, [&] {
      for (const int64_t columns : {4 * c, 3 * c})
        kernels::ColumnSums<T>(stream, rows, columns, x.get(), row_gradient.get(), scratch.get());
    }));
  }
  {
    RM_ASSIGN(const auto lse, Buffer<float>::Create(rows * config.heads));
    RM_TRY(OfAttention<T>(
        config, stream,
        {.qkv = x.get(), .out = w.get(), .lse = lse.get(), .d_out = y.get(), .d_qkv = z.get()}, table));
  }
  const int64_t stride = (vocabulary + 63) / 64 * 64;
  const int64_t chunk =
      std::min(rows, std::max<int64_t>(1, kLogitsBytes / (stride * static_cast<int64_t>(sizeof(T)))));
  RM_ASSIGN(const auto logits, RandomBuffer<T>(stream, chunk * stride));
  RM_ASSIGN(const auto losses, Buffer<float>::Create(chunk));
  RM_ASSIGN(const auto hits, Buffer<uint8_t>::Create(chunk));
  return table.Add("softmax, loss and its gradient", (rows + chunk - 1) / chunk,
                   2 * static_cast<double>(chunk * stride) * size, 0, [&] {
                     kernels::CrossEntropyGradient<T>(stream, chunk, vocabulary, stride, logits.get(),
                                                      tokens.get(), mean.get(), losses.get(), hits.get());
                   });
}

// Adds the kernels that work on parameter arenas.
Status OfArenas(Stream stream, const engine::ModelConfig& config, int64_t elements, Table& table) {
  const auto arena = static_cast<double>(elements);
  const int64_t blocks = elements / engine::kBlock;
  RM_ASSIGN(const auto gradient, RandomBuffer<float>(stream, elements));
  RM_ASSIGN(const auto params, RandomBuffer<float>(stream, elements));
  RM_TRY(table.Add("gradients to zero", 1, 4 * arena, 0,
                   [&] { cuda::FillZero(stream, gradient.get(), gradient.bytes()); }));
  if (config.precision == engine::Precision::kBf16) {
    RM_ASSIGN(const auto image, Buffer<Bf16>::Create(elements));
    RM_TRY(table.Add("weights to bf16", 1, 6 * arena, 0,
                     [&] { kernels::ToBf16(stream, elements, params.get(), image.get()); }));
  }
  RM_ASSIGN(const auto sums, Buffer<int32_t>::Create(elements));
  RM_ASSIGN(const auto exponents, Buffer<int32_t>::Create(blocks));
  RM_ASSIGN(const auto maxima, Buffer<int32_t>::Create(blocks));
  constexpr int kQuantumBits = 30;
  RM_TRY(table.Add("exact sums", 1, 8 * arena, 0, [&] {
    kernels::Accumulate(stream, blocks, gradient.get(), gradient.size(), exponents.get(), kQuantumBits, 1,
                        true, sums.get(), maxima.get());
  }));
  RM_TRY(table.Add("exact sums, decoded", 1, 8 * arena, 0, [&] {
    kernels::Decode(stream, blocks, sums.get(), exponents.get(), kQuantumBits, 1, 1.0, gradient.get());
  }));
  RM_ASSIGN(const auto norm, Buffer<double>::Create(1));
  RM_ASSIGN(const auto scratch, Buffer<double>::Create(kernels::NormScratch(elements)));
  RM_TRY(table.Add("norm", 1, 4 * arena, 0,
                   [&] { kernels::Norm(stream, elements, gradient.get(), norm.get(), scratch.get()); }));
  RM_ASSIGN(const auto m, RandomBuffer<float>(stream, elements));
  RM_ASSIGN(const auto v, Buffer<float>::Create(elements));
  RM_ASSIGN(const auto next_params, Buffer<float>::Create(elements));
  RM_ASSIGN(const auto next_m, Buffer<float>::Create(elements));
  RM_ASSIGN(const auto next_v, Buffer<float>::Create(elements));
  RM_ASSIGN(const auto rules, Buffer<kernels::BlockRule>::Create(blocks));
  RM_ASSIGN(const auto host_rules, cuda::Pinned<kernels::BlockRule>::Create(blocks));
  std::fill_n(host_rules.get(), blocks, kernels::BlockRule{.live = engine::kBlock, .decays = 1});
  cuda::CopyToDevice(stream, rules.get(), host_rules.get(), rules.bytes());
  RM_ASSIGN(const auto scalars, Buffer<kernels::AdamWPair>::Create(1));
  RM_ASSIGN(const auto host_scalars, cuda::Pinned<kernels::AdamWPair>::Create(1));
  const optimizer::Config adamw{.kind = optimizer::Kind::kAdamW, .weight_decay = 0.1};
  const optimizer::StepScalars step{.step = 1, .learning_rate = 1e-3};
  *host_scalars.get() = {optimizer::MakeAdamW(adamw, step, false), optimizer::MakeAdamW(adamw, step, true)};
  cuda::CopyToDevice(stream, scalars.get(), host_scalars.get(), scalars.bytes());
  RM_TRY(cuda::Synchronize(stream));
  RM_TRY(table.Add("AdamW", 1, 28 * arena, 0, [&] {
    kernels::AdamW(stream, scalars.get(),
                   {.blocks = blocks,
                    .rules = rules.get(),
                    .gradient = gradient.get(),
                    .params = params.get(),
                    .state0 = m.get(),
                    .state1 = v.get(),
                    .next_params = next_params.get(),
                    .next_state0 = next_m.get(),
                    .next_state1 = next_v.get()});
  }));
  RM_ASSIGN(const auto hashes,
            Buffer<uint64_t>::Create(static_cast<int64_t>(HashChunkCount(next_params.bytes()))));
  return table.Add("hash of the state", 3, 4 * arena, 0,
                   [&] { kernels::HashChunks(stream, blocks, next_params.get(), hashes.get()); });
}

}  // namespace

Result<std::vector<Part>> MeasureParts(Stream stream, const engine::ModelConfig& config,
                                       int64_t arena_elements) {
  Table table(stream);
  if (config.precision == engine::Precision::kBf16) {
    RM_TRY(OfActivations<Bf16>(stream, config, table));
  } else {
    RM_TRY(OfActivations<float>(stream, config, table));
  }
  RM_TRY(OfArenas(stream, config, arena_elements, table));
  return table.Take();
}

}  // namespace ringmaster::bench
