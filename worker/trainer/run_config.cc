// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/run_config.h"

#include <fmt/format.h>

#include "api/load.h"
#include "api/slots.h"
#include "base/hash.h"
#include "worker/compute/device/build.h"
#include "worker/compute/numerics/revision.h"

namespace ringmaster::trainer {
namespace {

Error At(const char* path, const std::string& message) {
  return {Code::kInvalid, fmt::format("{}: {}", path, message)};
}

Result<double> Number(const char* path, const std::string& text) {
  auto number = api::ParseDecimal(text);
  if (!number.ok()) return number.error().In(path);
  return number;
}

Result<engine::ModelConfig> MakeModel(const api::Training& training, int threads) {
  engine::ModelConfig model;
  if (training.model.kind == "gpt")
    model.kind = engine::ModelKind::kGpt;
  else if (training.model.kind == "mlp")
    model.kind = engine::ModelKind::kMlp;
  else if (training.model.kind == "cnn")
    model.kind = engine::ModelKind::kCnn;
  else
    return At("spec.training.model.kind", "must be gpt, mlp or cnn");
  model.layers = training.model.layers;
  model.heads = training.model.heads;
  model.width = training.model.width;
  model.context = training.model.context;
  model.vocabulary = training.model.vocabulary > 0 ? training.model.vocabulary : 256;
  model.precision = training.precision == "bf16" ? engine::Precision::kBf16 : engine::Precision::kFp32;
  model.max_samples = training.batch.samplesPerStep / training.batch.microBatches;
  model.threads = threads;
  return model;
}

Result<data::Config> MakeData(const api::Training& training) {
  data::Config data;
  if (training.data.kind == "text")
    data.kind = data::Kind::kText;
  else if (training.data.kind == "tokens")
    data.kind = data::Kind::kTokens;
  else if (training.data.kind == "idx")
    data.kind = data::Kind::kIdx;
  else if (training.data.kind == "cifar10")
    data.kind = data::Kind::kCifar10;
  else
    return At("spec.training.data.kind", "must be text, tokens, idx or cifar10");
  data.path = training.data.path;
  data.validation_path = training.data.validationPath;
  RM_ASSIGN(data.validation_fraction,
            Number("spec.training.data.validationFraction", training.data.validationFraction));
  data.context = training.model.context;
  data.vocabulary = training.model.vocabulary > 0 ? training.model.vocabulary : 256;
  return data;
}

Result<optimizer::Config> MakeOptimizer(const api::Optimizer& from) {
  optimizer::Config config;
  const auto kind = optimizer::KindNamed(from.kind);
  if (!kind) return At("spec.training.optimizer.kind", "this worker has no optimizer \"" + from.kind + "\"");
  config.kind = *kind;
  RM_ASSIGN(config.momentum, Number("spec.training.optimizer.momentum", from.momentum));
  RM_ASSIGN(config.beta1, Number("spec.training.optimizer.beta1", from.beta1));
  RM_ASSIGN(config.beta2, Number("spec.training.optimizer.beta2", from.beta2));
  RM_ASSIGN(config.epsilon, Number("spec.training.optimizer.epsilon", from.epsilon));
  RM_ASSIGN(config.weight_decay, Number("spec.training.optimizer.weightDecay", from.weightDecay));
  RM_ASSIGN(config.clip_norm, Number("spec.training.optimizer.clipNorm", from.clipNorm));
  return config;
}

Result<optimizer::Schedule> MakeSchedule(const api::Optimizer& from, int64_t steps) {
  optimizer::Schedule schedule;
  if (from.schedule == "linear") schedule.kind = optimizer::ScheduleKind::kLinear;
  if (from.schedule == "cosine") schedule.kind = optimizer::ScheduleKind::kCosine;
  RM_ASSIGN(schedule.base, Number("spec.training.optimizer.learningRate", from.learningRate));
  RM_ASSIGN(schedule.final, Number("spec.training.optimizer.minLearningRate", from.minLearningRate));
  schedule.warmup_steps = from.warmupSteps;
  schedule.total_steps = steps;
  return schedule;
}

const char* KindName(engine::ModelKind kind) {
  switch (kind) {
    case engine::ModelKind::kGpt:
      return "gpt";
    case engine::ModelKind::kMlp:
      return "mlp";
    case engine::ModelKind::kCnn:
      return "cnn";
  }
  return "";
}

Json DescribeModel(const engine::ModelConfig& model) {
  return {{"kind", KindName(model.kind)},
          {"layers", model.layers},
          {"heads", model.heads},
          {"width", model.width},
          {"context", model.context},
          {"vocabulary", model.vocabulary},
          {"channels", model.channels},
          {"height", model.height},
          {"imageWidth", model.image_width},
          {"classes", model.classes},
          {"precision", model.precision == engine::Precision::kBf16 ? "bf16" : "fp32"}};
}

}  // namespace

Result<RunConfig> MakeRunConfig(const api::TrainingJob& job, int threads) {
  if (!job.spec.training.has_value()) return At("spec.training", "required with framework native");
  const api::Training& training = *job.spec.training;
  RunConfig config;
  RM_ASSIGN(config.model, MakeModel(training, threads));
  RM_ASSIGN(config.data, MakeData(training));
  RM_ASSIGN(config.optimizer, MakeOptimizer(training.optimizer));
  RM_ASSIGN(config.schedule, MakeSchedule(training.optimizer, training.steps));
  config.samples_per_step = training.batch.samplesPerStep;
  config.micro_batches = training.batch.microBatches;
  config.steps = training.steps;
  config.epochs = training.epochs;
  config.wide_sums = training.numerics == "exact64";
  config.exact = config.wide_sums || training.numerics == "exact";
  config.seed = static_cast<uint64_t>(training.seed);
  config.validate_every_steps = training.validateEverySteps;
  config.validate_samples = training.validateSamples;
  config.device = training.device;
  config.tokenizer = training.model.tokenizer;
  const api::Network& network = job.spec.network;
  config.transport = network.transport;
  config.rdma_or_fail = network.rdma && network.rdma->required && network.fallback == "fail";
  config.run = job.metadata.namespace_ + "/" + job.metadata.name;
  config.checkpoint_path = job.spec.checkpoint.path;
  config.checkpoint_from = job.spec.checkpoint.from;
  config.checkpoint_every_steps = job.spec.checkpoint.everySteps;
  config.checkpoint_keep = job.spec.checkpoint.keep;
  return config;
}

std::string DeviceOnNode(const api::TrainingJob& job, std::string_view node) {
  const api::Workers& workers = job.spec.workers;
  const std::string& device = job.spec.training->device;
  // With `slots: gpu` the operator requests a GPU that the job does not list.
  const bool requested = workers.slots == "gpu" || api::RequestsGpus(workers);
  return device == "auto" && !node.empty() && requested ? "cuda" : device;
}

Result<std::unique_ptr<data::Dataset>> OpenData(RunConfig* config, WorkCounter* counter) {
  auto opened = data::Dataset::Open(config->data, counter);
  if (!opened.ok()) return opened.error().In("spec.training.data");
  const data::Shape& shape = (*opened)->shape();
  const bool wants_tokens = config->model.kind == engine::ModelKind::kGpt;
  if (wants_tokens != shape.tokens) {
    return At("spec.training.data.kind",
              wants_tokens ? "a gpt model needs text or tokens, but the data are images"
                           : "an image model needs idx or cifar10, but the data are tokens");
  }
  if (!shape.tokens) {
    config->model.channels = shape.channels;
    config->model.height = shape.height;
    config->model.image_width = shape.width;
    config->model.classes = shape.classes;
  }
  if (config->epochs > 0) {
    config->steps =
        config->epochs * data::StepsPerEpoch((*opened)->size(data::Split::kTrain), config->samples_per_step);
    config->schedule.total_steps = config->steps;
    if (config->schedule.warmup_steps > config->steps)
      return At("spec.training.optimizer.warmupSteps",
                fmt::format("must be at most the {} steps that {} epochs of {} samples have (got {})",
                            config->steps, config->epochs, (*opened)->size(data::Split::kTrain),
                            config->schedule.warmup_steps));
  }
  return opened;
}

std::vector<std::string> DataNotes(const RunConfig& config, const data::Dataset& dataset) {
  std::vector<std::string> notes = dataset.Notes();
  if (dataset.size(data::Split::kValidation) > 0) return notes;
  if (config.data.validation_fraction > 0)
    notes.push_back(fmt::format(
        "spec.training.data.validationFraction: {:g} of {} samples is less than one sample, so nothing is "
        "validated; raise it, or set spec.training.data.validationPath",
        config.data.validation_fraction, dataset.size(data::Split::kTrain)));
  else if (config.validate_every_steps > 0)
    notes.push_back(
        "spec.training.validateEverySteps: there is no data for validation, so nothing is validated");
  return notes;
}

checkpoint::Identity IdentityOf(const RunConfig& config, const engine::Layout& layout,
                                uint64_t data_fingerprint) {
  const optimizer::Config& o = config.optimizer;
  const optimizer::Schedule& s = config.schedule;
  const bool adam = o.kind == optimizer::Kind::kAdamW;
  Json optimizer = {{"kind", adam ? "adamw" : "sgd"},
                    {"weightDecay", o.weight_decay},
                    {"clipNorm", o.clip_norm},
                    {"learningRate", s.base},
                    {"warmupSteps", s.warmup_steps}};
  if (adam)
    optimizer.update({{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}});
  else
    optimizer["momentum"] = o.momentum;
  Json training = {
      {"model", DescribeModel(config.model)},
      {"data", HashHex(data_fingerprint)},
      {"batch", {{"samplesPerStep", config.samples_per_step}, {"microBatches", config.micro_batches}}},
      {"numerics", config.wide_sums ? "exact64"
                   : config.exact   ? "exact"
                                    : "fast"},
      {"seed", config.seed}};
  if (s.kind == optimizer::ScheduleKind::kConstant) {
    optimizer["schedule"] = "constant";
  } else {
    optimizer["schedule"] = s.kind == optimizer::ScheduleKind::kLinear ? "linear" : "cosine";
    optimizer["minLearningRate"] = s.final;
  }
  training["optimizer"] = std::move(optimizer);
  training["model"]["elements"] = layout.elements;
  checkpoint::Identity identity;
  identity.run = config.run;
  identity.settings = {{"spec", {{"training", std::move(training)}}}};
  identity.notes = {{"the revision of the numerics", numerics::kRevision}};
  if (s.kind != optimizer::ScheduleKind::kConstant)
    identity.notes["spec.training.steps, on which the learning rate depends,"] = s.total_steps;
  identity.fixed = {"spec.training.model", "spec.training.optimizer.kind"};
  identity.from = config.checkpoint_from;
  const std::string prefix =
      fmt::format("{}-{}x{}", KindName(config.model.kind), config.model.layers, config.model.width);
  return checkpoint::MakeIdentity(prefix, std::move(identity));
}

std::string Fingerprint(const RunConfig& config, const engine::Layout& layout, uint64_t data_fingerprint) {
  return IdentityOf(config, layout, data_fingerprint).model;
}

std::string FingerprintOfMembers(const RunConfig& config, const engine::Layout& layout) {
  const optimizer::Config& o = config.optimizer;
  const optimizer::Schedule& s = config.schedule;
  const Json what = {{"run", Fingerprint(config, layout, 0)},
                     {"optimizer", {o.momentum, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.clip_norm}},
                     {"schedule", {static_cast<int>(s.kind), s.base, s.final, s.warmup_steps, s.total_steps}},
                     {"steps", config.steps},
                     {"validateEverySteps", config.validate_every_steps},
                     {"validateSamples", config.validate_samples},
                     {"checkpoints", !config.checkpoint_path.empty()}};
  const std::string text = DumpJson(what);
  return HashHex(Hash64(std::as_bytes(std::span(text.data(), text.size())))) + " " +
         device::BuildOfNumerics();
}

Json DescribeRun(const RunConfig& config, const engine::Layout& layout, const data::Cursor& cursor) {
  Json parameters = Json::array();
  for (const engine::Parameter& parameter : layout.parameters) {
    parameters.push_back(
        {{"name", parameter.name}, {"shape", parameter.shape}, {"offset", parameter.offset}});
  }
  return {{"model", DescribeModel(config.model)},
          {"tokenizer", config.tokenizer},
          {"parameters", std::move(parameters)},
          {"elements", layout.elements},
          {"cursor", {{"epoch", cursor.epoch}, {"position", cursor.position}}},
          {"seed", config.seed},
          {"samplesPerStep", config.samples_per_step},
          {"microBatches", config.micro_batches}};
}

Result<engine::ModelConfig> ModelFromDescription(const Json& meta) {
  if (meta.is_object() && meta.contains("kind") && meta["kind"] == "program")
    return Error{Code::kInvalid,
                 "the checkpoint is of a program that trains through libringmaster, so its model is unknown "
                 "here; export the weights in the program, for example with ringmaster.torch.export"};
  if (!meta.is_object() || !meta.contains("model"))
    return Error{Code::kCorrupt, "checkpoint: no model description"};
  const Json& from = meta["model"];
  engine::ModelConfig model;
  RM_ASSIGN(const std::string kind, JsonString(from, "kind"));
  if (kind == "gpt")
    model.kind = engine::ModelKind::kGpt;
  else if (kind == "mlp")
    model.kind = engine::ModelKind::kMlp;
  else if (kind == "cnn")
    model.kind = engine::ModelKind::kCnn;
  else
    return Error{Code::kCorrupt, "checkpoint: unknown model kind " + kind};
  const auto read = [&from](const char* key, int* into) -> Status {
    RM_ASSIGN(const int64_t value, JsonInt(from, key));
    if (value < 0 || value > INT32_MAX)
      return Error{Code::kCorrupt, fmt::format("checkpoint: {} out of range", key)};
    *into = static_cast<int>(value);
    return Ok();
  };
  RM_TRY(read("layers", &model.layers));
  RM_TRY(read("heads", &model.heads));
  RM_TRY(read("width", &model.width));
  RM_TRY(read("context", &model.context));
  RM_TRY(read("vocabulary", &model.vocabulary));
  RM_TRY(read("channels", &model.channels));
  RM_TRY(read("height", &model.height));
  RM_TRY(read("imageWidth", &model.image_width));
  RM_TRY(read("classes", &model.classes));
  RM_ASSIGN(const std::string precision, JsonString(from, "precision"));
  model.precision = precision == "bf16" ? engine::Precision::kBf16 : engine::Precision::kFp32;
  return model;
}

Result<data::Cursor> CursorFromDescription(const Json& meta) {
  if (!meta.is_object() || !meta.contains("cursor")) return Error{Code::kCorrupt, "checkpoint: no cursor"};
  data::Cursor cursor;
  RM_ASSIGN(cursor.epoch, JsonInt(meta["cursor"], "epoch"));
  RM_ASSIGN(cursor.position, JsonInt(meta["cursor"], "position"));
  if (cursor.epoch < 0 || cursor.position < 0) return Error{Code::kCorrupt, "checkpoint: negative cursor"};
  return cursor;
}

Result<std::string> TokenizerFromDescription(const Json& meta) { return JsonString(meta, "tokenizer"); }

}  // namespace ringmaster::trainer
