// SPDX-License-Identifier: Apache-2.0

// The reference of all fields as Markdown pages.
#include <fmt/format.h>

#include "api/check.h"
#include "api/forms.h"
#include "api/load.h"
#include "api/schema.h"

namespace ringmaster::api {
namespace {

constexpr const char* kIntroduction = R"(# The TrainingJob API

Version `ringmaster.dev/v1alpha1`, kind `TrainingJob`, short name `tj`, category `ml`.

- [API: spec](api-spec.md): every field that you write
- [API: training](api-training.md): every field of `spec.training`
- [API: status](api-status.md): every field that the operator writes
- `examples/` in the repository: complete manifests

The three pages and `crds/ringmaster.dev_trainingjobs.yaml` are generated from the field tables in `api/fields_*.h`;
`ringmaster crd --docs` and `ringmaster crd` print them. After a change to the tables, run `api_test` in the root of the
repository with `RINGMASTER_UPDATE=1`.

A complete job:

```yaml
apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {name: my-first-job}
spec:
  framework: native
  workers: {replicas: 4, min: 1, max: 8}
  training:
    model: {kind: gpt}
    data: {kind: text, path: /data/text}
    optimizer: {learningRate: "1e-3"}
    steps: 1000
```

## Rules of the manifest

- A field that is missing or null has its default. An unknown field is an error.
- Decimal numbers are strings, in quotes.
- The file is read as kubectl reads it, which is YAML 1.1: plain `0400` is 256, `yes` and `on` are true, and `<<` merges the
  keys of another object. Duplicate keys, a merge behind a key that it also has, tags, and several documents in one file are
  errors.
- `ringmaster validate FILE` reports all errors together.
- With `--set PATH=VALUE`, text and decimals need no quotes: `--set spec.training.optimizer.learningRate=0.01`,
  `--set spec.restart.rules[0].action=Fail`.

A name has at most 48 characters, so that `NAME-ATTEMPT-RANK`, the name of a pod and of its host, has at most 63.

## On a cluster

    ringmaster crd | kubectl apply --server-side -f -

The API server then validates every job, without a webhook. It refuses what `ringmaster validate` refuses and names the
same field, with the same words where the rule is Ringmaster's. The differences:

- `kubectl` and other clients that set `fieldValidation=Strict` get an error for unknown fields. For other clients the
  server drops the fields and sends a warning.
- Where a field is missing or has the wrong type, the server does not evaluate rules over several fields.
- `metadata.generateName` works on the server only; a file for `ringmaster run` or `validate` sets `metadata.name`.

`kubectl scale tj/NAME --replicas=N` sets `spec.workers.replicas`, between `min` and `max`. `kubectl wait
--for=condition=Succeeded tj/NAME` waits for the end.

With server-side apply, several managers may own parts of one job: `spec.workers.template.spec` merges `containers`,
`initContainers`, `volumes` and `env` by `name`, and `volumeMounts` by `mountPath`; `spec.network.networks` is a set; every
other list belongs to one manager.

## What may change

These fields may change at any time:

{anytime}
These fields may never change:

{never}
Every other field may change only while the job is stopped: `spec.suspend` is true, and condition `Suspended` reports that
no worker is left. One request may contain the change and `suspend: false`. Workers read these fields at their start, so
the members of a running gang would compute different jobs.
)";

constexpr const char* kSpecIntroduction = R"(# API: spec

Every field of `metadata` and `spec`, except those of [spec.training](api-training.md). [The TrainingJob API](api.md) has the
rules of the manifest. This page is generated from the field tables.
)";

constexpr const char* kTrainingIntroduction = R"(# API: training

Every field of `spec.training`, which configures the built-in engine. [API: spec](api-spec.md) has the other fields. This
page is generated from the field tables.
)";

constexpr const char* kStatusIntroduction = R"(# API: status

Every field of `status`. The operator writes it; users read it. [Conditions](conditions.md) lists the conditions and their
reasons. This page is generated from the field tables.
)";

std::string TypeName(const Schema& schema) {
  switch (schema.type) {
    case Type::kObject:
      return "object";
    case Type::kList:
      return "list of " + TypeName(schema.item.front()) + "s";
    case Type::kMap:
      return "map of " + TypeName(schema.item.front()) + "s";
    case Type::kString:
      return schema.rules.form == Form::kDecimal ? "decimal in quotes" : "string";
    case Type::kInteger:
      return "integer";
    case Type::kIntOrString:
      return "integer or string";
    case Type::kBool:
      return "boolean";
    case Type::kAnyObject:
      return "object";
  }
  return {};
}

std::string Allowed(const Schema& schema) {
  const Rules& rules = schema.rules;
  std::vector<std::string> parts;
  if (rules.values != nullptr) {
    std::string values;
    for (const std::string_view value : Values(rules)) {
      if (value.empty()) continue;
      if (!values.empty()) values += ", ";
      values += fmt::format("`{}`", value);
    }
    parts.push_back(std::move(values));
  } else if (rules.form == Form::kSlots || rules.form == Form::kAutoSeconds) {
    parts.push_back(TextOf(rules.form).words + 3);  // without "be "
  }
  const Schema& value = schema.item.empty() ? schema : schema.item.front();
  if (value.type == Type::kInteger && rules.max < std::numeric_limits<int64_t>::max()) {
    parts.push_back(fmt::format("{} to {}", rules.min, rules.max));
  }
  if (rules.form == Form::kDecimal) {
    std::string range;
    if (rules.above > -std::numeric_limits<double>::infinity()) range = fmt::format("above {}", rules.above);
    if (rules.at_least > -std::numeric_limits<double>::infinity())
      range = fmt::format("from {}", rules.at_least);
    if (rules.at_most < std::numeric_limits<double>::infinity())
      range += fmt::format(" to {}", rules.at_most);
    if (rules.below < std::numeric_limits<double>::infinity())
      range += fmt::format(" to below {}", rules.below);
    parts.push_back(std::move(range));
  }
  switch (rules.form) {
    case Form::kDnsLabel:
      parts.push_back(fmt::format("DNS label, at most {} characters", rules.max_length));
      break;
    case Form::kDnsSubdomain:
      parts.emplace_back("DNS name");
      break;
    case Form::kQualifiedName:
    case Form::kResource:
    case Form::kNetwork:
    case Form::kPattern:
    case Form::kTime:
    case Form::kModule:
      parts.emplace_back(TextOf(rules.form).words + 3);
      break;
    default:
      break;
  }
  if (rules.max_items > 0) parts.push_back(fmt::format("at most {} entries", rules.max_items));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string DefaultOf(const Schema& schema) {
  if (schema.rules.required) return "**required**";
  if (schema.default_value.is_null()) return "";
  return fmt::format("`{}`", DumpJson(schema.default_value));
}

constexpr const char* kTrainingPath = "spec.training";

// Appends the fields of an object and of the objects in it; those of spec.training to `training`.
void Section(const Schema& schema, const std::string& path, std::string& out, std::string& training) {
  out += fmt::format("\n## {}\n\n", path);
  if (!schema.help.empty()) out += schema.help + "\n\n";
  out += "| Field | Type | Default | Allowed | Meaning |\n|---|---|---|---|---|\n";
  for (const Schema& field : schema.fields) {
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name, TypeName(field), DefaultOf(field),
                       Allowed(field), field.help);
  }
  for (const Schema& field : schema.fields) {
    const Schema& inner = field.item.empty() ? field : field.item.front();
    const std::string inner_path = path + "." + field.name + (field.type == Type::kList ? "[]" : "");
    if (inner.type == Type::kObject)
      Section(inner, inner_path, inner_path == kTrainingPath ? training : out, training);
  }
}

// One line for each field whose table says when it may change.
void ListChanges(const Schema& schema, const std::string& path, std::string& anytime, std::string& never) {
  for (const Schema& field : schema.fields) {
    const std::string child = path + "." + field.name;
    const std::string line =
        fmt::format("- `{}`{}\n", child, field.fields.empty() ? "" : " and everything in it");
    if (field.rules.change == Change::kAnytime) {
      anytime += line;
    } else if (field.rules.change == Change::kNever) {
      never += line;
    } else {
      ListChanges(field, child, anytime, never);
    }
  }
}

}  // namespace

std::vector<ReferencePage> ReferencePages() {
  std::string anytime, never;
  ListChanges(*JobSchema().Find("spec"), "spec", anytime, never);
  std::string introduction = kIntroduction;
  introduction.replace(introduction.find("{anytime}\n"), 10, anytime + "\n");
  introduction.replace(introduction.find("{never}\n"), 8, never + "\n");
  std::string spec = kSpecIntroduction;
  std::string training = kTrainingIntroduction;
  std::string status = kStatusIntroduction;
  for (const Schema& field : JobSchema().fields) {
    if (field.type == Type::kObject)
      Section(field, field.name, field.name == "status" ? status : spec, training);
  }
  return {{"api.md", introduction},
          {"api-spec.md", spec},
          {"api-training.md", training},
          {"api-status.md", status}};
}

}  // namespace ringmaster::api
