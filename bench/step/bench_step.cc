// SPDX-License-Identifier: Apache-2.0

// Measures one training step of GPT-2 124M on this CPU by its parts, and compares the matrix products with
// oneDNN alone on the same shapes in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "bench/step/outside_engine.h"
#include "bench/step/raw_matmul.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"

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
  double optimizer = 0;
  std::vector<engine::MatmulCost> matmuls;  // of one step
  int64_t elements = 0;
};

// Returns the costs that were added since `before`.
std::vector<engine::MatmulCost> Since(const std::vector<engine::MatmulCost>& before,
                                      std::vector<engine::MatmulCost> now) {
  for (size_t i = 0; i < before.size(); ++i) {  // shapes keep their positions
    now[i].calls -= before[i].calls;
    now[i].seconds -= before[i].seconds;
  }
  return now;
}

Parts Measure(const Case& c, Precision precision, int threads, int rounds) {
  ModelConfig config = c.config;
  config.precision = precision;
  config.threads = threads;
  config.max_samples = c.samples;
  auto made = engine::CreateModel(config);
  CHECK(made.ok(), "{}", made.error().message);
  engine::Model& model = **made;
  const auto elements = static_cast<size_t>(model.layout().elements);
  // Current and next buffers of the parameters and the two moments, as in the trainer.
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
    const std::vector<engine::MatmulCost> before = model.MatmulCosts();
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
    if (round == 0) continue;  // warms caches and creates oneDNN's kernels
    measured.push_back({.total = ToSeconds(end - begin),
                        .optimizer = ToSeconds(end - middle),
                        .matmuls = Since(before, model.MatmulCosts()),
                        .elements = model.layout().elements});
  }
  return *std::min_element(measured.begin(), measured.end(),
                           [](const Parts& a, const Parts& b) { return a.total < b.total; });
}

// Returns the seconds of a step's products by oneDNN alone, measured before and after ours: per shape the
// better, infinite where oneDNN has no product for this CPU.
void MeasureRaw(const Case& c, Precision precision, int threads, Operands operands,
                std::vector<double>& seconds) {
  const std::vector<GemmShape> shapes = ProductsOf(c.config, c.samples);
  seconds.resize(shapes.size(), std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < shapes.size(); ++i)
    if (const auto one = RawSeconds(shapes[i], precision, threads, operands))
      seconds[i] = std::min(seconds[i], static_cast<double>(shapes[i].count) * *one);
}

void ReportShapes(const Case& c, const std::vector<engine::MatmulCost>& ours,
                  const std::vector<double>& raw) {
  fmt::print("{:>22} {:>6} {:>9} {:>9} {:>6}   ms\n", "m n k", "calls", "ours", "oneDNN", "ratio");
  const std::vector<GemmShape> shapes = ProductsOf(c.config, c.samples);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const GemmShape& s = shapes[i];
    for (const engine::MatmulCost& e : ours)
      if (e.m == s.m && e.n == s.n && e.k == s.k && e.a_transposed == s.a_transposed &&
          e.b_transposed == s.b_transposed && e.calls > 0)
        fmt::print(
            "{:>22} {:>6} {:>9.2f} {:>9.2f} {:>6.2f}\n",
            fmt::format("{}{} {}{} {}", s.m, s.a_transposed ? "t" : "", s.n, s.b_transposed ? "t" : "", s.k),
            e.calls, e.seconds * 1e3, raw[i] * 1e3, raw[i] / e.seconds);
  }
}

void Report(const Case& c, Precision precision, int threads, int rounds, bool by_shape) {
  std::vector<double> raw, of_a_step;
  const auto measure_raw = [&] {
    MeasureRaw(c, precision, threads, Operands::kTheSame, raw);
    MeasureRaw(c, precision, threads, Operands::kOfAStep, of_a_step);
  };
  measure_raw();
  const Parts parts = Measure(c, precision, threads, rounds);
  measure_raw();
  double products = 0;
  double flops = 0;
  for (const engine::MatmulCost& cost : parts.matmuls) {
    products += cost.seconds;
    flops += cost.Flops();
  }
  const double numerics = NumericsSeconds(parts.elements, rounds);
  const double all_reduce = AllReduceSeconds(parts.elements, rounds);
  const double rate = flops / products / 1e9;
  const auto rate_of = [&](const std::vector<double>& seconds) {
    return flops / std::accumulate(seconds.begin(), seconds.end(), 0.0) / 1e9;
  };
  const double others = parts.total - products - parts.optimizer;
  fmt::print(
      "{:<7} {:<5} threads {}  step {:8.2f} ms  products {:8.2f}  other kernels {:7.2f}  optimizer {:7.2f}  "
      "| not included: exact numerics {:6.2f}  all-reduce of 2 ranks {:6.2f} |  "
      "{:7.0f} tokens/s  products {:6.1f} GFLOP/s  oneDNN alone in cache {:6.1f}  ratio {:.2f}  "
      "oneDNN alone from memory {:6.1f}  ratio {:.2f}\n",
      c.name, precision == Precision::kBf16 ? "bf16" : "fp32", threads, parts.total * 1e3, products * 1e3,
      others * 1e3, parts.optimizer * 1e3, numerics * 1e3, all_reduce * 1e3,
      c.samples * c.config.context / parts.total, rate, rate_of(raw), rate / rate_of(raw), rate_of(of_a_step),
      rate / rate_of(of_a_step));
  if (std::isinf(raw.front())) fmt::print("oneDNN has no such products for this CPU\n");
  if (by_shape) ReportShapes(c, parts.matmuls, of_a_step);
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
  bool by_shape = false;
  app.add_flag("--shapes", by_shape, "also print each product");
  app.add_option("--threads", threads, "threads of the engine, and of oneDNN for comparison")
      ->check(CLI::Range(1, 256));
  app.add_option("--rounds", rounds, "measured steps, after one that warms up")->check(CLI::Range(1, 1000));
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
      bench::Report(c, kind, threads, rounds, by_shape);
    }
  return 0;
}
