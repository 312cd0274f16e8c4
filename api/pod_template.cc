// SPDX-License-Identifier: Apache-2.0

#include "api/pod_template.h"

#include <algorithm>
#include <iterator>

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

// Declared so that rules can read it.
Schema Annotations() {
  constexpr int kLongestValue = 262'144;  // of all annotations together
  Schema schema;
  schema.name = "annotations";
  schema.type = Type::kMap;
  schema.rules.max_items = 1024;
  schema.rules.key_form = Form::kAny;
  schema.help = "Annotations of the pods.";
  schema.item.push_back(Text("", {.max_length = kLongestValue, .form = Form::kAny}, ""));
  return schema;
}

// The annotations by which a template asks Kueue for a topology.
constexpr const char* kKueueRequired = "kueue.x-k8s.io/podset-required-topology";
constexpr const char* kKueuePreferred = "kueue.x-k8s.io/podset-preferred-topology";
constexpr const char* kKueueTopologies[] = {
    kKueueRequired,
    kKueuePreferred,
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
};

}  // namespace

std::vector<Schema> PodTemplateFields() {
  return {Object("metadata", "Labels and annotations of the pods.", {Annotations()}),
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

bool AsksKueueForTopology(const Json& pod_template) {
  const Json* annotations = MemberOf(MemberOf(&pod_template, "metadata"), "annotations");
  return std::any_of(std::begin(kKueueTopologies), std::end(kKueueTopologies),
                     [&](const char* name) { return MemberOf(annotations, name) != nullptr; });
}

std::string KueueTopologyOf(const Json& pod_template) {
  const Json* annotations = MemberOf(MemberOf(&pod_template, "metadata"), "annotations");
  for (const char* name : {kKueuePreferred, kKueueRequired}) {
    const Json* label = MemberOf(annotations, name);
    if (label != nullptr && label->is_string() && *label != "") return label->get<std::string>();
  }
  return "";
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
