// SPDX-License-Identifier: Apache-2.0

#include "api/schema.h"

#include <type_traits>

#include "api/codec.h"
#include "api/fields_status.h"

namespace ringmaster::api {
namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class T>
struct IsMap<std::map<std::string, T>> : std::true_type {};

template <HasTable S>
void AddFields(Schema& schema);

template <class T>
Schema SchemaOf(const char* name, const Rules& rules, const char* help) {
  Schema schema;
  schema.name = name;
  schema.rules = rules;
  schema.help = help;
  if constexpr (IsOptional<T>::value) {
    schema = SchemaOf<typename T::value_type>(name, rules, help);
    schema.optional = true;
  } else if constexpr (IsVector<T>::value) {
    schema.type = Type::kList;
    schema.item.push_back(SchemaOf<typename T::value_type>("", rules, ""));
  } else if constexpr (IsMap<T>::value) {
    schema.type = Type::kMap;
    schema.item.push_back(SchemaOf<typename T::mapped_type>("", rules, ""));
  } else if constexpr (HasTable<T>) {
    schema.type = Type::kObject;
    AddFields<T>(schema);
  } else if constexpr (std::is_same_v<T, Json>) {
    schema.type = Type::kAnyObject;
    if (rules.known_fields != nullptr) schema.fields = rules.known_fields();
  } else if constexpr (std::is_same_v<T, std::string>) {
    const bool or_integer = rules.form == Form::kSlots || rules.form == Form::kAutoSeconds;
    schema.type = or_integer ? Type::kIntOrString : Type::kString;
  } else if constexpr (std::is_same_v<T, bool>) {
    schema.type = Type::kBool;
  } else {
    static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>);
    schema.type = Type::kInteger;
    schema.bits = 8 * static_cast<int>(sizeof(T));
  }
  return schema;
}

template <HasTable S>
void AddFields(Schema& schema) {
  const S defaults{};
  ForEachField<S>([&]<class M>(const Field<S, M>& field) {
    Schema child = SchemaOf<M>(field.name, field.rules, field.help);
    const bool scalar = child.type == Type::kString || child.type == Type::kInteger ||
                        child.type == Type::kBool || child.type == Type::kIntOrString;
    if (scalar && !field.rules.required) {
      Json value = WriteValue(defaults.*field.member);
      if (value != Json("")) child.default_value = std::move(value);
    }
    schema.fields.push_back(std::move(child));
  });
  if constexpr (requires { Table<S>::kIgnored; }) {
    schema.ignored.assign(Table<S>::kIgnored.begin(), Table<S>::kIgnored.end());
  }
  if constexpr (requires { Table<S>::kOpen; }) schema.open = true;
}

}  // namespace

const Schema* Schema::Find(std::string_view field) const {
  for (const Schema& child : fields) {
    if (child.name == field) return &child;
  }
  return nullptr;
}

const Schema& JobSchema() {
  static const Schema kSchema = SchemaOf<TrainingJob>("", {}, "");
  return kSchema;
}

Json DefaultFor(const Schema& schema) {
  if (schema.rules.required || schema.optional) return nullptr;
  if (schema.type != Type::kObject) return schema.default_value;
  Json value = Json::object();
  for (const Schema& field : schema.fields) {
    if (field.rules.required) return nullptr;
    if (Json inner = DefaultFor(field); !inner.is_null()) value[field.name] = std::move(inner);
  }
  return value.empty() ? Json() : value;
}

std::vector<std::string_view> Values(const Rules& rules) {
  std::vector<std::string_view> values;
  if (rules.values == nullptr) return values;
  std::string_view rest = rules.values;
  while (true) {
    const size_t bar = rest.find('|');
    values.push_back(rest.substr(0, bar));
    if (bar == std::string_view::npos) return values;
    rest.remove_prefix(bar + 1);
  }
}

}  // namespace ringmaster::api
