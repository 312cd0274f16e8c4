// SPDX-License-Identifier: Apache-2.0

#include "worker/library/run_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "worker/compute/numerics/revision.h"

namespace ringmaster::library {
namespace {

constexpr size_t kMaxFingerprint = 480;  // of members, in a message
constexpr size_t kMostDifferences = 20;  // that a message lists

}  // namespace

Json DescribeTensors(const std::vector<Tensor>& tensors) {
  Json description = Json::object();
  for (const Tensor& tensor : tensors) description[tensor.name] = tensor.elements;
  return description;
}

std::string RunFingerprint(const Config& config) {
  Json what = {{"tensors", DescribeTensors(config.tensors)},
               {"microBatches", config.micro_batches},
               {"exact", config.exact},
               {"limbs", config.limbs},
               {"samplesPerStep", config.samples_per_step},
               {"seed", config.seed},
               {"data", config.data_fingerprint}};
  Json order = Json::array();
  for (const Tensor& tensor : config.tensors) order.push_back({tensor.name, tensor.in_norm});
  what["order"] = std::move(order);
  const std::string text = what.dump();
  return HashHex(Hash64(std::as_bytes(std::span(text))));
}

checkpoint::Identity IdentityOf(const Config& config) {
  checkpoint::Identity identity;
  identity.run = config.run;
  identity.from = config.checkpoint_from;
  Json order = Json::array();
  for (const Tensor& tensor : config.tensors) order.push_back({tensor.name, tensor.elements, tensor.in_norm});
  const std::string tensors = order.dump();
  identity.settings = {{"tensors", HashHex(Hash64(std::as_bytes(std::span(tensors))))},
                       {"microBatches", config.micro_batches},
                       {"numerics", config.exact ? fmt::format("exact{}", 32 * config.limbs) : "fast"},
                       {"samplesPerStep", config.samples_per_step},
                       {"seed", config.seed},
                       {"data", config.data_fingerprint}};
  identity.notes = {{"the revision of the numerics", numerics::kRevision}};
  Json program = Json::object();
  size_t begin = 0;
  while (begin < config.fingerprint.size()) {
    const size_t end = std::min(config.fingerprint.find('\n', begin), config.fingerprint.size());
    const std::string line = config.fingerprint.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = std::min(line.find(": "), line.size());
    const std::string name = line.substr(0, colon);
    const std::string value = colon < line.size() ? line.substr(colon + 2) : "";
    if (name == "versions")
      identity.notes["versions"] = value;
    else if (!name.ends_with("-values"))
      program[name] = value;
  }
  identity.settings["program"] = std::move(program);
  identity.different_arrays = [config](const Json& meta) {
    const auto found = meta.find("tensors");
    return found == meta.end() || !found->is_object() ? std::string() : DifferencesFrom(*found, config);
  };
  return checkpoint::MakeIdentity("", std::move(identity));
}

std::string PlainName(std::string text) {
  const auto odd = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; };
  std::ranges::replace_if(text, odd, '_');
  if (text.size() <= kMaxFingerprint) return text;
  const std::string hash = HashHex(Hash64(std::as_bytes(std::span(text))));
  return text.substr(0, kMaxFingerprint - hash.size() - 1) + " " + hash;
}

std::string MembersFingerprint(const Config& config) {
  // Members save together, so all must reach a checkpoint in the same step.
  const bool saves = !config.checkpoint_folder.value_or("").empty();
  std::string text =
      fmt::format("run={:.8} numerics={} steps={} checkpoints={}", RunFingerprint(config),
                  numerics::kRevision, config.steps, saves ? config.checkpoint_every_steps.value_or(0) : 0);
  size_t begin = 0;
  while (begin < config.fingerprint.size()) {
    const size_t end = std::min(config.fingerprint.find('\n', begin), config.fingerprint.size());
    const std::string line = config.fingerprint.substr(begin, end - begin);
    std::string name = line.substr(0, line.find(':'));
    std::ranges::replace(name, ' ', '-');
    text += fmt::format(" {:.40}={:.8}", name, HashHex(Hash64(std::as_bytes(std::span(line)))));
    begin = end + 1;
  }
  if (text.size() <= kMaxFingerprint) return PlainName(text);
  return HashHex(Hash64(std::as_bytes(std::span(text))));
}

std::string DifferencesFrom(const Json& theirs, const Config& config) {
  const Json ours = DescribeTensors(config.tensors);
  std::vector<std::string> differences;
  for (const auto& [name, elements] : ours.items()) {
    if (!theirs.contains(name)) {
      differences.push_back(fmt::format("{} is missing", name));
    } else if (theirs[name] != elements) {
      differences.push_back(
          fmt::format("{} has {} elements, here {}", name, theirs[name].dump(), elements.dump()));
    }
  }
  for (const auto& [name, elements] : theirs.items())
    if (!ours.contains(name)) differences.push_back(fmt::format("{} is not in this model", name));
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i)
    text += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kMostDifferences)
    text += fmt::format("; and {} more", differences.size() - kMostDifferences);
  return text;
}

}  // namespace ringmaster::library
