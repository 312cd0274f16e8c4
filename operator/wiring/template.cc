// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

enum class Shape : uint8_t { kObject, kTexts, kObjects };

struct Member {
  const char* name;
  Shape shape;
};

constexpr Member kTemplate[] = {{"metadata", Shape::kObject}, {"spec", Shape::kObject}};
constexpr Member kMetadata[] = {{"labels", Shape::kTexts}, {"annotations", Shape::kTexts}};
constexpr Member kSpec[] = {
    {"affinity", Shape::kObject},        {"containers", Shape::kObjects},
    {"hostAliases", Shape::kObjects},    {"imagePullSecrets", Shape::kObjects},
    {"initContainers", Shape::kObjects}, {"nodeSelector", Shape::kTexts},
    {"resourceClaims", Shape::kObjects}, {"schedulingGates", Shape::kObjects},
    {"securityContext", Shape::kObject}, {"tolerations", Shape::kObjects},
    {"volumes", Shape::kObjects},        {"topologySpreadConstraints", Shape::kObjects},
};
constexpr Member kContainer[] = {
    {"env", Shape::kObjects},      {"envFrom", Shape::kObjects},        {"ports", Shape::kObjects},
    {"resources", Shape::kObject}, {"securityContext", Shape::kObject}, {"volumeMounts", Shape::kObjects},
};
constexpr Member kResources[] = {
    {"limits", Shape::kObject}, {"requests", Shape::kObject}, {"claims", Shape::kObjects}};

bool Fits(const Json& value, Shape shape) {
  switch (shape) {
    case Shape::kObject:
      return value.is_object();
    case Shape::kTexts:
      return value.is_object() && std::all_of(value.begin(), value.end(), [](const Json& member) {
               return member.is_string() || member.is_null();
             });
    case Shape::kObjects:
      return value.is_array() &&
             std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_object(); });
  }
  return false;
}

const char* Words(Shape shape) {
  switch (shape) {
    case Shape::kObject:
      return "an object";
    case Shape::kTexts:
      return "an object of strings (numbers and booleans need quotes)";
    case Shape::kObjects:
      return "a list of objects";
  }
  return "?";
}

class Reader {
 public:
  explicit Reader(Template& out) : out_(out) {}

  void Read() {
    // null cannot remove these three: every pod has them.
    for (const char* part : {"metadata", "spec"}) EraseNull(out_.value, part);
    if (out_.value.contains("spec")) EraseNull(out_.value["spec"], "containers");
    Check(out_.value, kTemplate, kTemplatePath);
    if (auto metadata = out_.value.find("metadata"); metadata != out_.value.end() && metadata->is_object())
      Check(*metadata, kMetadata, fmt::format("{}.metadata", kTemplatePath));
    auto spec = out_.value.find("spec");
    if (spec == out_.value.end() || !spec->is_object()) return;
    Check(*spec, kSpec, fmt::format("{}.spec", kTemplatePath));
    for (const char* list : {"containers", "initContainers"}) {
      if (!spec->contains(list) || !(*spec)[list].is_array()) continue;
      int index = 0;
      for (Json& container : (*spec)[list])
        Container(container, fmt::format("{}.spec.{}[{}]", kTemplatePath, list, index++));
    }
  }

 private:
  void Container(Json& container, const std::string& place) {
    Check(container, kContainer, place);
    if (auto resources = container.find("resources"); resources != container.end() && resources->is_object())
      Check(*resources, kResources, place + ".resources");
  }

  static void EraseNull(Json& object, const char* member) {
    if (object.is_object() && object.contains(member) && object[member].is_null()) object.erase(member);
  }

  // Keeps null, which removes a default.
  template <size_t N>
  void Check(Json& object, const Member (&members)[N], const std::string& place) {
    for (const Member& member : members) {
      const auto at = object.find(member.name);
      if (at == object.end() || at->is_null() || Fits(*at, member.shape)) continue;
      out_.problems.push_back(
          fmt::format("{}.{}: must be {}; it is ignored", place, member.name, Words(member.shape)));
      object.erase(at);
    }
  }

  Template& out_;
};

// Returns `worker`, or the name of the only container.
std::string WorkerName(const Json& value, bool native, std::vector<std::string>& problems) {
  constexpr const char* kWorker = "worker";
  const Json* containers = Find(value, {"spec", "containers"});
  if (containers == nullptr || containers->empty()) return kWorker;
  for (const Json& container : *containers) {
    if (Text(container, {"name"}) == kWorker) return kWorker;
  }
  if (containers->size() > 1 && native) return kWorker;  // the operator's container in addition to the user's
  const std::string name = Text(containers->front(), {"name"});
  if (containers->size() > 1) {
    problems.push_back(fmt::format(
        "{}.spec.containers: none of the {} containers is named worker, so the first (\"{}\") trains; "
        "name it worker",
        kTemplatePath, containers->size(), name));
  }
  return name.empty() ? kWorker : name;
}

}  // namespace

Template ReadTemplate(const api::TrainingJob& job) {
  Template result;
  result.value = job.spec.workers.template_;
  if (!result.value.is_object()) {
    if (!result.value.is_null())
      result.problems.push_back(fmt::format("{}: must be an object; it is ignored", kTemplatePath));
    result.value = Json::object();
  }
  Reader(result).Read();
  result.worker = WorkerName(result.value, job.spec.framework == "native", result.problems);
  return result;
}

const Json* UserContainer(const Template& user) {
  const Json* containers = Find(user.value, {"spec", "containers"});
  if (containers == nullptr) return nullptr;
  for (const Json& container : *containers) {
    if (Text(container, {"name"}) == user.worker) return &container;
  }
  return nullptr;
}

}  // namespace ringmaster::wiring
