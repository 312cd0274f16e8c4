// SPDX-License-Identifier: Apache-2.0

#include "api/pod_template.h"

namespace ringmaster::api {
namespace {

Schema Object(std::string name, std::string help, std::vector<Schema> fields) {
  Schema schema;
  schema.name = std::move(name);
  schema.type = Type::kAnyObject;
  schema.help = std::move(help);
  schema.fields = std::move(fields);
  return schema;
}

Schema Text(std::string name, Rules rules, std::string help) {
  Schema schema;
  schema.name = std::move(name);
  schema.type = Type::kString;
  schema.rules = rules;
  schema.help = std::move(help);
  return schema;
}

// A list of objects that are told apart by their member `key`.
Schema MergedList(std::string name, const char* key, int max_items, std::string help,
                  std::vector<Schema> fields) {
  Schema schema;
  schema.name = std::move(name);
  schema.type = Type::kList;
  schema.rules.max_items = max_items;
  schema.help = std::move(help);
  schema.item.push_back(Object("", "", std::move(fields)));
  schema.rules.key = key;
  return schema;
}

Schema Containers(std::string name, std::string help) {
  constexpr int kLongestVariable = 131'072;  // Linux passes no longer string to a program
  return MergedList(
      std::move(name), "name", 64, std::move(help),
      {Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel}, "Its name."),
       MergedList("env", "name", 1024, "Environment variables; they win over those that we set.",
                  {Text("name", {.required = true, .max_length = 512}, "Of the variable."),
                   Text("value", {.max_length = kLongestVariable}, "A string.")}),
       MergedList(
           "volumeMounts", "mountPath", 256, "Where volumes appear.",
           {Text("mountPath", {.required = true, .max_length = 4096}, "Folder in the container."),
            Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel}, "Of the volume.")})});
}

}  // namespace

std::vector<Schema> PodTemplateFields() {
  return {Object("metadata", "Labels and annotations of the pods.", {}),
          Object("spec", "As in a Pod.",
                 {Containers("containers", "What runs in a pod."),
                  Containers("initContainers", "What runs before it."),
                  MergedList("volumes", "name", 256, "What containers can mount.",
                             {Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel},
                                   "Of the volume.")})})};
}

}  // namespace ringmaster::api
