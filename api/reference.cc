// SPDX-License-Identifier: Apache-2.0

// The Markdown reference of all fields.
#include <fmt/format.h>

#include "api/check.h"
#include "api/forms.h"
#include "api/load.h"
#include "api/schema.h"

namespace ringmaster::api {
namespace {

constexpr const char* kIntroduction = R"(# The API: TrainingJob

`ringmaster.dev/v1alpha1`, kind `TrainingJob`, short name `tj`, category `ml`. This page and
`crds/ringmaster.dev_trainingjobs.yaml` are generated from the field tables in `api/fields_*.h`; `ringmaster crd --docs`
and `ringmaster crd` print them. After a change there, run `api_test` from the root of the repository with
`RINGMASTER_UPDATE=1`.

A whole job:

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

A field that is left out, or null, has its default. An unknown field is refused. Decimal numbers stand in quotes.
Plain `yes`, `no`, `on`, `off`, `y`, `n`, numbers with leading zeros or to another base, duplicate keys, merge keys
(`<<`), tags and several documents in a file are refused: readers of YAML disagree about them. `ringmaster validate
FILE` names everything that is wrong in one go. With `--set PATH=VALUE`, text and decimals need no quotes:
`--set spec.training.optimizer.learningRate=0.01`, `--set spec.restart.rules[0].action=Fail`.

## On a cluster

    ringmaster crd | kubectl apply --server-side -f -

The API server then checks every job itself, without a webhook: it refuses what `ringmaster validate` refuses, and names
the same field, with the same words where the rule is ours. What differs:

- Unknown fields are refused by `kubectl` and other clients that ask for it (`fieldValidation=Strict`); for others the
  server drops them, and warns.
- Where a field is missing or of the wrong type, the server does not go on to rules over several fields.
- `yes`, `012` and the like are read as YAML 1.1 reads them before the server sees them.
- `metadata.generateName` is for the server; a file that is run or validated here gives `metadata.name`.

A name has at most 48 characters, so that `NAME-ATTEMPT-RANK`, the name of a pod and of its host, has at most 63.

`kubectl scale tj/NAME --replicas=N` sets `spec.workers.replicas`, within `min` and `max`. `kubectl wait
--for=condition=Succeeded tj/NAME` waits for the end. With server-side apply, several managers may write parts of one
job: `spec.workers.template.spec` merges `containers`, `initContainers`, `volumes` and `env` by `name` and `volumeMounts`
by `mountPath`; `spec.network.networks` is a set; other lists belong to one manager as a whole.

## What may change

Of a job that exists, any time:

{anytime}
Never:

{never}
Everything else only while the job is stopped: `spec.suspend` is true, and condition `Suspended` says that no worker is
left. The change and `suspend: false` may be one request. Workers read these fields when they start; a running gang in
which some read them before the change and some after it would compute neither job.
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

void Section(const Schema& schema, const std::string& path, std::string& out) {
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
    if (inner.type == Type::kObject) Section(inner, inner_path, out);
  }
}

// One line for each field whose table says when it may change.
void ListChanges(const Schema& schema, const std::string& path, std::string& anytime, std::string& never) {
  for (const Schema& field : schema.fields) {
    const std::string child = path + "." + field.name;
    const std::string line = fmt::format("- `{}`{}\n", child, field.fields.empty() ? "" : " and all in it");
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

std::string ReferenceMarkdown() {
  std::string anytime, never;
  ListChanges(*JobSchema().Find("spec"), "spec", anytime, never);
  std::string out = kIntroduction;
  out.replace(out.find("{anytime}\n"), 10, anytime + "\n");
  out.replace(out.find("{never}\n"), 8, never + "\n");
  for (const Schema& field : JobSchema().fields) {
    if (field.type == Type::kObject) Section(field, field.name, out);
  }
  return out;
}

}  // namespace ringmaster::api
