// SPDX-License-Identifier: Apache-2.0

// Measures GPT-2 on one GPU and prints JSON lines, of which bench/gpu/run makes a report.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "bench/gpu/ceilings.h"
#include "bench/gpu/parts.h"
#include "bench/gpu/training.h"
#include "worker/compute/cuda/runtime/device_properties.h"

namespace ringmaster::bench {
namespace {

struct Flags {
  engine::ModelConfig model{.kind = engine::ModelKind::kGpt,
                            .layers = 12,
                            .heads = 12,
                            .width = 768,
                            .context = 1024,
                            .vocabulary = 50257,
                            .max_samples = 64};
  std::string precision = "bf16";
  std::string numerics = "exact";
  std::string folder;
  int warm_up = 20;
  int steps = 50;
};

Training::Setup SetupOf(const Flags& flags, int64_t dataset_samples) {
  return {.model = flags.model, .exact = flags.numerics == "exact", .dataset_samples = dataset_samples};
}

// Prints the GPU and its driver.
Status Machine(const Flags&) {
  RM_ASSIGN(const auto devices, cuda::ListDevices());
  if (devices.empty()) return Error{Code::kUnavailable, "this process sees no GPU"};
  const cuda::DeviceProperties& facts = devices.front();
  fmt::print(
      R"({{"name": "{}", "uuid": "{}", "architecture": {}, "memory_gib": {:.1f}, "cuda": {}, "driver_cuda": {}}})"
      "\n",
      facts.name, facts.uuid, facts.architecture, static_cast<double>(facts.memory_bytes) / (1 << 30),
      facts.runtime, facts.driver);
  return Ok();
}

// Prints the losses of the first steps, and writes to --folder what another program needs to repeat them.
Status Curve(const Flags& flags) {
  RM_ASSIGN(const auto training, Training::Create(SetupOf(flags, 2 * int64_t{flags.model.max_samples})));
  RM_TRY(training->Write(flags.folder, flags.steps));
  for (int step = 1; step <= flags.steps; ++step) {
    RM_ASSIGN(const trainer::StepResult result, training->Step());
    fmt::print(R"({{"step": {}, "loss": {:.6f}, "norm": {:.6f}}})"
               "\n",
               step, result.loss, result.gradient_norm);
  }
  return Ok();
}

// Prints the median time of a step, and the times of its products when they were measured. Writes to
// --folder, if given, what another program needs to repeat the steps.
Status Speed(const Flags& flags) {
  RM_ASSIGN(const auto training, Training::Create(SetupOf(flags, int64_t{1} << 20)));
  if (!flags.folder.empty()) RM_TRY(training->Write(flags.folder, flags.warm_up + flags.steps));
  for (int step = 0; step < flags.warm_up; ++step) RM_TRY(training->Step());
  RM_TRY(training->Finish());
  std::vector<double> times;
  double loss = 0;
  const Time begin = Now();
  for (int step = 0; step < flags.steps; ++step) {
    const Time before = Now();
    RM_ASSIGN(const trainer::StepResult result, training->Step());
    times.push_back(ToSeconds(Now() - before));
    loss = result.loss;
  }
  RM_TRY(training->Finish());
  const double mean = ToSeconds(Now() - begin) / flags.steps;
  std::ranges::sort(times);
  fmt::print(R"({{"median_s": {:.6f}, "mean_s": {:.6f}, "loss": {:.4f}, "parameters": {}, "elements": {}}})"
             "\n",
             times[times.size() / 2], mean, loss, training->model().layout().trainable,
             training->model().layout().elements);
  const int all_steps = flags.warm_up + flags.steps;
  for (const engine::MatmulCost& effort : training->model().MatmulCosts())
    fmt::print(
        R"({{"product": "{}{} x {}{} x {}", "calls": {:.2f}, "milliseconds": {:.5f}, "flops": {:.6e}}})"
        "\n",
        effort.m, effort.a_transposed ? "t" : "", effort.n, effort.b_transposed ? "t" : "", effort.k,
        static_cast<double>(effort.calls) / all_steps,
        effort.calls > 0 ? effort.seconds * 1e3 / static_cast<double>(effort.calls) : 0.0,
        effort.calls > 0 ? effort.Flops() / static_cast<double>(effort.calls) : 0.0);
  return Ok();
}

// Prints the highest rates of the GPU, and the time of each kernel of a step.
Status Parts(const Flags& flags) {
  RM_TRY(cuda::BindDevice(0));
  const bool tiny = flags.model.width < 256;
  int64_t elements = 0;
  {
    RM_ASSIGN(const auto training, Training::Create(SetupOf(flags, 1)));
    elements = training->model().layout().elements;
  }
  RM_ASSIGN(const auto stream, cuda::OwnedStream::Create());
  {
    RM_ASSIGN(const auto gemm, cuda::Gemm::Create({.cache_folder = ""}));
    RM_ASSIGN(const Ceilings ceilings,
              MeasureCeilings(stream.get(), *gemm, tiny ? 64 : 8192, int64_t{1} << (tiny ? 16 : 30)));
    fmt::print(R"({{"products_tflops": {:.3f}, "sustained_tflops": {:.3f}, "copy_gbps": {:.3f}}})"
               "\n",
               ceilings.products_tflops, ceilings.sustained_tflops, ceilings.copy_gbps);
  }
  RM_ASSIGN(const auto parts, MeasureParts(stream.get(), flags.model, elements));
  for (const Part& part : parts)
    fmt::print(
        R"({{"part": "{}", "by": "{}", "calls": {}, "milliseconds": {:.5f}, "bytes": {:.6e}, "flops": {:.6e}, "counted": {}}})"
        "\n",
        part.name, part.by, part.calls, part.milliseconds, part.bytes, part.flops, part.counted);
  return Ok();
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster;
  bench::Flags flags;
  const std::map<std::string, std::function<Status(const bench::Flags&)>> modes = {
      {"machine", bench::Machine}, {"curve", bench::Curve}, {"speed", bench::Speed}, {"parts", bench::Parts}};
  std::string mode;
  CLI::App app{"Measure GPT-2 on one GPU, in JSON lines; bench/gpu/run makes a report of them."};
  app.add_option("mode", mode, "machine, curve (losses), speed, parts (each kernel)")
      ->required()
      ->check(CLI::IsMember({"machine", "curve", "speed", "parts"}));
  app.add_option("--layers", flags.model.layers);
  app.add_option("--heads", flags.model.heads);
  app.add_option("--width", flags.model.width);
  app.add_option("--context", flags.model.context);
  app.add_option("--vocabulary", flags.model.vocabulary);
  app.add_option("--samples", flags.model.max_samples, "samples of a step")->check(CLI::PositiveNumber);
  app.add_option("--precision", flags.precision)->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--numerics", flags.numerics)->check(CLI::IsMember({"exact", "fast"}));
  app.add_option("--folder", flags.folder, "curve, speed: folder for weights, layout and tokens");
  app.add_option("--warm-up", flags.warm_up, "speed: steps before the measured ones")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--steps", flags.steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  flags.model.precision = flags.precision == "bf16" ? engine::Precision::kBf16 : engine::Precision::kFp32;
  const Status done = modes.at(mode)(flags);
  if (done.ok()) return 0;
  fmt::print(stderr, "bench_gpu: {}\n", done.error().message);
  return done.error().code == Code::kUnavailable ? 3 : 1;
}
