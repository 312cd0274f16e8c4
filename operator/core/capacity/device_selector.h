// SPDX-License-Identifier: Apache-2.0

// DeviceSelector: the selectors of DeviceClasses and claims that the operator evaluates.
//
// They are CEL. This is the part of it that drivers and their users write most:
//
//   device.driver == "gpu.example.com"
//   device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "LATEST-GPU-MODEL"
//
// Operands are the driver, attributes, texts without escapes, whole numbers, true and false. Operators are
// == != < <= > >= && || ! and parentheses. Parse refuses everything else (functions, capacities, `in`,
// versions), so the caller knows what is not evaluated.
//
// As in CEL, && and || give a result although one side is an error, when the other side decides. An attribute
// that the device does not have is an error. Kubernetes allocates no device whose selector is an error, so
// such a device is not selected.
//
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ringmaster::core {

using DeviceValue = std::variant<bool, int64_t, std::string>;

struct DeviceAttribute {
  std::string name;  // DOMAIN/NAME
  DeviceValue value;
  auto operator<=>(const DeviceAttribute&) const = default;
};

// A device of a ResourceSlice. Attributes are shared, since many devices have the same.
struct Device {
  std::string name;
  std::vector<std::shared_ptr<const DeviceAttribute>> attributes;  // without versions and lists
  std::string node{};                                              // empty: that of its slice
  bool tainted = false;                                            // only claims that tolerate it get it
  bool several = false;                                            // it may be allocated to several claims
};

class DeviceSelector {
 public:
  // Returns nullopt for an expression that is not evaluated.
  static std::optional<DeviceSelector> Parse(std::string_view expression);

  bool Selects(const std::string& driver, const Device& device) const;

 private:
  struct Node;
  class Parser;
  using Result = std::optional<DeviceValue>;  // nullopt: an error

  static Result Evaluate(const Node& node, const std::string& driver, const Device& device);

  std::shared_ptr<const Node> root_;
};

}  // namespace ringmaster::core
