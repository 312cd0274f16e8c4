// SPDX-License-Identifier: Apache-2.0

#include "api/cel_rules.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <vector>

#include "api/cel_rule.h"
#include "api/forms.h"
#include "api/path.h"
#include "api/update.h"

namespace ringmaster::api {
namespace {

#define SLOTS "string(self.workers.slots)"
#define RANKS                                                                     \
  "((has(self.workers.max) ? self.workers.max : self.workers.replicas) * (" SLOTS \
  " == 'gpu' ? 1 : int(" SLOTS ")))"

#define CONTAINERS "self.workers.template.spec.containers"
#define HAS_COMMAND(container) "has(" container ".command) && size(" container ".command) > 0"
// Not a pattern: the API server estimates the cost of a rule by the longest string. The agent checks the
// rest.
#define IS_PYTHON(container) "!(" HAS_COMMAND(container) ") || " container ".command[0].contains('python')"

#define ROLES_KNOWN                                                                               \
  "self.roles.all(r, r.name in (self.framework == 'tensorflow' ? ['chief', 'ps', 'evaluator'] : " \
  "self.framework == 'pytorch' ? ['master'] : []))"

const std::vector<CelRule>& CrossFieldRules() {
  static const std::vector<CelRule> kRules = {
      {"",
       "metadata.name",
       {},
       "",
       "size(self.metadata.name) <= 48",
       "must be at most 48 characters (got {size(self.metadata.name)}): pods are named NAME-ATTEMPT-RANK, "
       "and a "
       "host name has at most 63 characters"},
      {"",
       "metadata.name",
       {},
       "",
       "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
       "must consist of lower-case letters, digits and '-', and start and end with a letter or digit (got "
       "\"{self.metadata.name}\")"},

      {"",
       "metadata.name",
       {},
       "has(self.spec.roles) && self.spec.roles.exists(r, r.name != 'master') && size(self.metadata.name) <= "
       "48",
       "size(self.metadata.name) <= 38",
       "must be at most 38 characters with spec.roles (got {size(self.metadata.name)}): pods are named "
       "NAME-ATTEMPT-ROLE-INDEX"},

      {"spec.workers",
       "min",
       {"min", "max"},
       "has(self.min) && has(self.max)",
       "self.min <= self.max",
       "must be at most spec.workers.max (got {self.min} > {self.max})"},
      {"spec.workers",
       "min",
       {"min", "replicas"},
       "has(self.min) && !(has(self.max) && self.min > self.max)",
       "self.min <= self.replicas",
       "must be at most spec.workers.replicas (got {self.min} > {self.replicas})"},
      {"spec.workers",
       "max",
       {"max", "replicas"},
       "has(self.max)",
       "self.max >= self.replicas",
       "must be at least spec.workers.replicas (got {self.max} < {self.replicas})"},

      {"spec",
       "training",
       {"framework"},
       "self.framework == 'native'",
       "has(self.training)",
       "required when spec.framework is native",
       kMissing},
      {"spec",
       "training",
       {"framework"},
       "has(self.training)",
       "self.framework == 'native'",
       "allowed only when spec.framework is native (got \"{self.framework}\")",
       kForbidden},
      {"spec",
       "workers.template",
       {"framework"},
       "self.framework != 'native'",
       "has(self.workers.template)",
       "required when spec.framework is {self.framework}",
       kMissing},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.framework == 'native'",
       "self.launch.kind == 'ranks'",
       "must be ranks when spec.framework is native (got \"{self.launch.kind}\"): its agents start the "
       "ranks"},
      {"spec",
       "launch.kind",
       {"framework", "launch.kind"},
       "self.launch.kind == 'library'",
       "!(self.framework in ['tensorflow', 'deepspeed', 'mpi'])",
       "must not be library when spec.framework is {self.framework}, whose processes communicate without the "
       "library; use pytorch, jax or custom"},
      {"spec",
       "lifecycle.success",
       {"framework", "lifecycle.success"},
       "self.framework == 'native' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'AllWorkers'",
       "must be AllWorkers when spec.framework is native (got \"{self.lifecycle.success}\"): its ranks end "
       "together"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework != 'native' && self.launch.kind == 'library' && has(self.lifecycle.success)",
       "self.lifecycle.success == 'AllWorkers'",
       "must be AllWorkers when spec.launch.kind is library (got \"{self.lifecycle.success}\"): its ranks "
       "end "
       "together"},
      {"spec",
       "lifecycle.success",
       {"framework", "launch.kind", "lifecycle.success"},
       "self.framework != 'native' && self.launch.kind != 'library' && has(self.lifecycle.success) && "
       "self.lifecycle.success == 'Chief'",
       "has(self.roles) && self.roles.exists(r, r.name == 'chief')",
       "must not be Chief without a role named chief; add it to spec.roles, or use Rank0"},
      {"spec",
       "roles",
       {"framework"},
       "has(self.roles)",
       ROLES_KNOWN,
       "framework {self.framework} has no such role: tensorflow has chief, ps and evaluator, pytorch has "
       "master"},
      {"spec",
       "roles",
       {"framework"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name == 'ps')",
       "self.roles.exists(r, r.name == 'chief') || (has(self.lifecycle.success) && self.lifecycle.success == "
       "'Rank0')",
       "ps needs a chief, whose end is the end of the job: workers and parameter servers run on; add the "
       "role chief, or set lifecycle.success to Rank0"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name != 'master')",
       "self.launch.kind != 'none'",
       "must have no pods when spec.launch.kind is none: the agents start the roles; remove launch.kind"},
      {"spec",
       "workers",
       {"framework", "workers.min", "workers.max"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name != 'master')",
       "!has(self.workers.min) && !has(self.workers.max)",
       "min and max do not apply with spec.roles: the gang has a fixed size; remove them"},
      {"spec",
       "network.hostNetwork",
       {"framework"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.roles.exists(r, r.name != 'master')",
       "!self.network.hostNetwork",
       "must be false with spec.roles: ports of the nodes are allocated for workers only"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.framework != 'native' && self.launch.kind == 'library'",
       "size(self.roles) == 0",
       "must be empty when spec.launch.kind is library: all of its ranks are equal; remove it"},
      {"spec",
       "roles",
       {"framework", "launch.kind"},
       "has(self.roles) && (" ROLES_KNOWN ") && self.launch.kind == 'ranks'",
       "self.roles.all(r, !has(r.template) || (has(r.template.spec) && has(r.template.spec.containers) && "
       "(r.template.spec.containers.exists(c, c.name == 'worker') ? r.template.spec.containers.exists(c, "
       "c.name == 'worker' && " HAS_COMMAND("c") ") : size(r.template.spec.containers) > 0 && " HAS_COMMAND(
           "r.template.spec.containers[0]") ")))",
       "the container that trains must have a command when spec.launch.kind is ranks: the agent starts it"},
      {"spec.roles[]",
       "replicas",
       {"name", "replicas"},
       "self.name != 'ps'",
       "self.replicas == 1",
       "must be 1 for {self.name} (got {self.replicas})"},
      {"spec.roles[]",
       "template",
       {"name"},
       "self.name == 'master'",
       "has(self.template)",
       "required for master, which is the first worker with this template",
       kMissing},
      {"spec.roles[]",
       "",
       {"name"},
       "self.name == 'master'",
       "!has(self.restart) && !has(self.completes)",
       "restart and completes do not apply to master: it is the first worker; remove them"},
      {"spec.roles[]",
       "restart",
       {"name", "restart"},
       "self.name == 'chief' && has(self.restart)",
       "self.restart != 'Never'",
       "must be Gang or Pod for chief: without it the job never ends"},
      {"spec.roles[]",
       "restart",
       {"name", "restart"},
       "self.name in ['ps', 'evaluator'] && has(self.restart) && has(self.completes) && self.completes",
       "self.restart != 'Never'",
       "Never requires completes: false: otherwise the job never ends"},
      {"spec",
       "workers.template.spec.containers",
       {"framework", "launch.kind"},
       "self.framework != 'native' && self.launch.kind != 'none' && has(self.workers.template)",
       "has(self.workers.template.spec) && has(" CONTAINERS ") && (" CONTAINERS
       ".exists(c, c.name == 'worker') ? " CONTAINERS ".exists(c, c.name == 'worker' && " HAS_COMMAND(
           "c") ") : size(" CONTAINERS ") > 0 && " HAS_COMMAND(CONTAINERS "[0]") ")",
       "the container that trains must have a command when spec.launch.kind is {self.launch.kind}: the agent "
       "starts it, and the ENTRYPOINT of an image is unknown; set command, or set spec.launch.kind to none"},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "has(self.launch.preload) && size(self.launch.preload) > 0",
       "self.framework != 'native' && self.launch.kind == 'ranks'",
       "allowed only when all ranks of a program restart together: spec.framework is {self.framework}, "
       "spec.launch.kind is {self.launch.kind}; remove it",
       kForbidden},
      {"spec",
       "launch.preload",
       {"framework", "launch.kind"},
       "has(self.launch.preload) && size(self.launch.preload) > 0 && self.framework != 'native' && "
       "self.launch.kind == 'ranks' && has(self.workers.template) && has(self.workers.template.spec) && "
       "has(" CONTAINERS ") && size(" CONTAINERS ") > 0",
       CONTAINERS ".exists(c, c.name == 'worker') ? " CONTAINERS
                  ".exists(c, c.name == 'worker' && (" IS_PYTHON("c") ")) : " IS_PYTHON(CONTAINERS "[0]"),
       "the command must be python with a script or a module: the modules are imported in the process that "
       "runs it"},
      {"spec",
       "workers.slots",
       {"framework", "launch.kind", "workers.slots"},
       "self.framework in ['tensorflow', 'jax'] && self.launch.kind != 'library'",
       SLOTS " == '1'",
       "must be 1 when spec.framework is {self.framework} (got {" SLOTS
       "}): one process uses all GPUs of its worker"},
      {"spec",
       "workers.replicas",
       {"framework", "workers.replicas"},
       "self.framework == 'tensorflow'",
       "self.workers.replicas <= 1000",
       "must be at most 1000 when spec.framework is tensorflow (got {self.workers.replicas}): the "
       "environment variable TF_CONFIG lists all of them"},
      {"spec",
       "workers.max",
       {"framework", "workers.max"},
       "self.framework == 'tensorflow' && has(self.workers.max)",
       "self.workers.max <= 1000",
       "must be at most 1000 when spec.framework is tensorflow (got {self.workers.max}): the "
       "environment variable TF_CONFIG lists all of them"},
      {"spec",
       "training.batch.microBatches",
       {"workers.replicas", "workers.max", "workers.slots", "training.batch.microBatches"},
       "has(self.training)",
       "self.training.batch.microBatches >= " RANKS,
       "must be at least {has(self.workers.max) ? 'spec.workers.max' : 'spec.workers.replicas'}"
       "{" SLOTS " in ['1', 'gpu'] ? '' : ' times spec.workers.slots'} "
       "(got {self.training.batch.microBatches} < {" RANKS "}): "
       "every {" SLOTS " in ['1', 'gpu'] ? 'worker' : 'rank'} needs one"},

      {"spec.scheduling",
       "preempt",
       {"gang", "preempt"},
       "self.preempt",
       "self.gang in ['auto', 'gate']",
       "allowed only when spec.scheduling.gang is auto or gate (got \"{self.gang}\"): with another one the "
       "scheduler preempts",
       kForbidden},
      {"spec.scheduling",
       "preempt",
       {"autoscaler", "preempt"},
       "self.preempt",
       "!self.autoscaler",
       "must be false when spec.scheduling.autoscaler is true: nodes are added for the job"},

      {"spec.training",
       "",
       {"steps", "epochs"},
       "",
       "(self.steps > 0) != (self.epochs > 0)",
       "exactly one of steps and epochs must be given (got {self.steps > 0 ? 'both' : 'neither'})"},
      {"spec.training",
       "optimizer.warmupSteps",
       {"steps", "epochs", "optimizer.warmupSteps"},
       "self.steps > 0 && self.epochs == 0",
       "self.optimizer.warmupSteps <= self.steps",
       "must be at most spec.training.steps (got {self.optimizer.warmupSteps} > {self.steps})"},
      {"spec.training",
       "data.kind",
       {"model.kind", "data.kind"},
       "",
       "(self.model.kind == 'gpt') == (self.data.kind in ['text', 'tokens'])",
       "must be {self.model.kind == 'gpt' ? 'text or tokens' : 'idx or cifar10'} for model kind "
       "{self.model.kind} (got \"{self.data.kind}\")"},
      {"spec.training",
       "model.tokenizer",
       {"model.kind", "data.kind", "model.tokenizer"},
       "self.model.kind == 'gpt' && self.data.kind in ['text', 'tokens']",
       "self.model.tokenizer == (self.data.kind == 'text' ? 'bytes' : 'none')",
       "must be {self.data.kind == 'text' ? 'bytes' : 'none'} for data kind {self.data.kind} (got "
       "\"{self.model.tokenizer}\")"},
      {"spec.training",
       "model.vocabulary",
       {"model.kind", "data.kind", "model.tokenizer", "model.vocabulary"},
       "self.model.kind == 'gpt' && self.data.kind == 'tokens' && self.model.tokenizer == 'none'",
       "self.model.vocabulary > 0",
       "must be above 0 when tokenizer is none: the vocabulary size of the data"},
      {"spec.training",
       "model.vocabulary",
       {"model.kind", "data.kind", "model.tokenizer", "model.vocabulary"},
       "self.model.kind == 'gpt' && self.data.kind == 'text' && self.model.tokenizer == 'bytes'",
       "self.model.vocabulary in [0, 256]",
       "must be 256 or omitted when tokenizer is bytes (got {self.model.vocabulary})"},
      {"spec.training.model",
       "width",
       {"kind", "width", "heads"},
       "self.kind == 'gpt'",
       "self.width % self.heads == 0",
       "must be a multiple of spec.training.model.heads (got {self.width} and {self.heads})"},
      {"spec.training.batch",
       "samplesPerStep",
       {"samplesPerStep", "microBatches"},
       "",
       "self.samplesPerStep % self.microBatches == 0",
       "must be a multiple of spec.training.batch.microBatches (got {self.samplesPerStep} and "
       "{self.microBatches})"},
      {"spec.training.optimizer",
       "minLearningRate",
       {"minLearningRate", "learningRate"},
       "",
       "double(self.minLearningRate) <= double(self.learningRate)",
       "must be at most spec.training.optimizer.learningRate (got {self.minLearningRate} > "
       "{self.learningRate})"},

      {"spec.network.rdma",
       "",
       {"resource", "claimTemplate"},
       "",
       "has(self.resource) && self.resource != '' ? !has(self.claimTemplate) || self.claimTemplate == '' "
       ": has(self.claimTemplate) && self.claimTemplate != ''",
       "exactly one of resource and claimTemplate must be given (got {has(self.resource) && self.resource != "
       "'' "
       "? 'both' : 'neither'})"},
      {"spec.restart.backoff",
       "initialSeconds",
       {"initialSeconds", "maxSeconds"},
       "",
       "self.initialSeconds <= self.maxSeconds",
       "must be at most spec.restart.backoff.maxSeconds (got {self.initialSeconds} > {self.maxSeconds})"},
      {"spec.restart.rules[].when",
       "",
       {},
       "",
       "(has(self.exitCodes) && size(self.exitCodes) > 0) || has(self.nodeUnreachable) || has(self.hang) || "
       "(has(self.podCondition) && self.podCondition != '') || (has(self.messageRegex) && self.messageRegex "
       "!= "
       "'')",
       "must have at least one criterion"},
      {"spec.restart.rules",
       "",
       {},
       "",
       "self.all(a, self.exists_one(b, "
       "(has(a.when.exitCodes) ? a.when.exitCodes : []) == (has(b.when.exitCodes) ? b.when.exitCodes : []) "
       "&& "
       "has(a.when.nodeUnreachable) == has(b.when.nodeUnreachable) && (!has(a.when.nodeUnreachable) || "
       "a.when.nodeUnreachable == b.when.nodeUnreachable) && "
       "has(a.when.hang) == has(b.when.hang) && (!has(a.when.hang) || a.when.hang == b.when.hang) && "
       "(has(a.when.podCondition) ? a.when.podCondition : '') == (has(b.when.podCondition) ? "
       "b.when.podCondition : '') && "
       "(has(a.when.messageRegex) ? a.when.messageRegex : '') == (has(b.when.messageRegex) ? "
       "b.when.messageRegex : '')))",
       "two rules have the same criteria: the later one never applies"},
  };
  return kRules;
}

#undef SLOTS
#undef RANKS
#undef CONTAINERS
#undef HAS_COMMAND
#undef IS_PYTHON
#undef ROLES_KNOWN

// ---- rules of a single field

std::string Quoted(std::string_view text) { return fmt::format("'{}'", text); }

bool MayBeMissing(const Schema& field) { return !field.rules.required && DefaultFor(field).is_null(); }

// Formats a number with a decimal point, so that CEL parses it as a double.
std::string Double(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Bound {
  const char* words;
  const char* op;
  double value;
};

// Returns the bounds of a decimal.
std::vector<Bound> BoundsOf(const Rules& rules) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<Bound> bounds;
  if (rules.above > -kNone) bounds.push_back({"above", ">", rules.above});
  if (rules.below < kNone) bounds.push_back({"below", "<", rules.below});
  if (rules.at_least > -kNone) bounds.push_back({"at least", ">=", rules.at_least});
  if (rules.at_most < kNone) bounds.push_back({"at most", "<=", rules.at_most});
  return bounds;
}

std::string IsDecimal(const std::string& self) {
  return fmt::format("{}.matches('{}')", self, TextOf(Form::kDecimal).pattern);
}

// Returns an expression for "the scalar `self` is valid by itself". It omits what the schema enforces before
// any rule runs, such as the type.
std::string IsValidAlone(const Schema& schema, const std::string& self) {
  const Rules& rules = schema.rules;
  std::string valid;
  const auto also = [&](const std::string& text) { valid += (valid.empty() ? "" : " && ") + text; };
  if (schema.type == Type::kInteger) {
    if (rules.min > std::numeric_limits<int64_t>::min()) also(fmt::format("{} >= {}", self, rules.min));
    if (rules.max < std::numeric_limits<int64_t>::max()) also(fmt::format("{} <= {}", self, rules.max));
  } else if (rules.values != nullptr) {
    std::string values;
    for (const std::string_view value : Values(rules)) values += (values.empty() ? "" : ", ") + Quoted(value);
    also(fmt::format("{} in [{}]", self, values));
  } else if (rules.form == Form::kDecimal) {
    also(IsDecimal(self));
    for (const Bound& bound : BoundsOf(rules))
      also(fmt::format("double({}) {} {}", self, bound.op, Double(bound.value)));
  } else if (*TextOf(rules.form).pattern != '\0' && rules.form != Form::kText) {
    const std::string text = schema.type == Type::kString ? self : fmt::format("string({})", self);
    also(fmt::format("{}.matches('{}')", text, TextOf(rules.form).pattern));
    if (MayBeMissing(schema)) valid = fmt::format("({} == '' || {})", self, valid);
  }
  return valid;
}

// Adds the rules of a decimal or of a regular expression.
void AddOwnRules(const Schema& schema, Json& out) {
  if (schema.type != Type::kString) return;
  if (schema.rules.form == Form::kDecimal) {
    for (const Bound& bound : BoundsOf(schema.rules)) {
      const std::string message = fmt::format("must be {} {}", bound.words, bound.value);
      out.push_back({{"rule", fmt::format("!{} || double(self) {} {}", IsDecimal("self"), bound.op,
                                          Double(bound.value))},
                     {"message", message},
                     {"messageExpression", fmt::format("'{} (got \"' + self + '\")'", message)}});
    }
  } else if (schema.rules.form == Form::kPattern) {
    out.push_back({{"rule", "''.matches(self) || !''.matches(self)"},
                   {"message", "is not a valid regular expression"}});
  }
}

// ---- rules over several fields

const Schema& Below(const Schema& schema, std::string_view path) {
  const Schema* node = &schema;
  const auto segments = SplitPath(path);
  for (const PathSegment& segment : *segments) node = node->Find(segment.text);
  return *node;
}

std::string Expression(const CelRule& rule, const Schema& schema) {
  std::string condition = rule.when;
  for (const char* read : rule.reads) {
    const Schema& field = Below(schema, read);
    const std::string self = fmt::format("self.{}", read);
    std::string valid = IsValidAlone(field, self);
    if (valid.empty()) continue;
    if (MayBeMissing(field)) valid = fmt::format("(!has({}) || ({}))", self, valid);
    condition += (condition.empty() ? "" : " && ") + valid;
  }
  return condition;
}

// Returns "'must be %s (got %s)'.format([a, b])" for "must be {a} (got {b})"; empty without braces. Uses
// format and not string concatenation, because the server cannot bound the cost of concatenating a number
// that was converted to text.
std::string MessageExpression(std::string_view message) {
  std::string text, values;
  while (true) {
    const size_t open = message.find('{');
    for (const char c : message.substr(0, open)) text += c == '\'' ? std::string("\\'") : std::string(1, c);
    if (open == std::string_view::npos) break;
    const size_t close = message.find('}', open);
    text += "%s";
    values.append(values.empty() ? "" : ", ").append(message.substr(open + 1, close - open - 1));
    message.remove_prefix(close + 1);
  }
  return values.empty() ? std::string() : fmt::format("'{}'.format([{}])", text, values);
}

// Returns the message for a server that cannot evaluate the message expression.
std::string PlainMessage(std::string_view message) {
  std::string text(message.substr(0, message.find(" (got ")));
  const size_t open = text.find('{');
  if (open != std::string::npos) text.resize(open);
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

Json ToJson(const CelRule& rule, const Schema& schema) {
  const std::string condition = Expression(rule, schema);
  Json out = {{"rule", condition.empty() ? rule.holds : fmt::format("!({}) || ({})", condition, rule.holds)},
              {"message", PlainMessage(rule.message)},
              {"reason", rule.reason}};
  if (*rule.field != '\0') out["fieldPath"] = fmt::format(".{}", rule.field);
  if (std::string expression = MessageExpression(rule.message); !expression.empty())
    out["messageExpression"] = std::move(expression);
  return out;
}

// ---- immutable fields

// Returns an expression for "the field is equal in both, or missing from both".
std::string IsUnchanged(const Schema& field, const std::string& current, const std::string& old) {
  if (!MayBeMissing(field)) return fmt::format("{} == {}", current, old);
  return fmt::format("has({0}) == has({1}) && (!has({0}) || {0} == {1})", current, old);
}

// Adds the rule of the root about changes; no other node has both spec and status. It is one rule, since the
// API server evaluates every rule again with each status write: there, the first comparison decides it. The
// message names the first field that may not change, which the field path of a rule cannot. The server limits
// its cost, so it does not name all of them.
void AddChanges(Json& out) {
  constexpr const char* kStopped =
      "(oldSelf.spec.suspend && has(oldSelf.status) && has(oldSelf.status.conditions) && "
      "oldSelf.status.conditions.exists(c, c.type == 'Suspended' && c.status == 'True'))";
  std::string never, while_running, first_never, first_while_running;
  for (const GuardedField& field : GuardedFields()) {
    std::string rule;
    // Another rule covers an object that is missing from one of the two.
    for (const std::string& parent : field.optional_parents)
      rule += fmt::format("!has(self.{0}) || !has(oldSelf.{0}) || ", parent);
    rule += IsUnchanged(*field.schema, "self." + field.path, "oldSelf." + field.path);
    (field.never ? never : while_running) += fmt::format(" && ({})", rule);
    (field.never ? first_never : first_while_running) +=
        fmt::format("!({}) ? '{}' : ", rule, field.path.substr(std::strlen("spec.")));
  }
  out.push_back({{"rule", fmt::format("self.spec == oldSelf.spec || ({} && ({} || ({})))", never.substr(4),
                                      kStopped, while_running.substr(4))},
                 {"fieldPath", ".spec"},
                 {"message", "a field cannot be changed, or only while the job is stopped"},
                 {"messageExpression",
                  fmt::format("!({}) ? ({}'') + ': {}' : ({}'') + ': {}'", never.substr(4), first_never,
                              kNeverChanges, first_while_running, kChangesWhenStopped)},
                 {"reason", kForbidden}});
}

}  // namespace

Json CelRulesAt(const Schema& schema, const std::string& path) {
  Json out = Json::array();
  AddOwnRules(schema, out);
  for (const std::vector<CelRule>* rules : {&CrossFieldRules(), &MpiRules()}) {
    for (const CelRule& rule : *rules) {
      if (path == rule.at) out.push_back(ToJson(rule, schema));
    }
  }
  if (path.empty()) AddChanges(out);
  return out;
}

}  // namespace ringmaster::api
