// One training step of GPT-2 124M on this CPU, split into its parts, with the matrix products held against
// what oneDNN alone reaches on the same shapes in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "bench/step/beside_engine.h"
#include "bench/step/raw_products.h"
#include "worker/engine/model.h"
#include "worker/optimizer/optimizer.h"

namespace ringmaster::bench {
namespace {

using engine::ModelConfig;
using engine::Precision;

struct Case {
  std::string name;
  ModelConfig config;
  int samples;
};

ModelConfig Gpt2(int context) {
  return {.kind = engine::ModelKind::kGpt,
          .layers = 12,
          .heads = 12,
          .width = 768,
          .context = context,
          .vocabulary = 50257};
}

std::vector<Case> Cases() {
  ModelConfig small{.kind = engine::ModelKind::kGpt};  // the quickstart's shape
  return {{"small", small, 2}, {"b4t64", Gpt2(64), 4}, {"b1t512", Gpt2(512), 1}};
}

struct Parts {
  double total = 0;
  double products = 0;
  double optimizer = 0;
  double flops = 0;
  int64_t elements = 0;
};

Parts Measure(const Case& c, Precision precision, int threads, int rounds) {
  ModelConfig config = c.config;
  config.precision = precision;
  config.threads = threads;
  config.max_samples = c.samples;
  auto made = engine::CreateModel(config);
  CHECK(made.ok(), "{}", made.error().message);
  engine::Model& model = **made;
  const auto elements = static_cast<size_t>(model.layout().elements);
  // Current and next of parameters and the two moments, as the trainer has them.
  std::vector<float> params(elements), grads(elements), m(elements), v(elements);
  std::vector<float> next_params(elements), next_m(elements), next_v(elements);
  model.Initialise(1, params);
  SplitMix64 random(2);
  std::vector<int32_t> tokens(static_cast<size_t>(c.samples * config.context) + 1);
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random.Below(static_cast<uint64_t>(config.vocabulary)));
  const std::span<const int32_t> all(tokens);
  const engine::Batch batch{
      .samples = c.samples, .tokens = all.first(all.size() - 1), .images = {}, .targets = all.subspan(1)};

  std::vector<Parts> measured;
  for (int round = 0; round <= rounds; ++round) {
    const engine::ProductEffort before = model.Effort();
    const Time begin = Now();
    const auto sums = model.ForwardBackward(params, batch, grads, nullptr, nullptr);
    CHECK(sums.ok());
    const Time middle = Now();
    optimizer::StepAll({}, {.step = round + 1, .learning_rate = 1e-4}, model.layout(),
                       {grads, params, m, v, next_params, next_m, next_v}, threads);
    params.swap(next_params);
    m.swap(next_m);
    v.swap(next_v);
    const Time end = Now();
    const engine::ProductEffort after = model.Effort();
    if (round == 0) continue;  // warms caches and makes oneDNN's kernels
    measured.push_back({.total = ToSeconds(end - begin),
                        .products = after.seconds - before.seconds,
                        .optimizer = ToSeconds(end - middle),
                        .flops = after.flops - before.flops,
                        .elements = model.layout().elements});
  }
  return *std::min_element(measured.begin(), measured.end(),
                           [](const Parts& a, const Parts& b) { return a.total < b.total; });
}

void Report(const Case& c, Precision precision, int threads, int rounds) {
  double raw_seconds = 0;
  double raw_flops = 0;
  const auto raw = [&] {
    double seconds = 0;
    raw_flops = 0;
    for (const ProductShape& shape : ProductsOf(c.config, c.samples)) {
      seconds += static_cast<double>(shape.count) * RawSeconds(shape, precision, threads);
      raw_flops += static_cast<double>(shape.count) * shape.Flops();
    }
    raw_seconds = raw_seconds == 0 ? seconds : std::min(raw_seconds, seconds);
  };
  raw();
  const Parts parts = Measure(c, precision, threads, rounds);
  raw();
  const double numerics = NumericsSeconds(parts.elements, rounds);
  const double all_reduce = AllReduceSeconds(parts.elements, rounds);
  const double rate = parts.flops / parts.products / 1e9;
  const double raw_rate = raw_flops / raw_seconds / 1e9;
  const double others = parts.total - parts.products - parts.optimizer;
  fmt::print(
      "{:<7} {:<5} threads {}  step {:8.2f} ms  products {:8.2f}  other kernels {:7.2f}  optimizer {:7.2f}  "
      "| beside it: exact numerics {:6.2f}  all-reduce of 2 ranks {:6.2f} |  "
      "{:7.0f} tokens/s  products {:6.1f} GFLOP/s  oneDNN alone {:6.1f}  ratio {:.2f}\n",
      c.name, precision == Precision::kBf16 ? "bf16" : "fp32", threads, parts.total * 1e3,
      parts.products * 1e3, others * 1e3, parts.optimizer * 1e3, numerics * 1e3, all_reduce * 1e3,
      c.samples * c.config.context / parts.total, rate, raw_rate, rate / raw_rate);
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster;
  CLI::App app{"One GPT-2 124M training step on this CPU, split into its parts (minimum over the rounds)."};
  int threads = 1;
  int rounds = 3;
  std::vector<std::string> names = {"small", "b4t64", "b1t512"};
  std::vector<std::string> precisions = {"fp32", "bf16"};
  app.add_option("--threads", threads, "threads of the engine, and of oneDNN beside it")
      ->check(CLI::Range(1, 256));
  app.add_option("--rounds", rounds, "steps measured, after one that warms up")->check(CLI::Range(1, 1000));
  app.add_option("--cases", names, "small (1 M parameters), b4t64, b1t512")
      ->check(CLI::IsMember({"small", "b4t64", "b1t512"}));
  app.add_option("--precision", precisions, "fp32, bf16")->check(CLI::IsMember({"fp32", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  for (const bench::Case& c : bench::Cases())
    for (const std::string& precision : precisions) {
      if (std::find(names.begin(), names.end(), c.name) == names.end()) continue;
      const auto kind = precision == "bf16" ? engine::Precision::kBf16 : engine::Precision::kFp32;
      engine::ModelConfig probe{.precision = kind};
      if (const auto made = engine::CreateModel(probe); !made.ok()) {
        fmt::print("{:<7} {:<5} skipped: {}\n", c.name, precision, made.error().message);
        continue;
      }
      bench::Report(c, kind, threads, rounds);
    }
  return 0;
}
