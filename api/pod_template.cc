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

// A list of objects whose member `key` identifies them.
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

Schema Words(std::string name, int max_items, int longest, std::string help) {
  Schema schema;
  schema.name = std::move(name);
  schema.type = Type::kList;
  schema.rules.max_items = max_items;
  schema.help = std::move(help);
  schema.item.push_back(Text("", {.max_length = longest}, ""));
  return schema;
}

Schema Containers(std::string name, std::string help) {
  constexpr int kLongestString = 131'072;  // the longest one that Linux passes to a program
  return MergedList(
      std::move(name), "name", 64, std::move(help),
      {Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel}, "Name of the container."),
       Words("command", 1024, kLongestString,
             "Program and arguments. They replace the ENTRYPOINT of the image."),
       MergedList("env", "name", 1024,
                  "Environment variables. They override the variables that the operator sets.",
                  {Text("name", {.required = true, .max_length = 512}, "Name of the variable."),
                   Text("value", {.max_length = kLongestString}, "Value of the variable.")}),
       MergedList("volumeMounts", "mountPath", 256, "Mounts of volumes.",
                  {Text("mountPath", {.required = true, .max_length = 4096}, "Path in the container."),
                   Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel},
                        "Name of the volume.")})});
}

}  // namespace

std::vector<Schema> PodTemplateFields() {
  return {Object("metadata", "Labels and annotations of the pods.", {}),
          Object("spec", "Spec of the pods.",
                 {Containers("containers", "Containers of a pod."),
                  Containers("initContainers", "Init containers of a pod."),
                  MergedList("volumes", "name", 256, "Volumes that containers can mount.",
                             {Text("name", {.required = true, .max_length = 63, .form = Form::kDnsLabel},
                                   "Name of the volume.")})})};
}

const Json* MemberOf(const Json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(name);
  return it == object->end() ? nullptr : &*it;
}

const Json* TrainingContainer(const Json& pod_template) {
  const Json* containers = MemberOf(MemberOf(&pod_template, "spec"), "containers");
  if (containers == nullptr || !containers->is_array() || containers->empty()) return nullptr;
  for (const Json& container : *containers) {
    const Json* name = MemberOf(&container, "name");
    if (name != nullptr && *name == "worker") return &container;
  }
  return &containers->front();
}

}  // namespace ringmaster::api
