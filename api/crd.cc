// SPDX-License-Identifier: Apache-2.0

#include "api/crd.h"

#include <fmt/format.h>

#include <limits>

#include "api/cel_rules.h"
#include "api/forms.h"
#include "api/schema.h"
#include "api/yaml_text.h"

namespace ringmaster::api {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

Json SchemaNode(const Schema& schema, const std::string& path, bool with_defaults);

// Adds an alternative for "", which is equivalent to a missing text.
std::string PatternOf(const Schema& schema) {
  std::string pattern = TextOf(schema.rules.form).pattern;
  const bool may_be_empty = !schema.rules.required && DefaultFor(schema).is_null();
  if (pattern.empty() || !may_be_empty || schema.rules.form == Form::kText) return pattern;
  return fmt::format("^({})?$", pattern.substr(1, pattern.size() - 2));
}

void AddText(const Schema& schema, Json& out) {
  const Rules& rules = schema.rules;
  out["maxLength"] = rules.max_length;
  if (rules.values != nullptr) {
    out["enum"] = Values(rules);
    return;
  }
  if (rules.required) out["minLength"] = 1;
  if (std::string pattern = PatternOf(schema); !pattern.empty()) out["pattern"] = std::move(pattern);
}

void AddRange(const Schema& schema, Json& out) {
  if (schema.rules.min > kLeast) out["minimum"] = schema.rules.min;
  if (schema.rules.max < kMost) out["maximum"] = schema.rules.max;
}

void AddFields(const Schema& schema, const std::string& path, bool with_defaults, Json& out) {
  Json required = Json::array();
  for (const Schema& field : schema.fields) {
    const std::string child = path.empty() ? field.name : path + "." + field.name;
    out["properties"][field.name] = SchemaNode(field, child, with_defaults);
    if (field.rules.required) required.push_back(field.name);
  }
  if (!required.empty()) out["required"] = std::move(required);
}

void AddList(const Schema& schema, const std::string& path, bool with_defaults, Json& out) {
  const Rules& rules = schema.rules;
  out["type"] = "array";
  out["maxItems"] = rules.max_items;
  out["items"] = SchemaNode(schema.item.front(), path + "[]", with_defaults);
  out["x-kubernetes-list-type"] = rules.key != nullptr ? "map" : rules.unique ? "set" : "atomic";
  if (rules.key != nullptr) out["x-kubernetes-list-map-keys"] = {rules.key};
}

Json SchemaNode(const Schema& schema, const std::string& path, bool with_defaults) {
  Json out = Json::object();
  if (!schema.help.empty()) out["description"] = schema.help;
  switch (schema.type) {
    case Type::kObject:
      out["type"] = "object";
      AddFields(schema, path, with_defaults, out);
      break;
    case Type::kAnyObject:
      out["type"] = "object";
      out["x-kubernetes-preserve-unknown-fields"] = true;
      AddFields(schema, path, false, out);
      break;
    case Type::kList:
      AddList(schema, path, with_defaults, out);
      break;
    case Type::kMap:
      out["type"] = "object";
      out["maxProperties"] = schema.rules.max_items;
      out["additionalProperties"] = SchemaNode(schema.item.front(), path + "{}", with_defaults);
      break;
    case Type::kString:
      out["type"] = "string";
      if (schema.rules.form == Form::kTime) out["format"] = "date-time";
      AddText(schema, out);
      break;
    case Type::kIntOrString:
      out["x-kubernetes-int-or-string"] = true;
      AddText(schema, out);
      AddRange(schema, out);
      break;
    case Type::kInteger:
      out["type"] = "integer";
      out["format"] = schema.bits == 32 ? "int32" : "int64";
      AddRange(schema, out);
      break;
    case Type::kBool:
      out["type"] = "boolean";
      break;
  }
  if (with_defaults) {
    if (Json value = DefaultFor(schema); !value.is_null()) out["default"] = std::move(value);
  }
  if (Json rules = CelRulesAt(schema, path); !rules.empty())
    out["x-kubernetes-validations"] = std::move(rules);
  return out;
}

// Returns the schema of the whole object. The API server restricts what it may say about apiVersion, kind and
// metadata.
Json RootNode() {
  Json out = {
      {"type", "object"}, {"description", "An elastic distributed training job."}, {"required", {"spec"}}};
  for (const Schema& field : JobSchema().fields) {
    Json& node = out["properties"][field.name];
    if (field.name == "metadata") {
      node = {{"type", "object"},
              {"properties", {{"name", {{"type", "string"}}}}}};  // rules report problems there
    } else if (field.type == Type::kString) {
      node = {{"type", "string"}, {"description", field.help}};
    } else {
      node = SchemaNode(field, field.name, field.name == "spec");
    }
    if (field.name != "status") continue;
    // kstatus would take a job without observedGeneration for a finished one. Attempt 1 is the first entry of
    // the operator's log: it need not be written before the first pods.
    node["default"] = {{"observedGeneration", -1}, {"phase", "Pending"}, {"attempt", 1}};
    // Only the operator writes the status, and always all of it. Who owns which of its fields would be half
    // of the stored object, and the API server would compute it with every write.
    node["x-kubernetes-map-type"] = "atomic";
  }
  out["x-kubernetes-validations"] = CelRulesAt(JobSchema(), "");
  return out;
}

Json Column(const char* name, const char* type, const char* path, const char* help, bool wide = false) {
  Json column = {{"name", name}, {"type", type}, {"jsonPath", path}, {"description", help}};
  if (wide) column["priority"] = 1;
  return column;
}

Json Columns() {
  return {
      Column("Phase", "string", ".status.phase", "Phase of the job."),
      Column("Ready", "string", ".status.ready", "Workers that are ready, of those that exist."),
      Column("Fabric", "string", ".status.fabric", "Transport of the gradients."),
      Column("Step", "integer", ".status.progress.step", "Steps committed."),
      Column("Progress", "string", ".status.progress.percent", "Committed steps as a share of all steps."),
      Column("ETA", "string", ".status.progress.eta", "Time left at the current speed."),
      Column("Restarts", "integer", ".status.restarts.total", "Restarts so far."),
      Column("Age", "date", ".metadata.creationTimestamp", "Time since the job was created."),
      Column("Framework", "string", ".spec.framework", "Framework whose training loop runs.", true),
      Column("Replicas", "integer", ".spec.workers.replicas", "Desired number of workers.", true),
      Column("Attempt", "integer", ".status.attempt", "Number of the current set of pods.", true),
      Column("Samples/s", "string", ".status.progress.samplesPerSecond", "Current speed.", true),
      Column("Loss", "string", ".status.progress.loss", "Loss of the last reported step.", true),
      Column("Checkpoint", "integer", ".status.checkpoint.step", "Step of the newest checkpoint.", true),
      Column("Goodput", "string", ".status.goodput.ratio", "Productive time over elapsed time.", true),
      Column("Last-Failure", "string", ".status.lastFailure.reason", "Reason of the last failure.", true),
  };
}

}  // namespace

Json CustomResourceDefinition() {
  const Json names = {{"kind", "TrainingJob"},    {"listKind", "TrainingJobList"},
                      {"plural", "trainingjobs"}, {"singular", "trainingjob"},
                      {"shortNames", {"tj"}},     {"categories", {"ml"}}};
  const Json version = {
      {"name", "v1alpha1"},
      {"served", true},
      {"storage", true},
      {"schema", {{"openAPIV3Schema", RootNode()}}},
      {"subresources",
       {{"status", Json::object()},
        {"scale",
         {{"specReplicasPath", ".spec.workers.replicas"},
          {"statusReplicasPath", ".status.replicas"},
          {"labelSelectorPath", ".status.selector"}}}}},
      {"selectableFields", {{{"jsonPath", ".spec.framework"}}, {{"jsonPath", ".status.phase"}}}},
      {"additionalPrinterColumns", Columns()},
  };
  return {{"apiVersion", "apiextensions.k8s.io/v1"},
          {"kind", "CustomResourceDefinition"},
          {"metadata", {{"name", "trainingjobs.ringmaster.dev"}}},
          {"spec",
           {{"group", "ringmaster.dev"},
            {"names", names},
            {"scope", "Namespaced"},
            {"versions", Json::array({version})}}}};
}

std::string CrdYaml() {
  return "# Generated by `ringmaster crd` from the field tables in api/fields_*.h.\n" +
         YamlText(CustomResourceDefinition());
}

}  // namespace ringmaster::api
