// The status as a merge patch, by the field tables of the API.
#include "api/codec.h"
#include "api/fields_status.h"
#include "operator/kube/backend/status_codec.h"

namespace ringmaster::kube {
namespace {

// Declared before they use each other: these types are not of this namespace.
template <api::HasTable S>
Json PatchValue(const S& value);
template <api::HasTable S>
Json PatchValue(const std::optional<S>& value);

template <class T>
Json PatchValue(const T& value) {
  return api::WriteValue(value);
}
template <api::HasTable S>
Json PatchValue(const S& value) {
  Json patch = Json::object();
  const S defaults{};
  api::ForEachField<S>([&](const auto& field) {
    const auto& member = value.*field.member;
    if constexpr (api::HasTable<std::decay_t<decltype(member)>>)
      patch[field.name] = PatchValue(member);
    else
      patch[field.name] = member == defaults.*field.member ? Json() : PatchValue(member);
  });
  return patch;
}
template <api::HasTable S>
Json PatchValue(const std::optional<S>& value) {
  return value ? PatchValue(*value) : Json();
}

}  // namespace

Json StatusPatch(const api::Status& status) { return PatchValue(status); }

}  // namespace ringmaster::kube
