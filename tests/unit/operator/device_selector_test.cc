// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/device_selector.h"

#include <gtest/gtest.h>

namespace ringmaster::core {
namespace {

constexpr const char* kDriver = "gpu.example.com";

Device Gpu() {
  Device device;
  device.name = "gpu-0";
  const auto add = [&](const char* name, DeviceValue value) {
    device.attributes.push_back(std::make_shared<const DeviceAttribute>(
        DeviceAttribute{std::string(kDriver) + "/" + name, std::move(value)}));
  };
  add("model", std::string("LARGE"));
  add("index", int64_t{3});
  add("healthy", true);
  device.attributes.push_back(std::make_shared<const DeviceAttribute>(
      DeviceAttribute{"resource.kubernetes.io/pcieRoot", std::string("pci0")}));
  return device;
}

// nullopt: it is not evaluated.
std::optional<bool> Selects(std::string_view expression) {
  const auto selector = DeviceSelector::Parse(expression);
  return selector ? std::optional(selector->Selects(kDriver, Gpu())) : std::nullopt;
}

TEST(DeviceSelector, TheDriver) {
  EXPECT_EQ(Selects("device.driver == 'gpu.example.com'"), true);
  EXPECT_EQ(Selects(R"(device.driver == "gpu.example.com")"), true);
  EXPECT_EQ(Selects(" \"gpu.example.com\"==device.driver\n"), true);
  EXPECT_EQ(Selects("device.driver == 'net.example.com'"), false);
  EXPECT_EQ(Selects("device.driver != 'net.example.com'"), true);
}

TEST(DeviceSelector, Attributes) {
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].model == "LARGE")"), true);
  EXPECT_EQ(Selects(R"(device.attributes['gpu.example.com']['model'] == "SMALL")"), false);
  EXPECT_EQ(Selects(R"(device.attributes["resource.kubernetes.io"].pcieRoot == "pci0")"), true);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].index == 3)"), true);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].index >= -1)"), true);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].index < 3)"), false);
  EXPECT_EQ(Selects(R"(3 > device.attributes["gpu.example.com"].index)"), false);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].healthy)"), true);
  EXPECT_EQ(Selects(R"(!device.attributes["gpu.example.com"].healthy)"), false);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].healthy == true)"), true);
}

TEST(DeviceSelector, TermsAreJoined) {
  const std::string driver = "device.driver == 'gpu.example.com'";
  const std::string model = R"(device.attributes["gpu.example.com"].model == "LARGE")";
  EXPECT_EQ(Selects(driver + " && " + model), true);
  EXPECT_EQ(Selects(driver + " && !(" + model + ")"), false);
  EXPECT_EQ(Selects("false || " + driver + " && false"), false) << "&& binds first";
  EXPECT_EQ(Selects("(false || " + driver + ") && true"), true);
}

// As in CEL: an error on one side does not matter when the other one decides.
TEST(DeviceSelector, ADeviceWithAnErrorIsNotSelected) {
  const std::string missing = R"(device.attributes["gpu.example.com"].memory == 8)";
  EXPECT_EQ(Selects(missing), false);
  EXPECT_EQ(Selects("!(" + missing + ")"), false);
  EXPECT_EQ(Selects("true || " + missing), true);
  EXPECT_EQ(Selects(missing + " || true"), true);
  EXPECT_EQ(Selects(missing + " || false"), false);
  EXPECT_EQ(Selects("!(" + missing + " && false)"), true);
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].model < 3)"), false)
      << "texts and numbers have no order";
  EXPECT_EQ(Selects(R"(device.attributes["gpu.example.com"].model == 3)"), false);
  EXPECT_EQ(Selects(R"(!device.attributes["gpu.example.com"].model)"), false);
  EXPECT_EQ(Selects("device.driver"), false) << "not a truth value";
}

TEST(DeviceSelector, EverythingElseIsNotEvaluated) {
  for (const char* expression :
       {"",
        "  ",
        "device",
        "device.name == 'x'",
        "device.driver =",
        "device.driver == ",
        "&& true",
        "true &&",
        "(true",
        "true)",
        "true true",
        "device.driver == 'a' == true",
        "device.driver == 'a\\x41'",
        "device.driver == r'a'",
        "device.driver == '''a'''",
        "device.driver == 'a",
        "device.driver in ['a']",
        "device.driver.startsWith('gpu')",
        R"("model" in device.attributes["gpu.example.com"])",
        R"(device.attributes["gpu.example.com"].model.lowerAscii() == "large")",
        R"(device.attributes["gpu.example.com"].?model.orValue("") == "x")",
        R"(device.attributes["gpu.example.com"] == 3)",
        R"(device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0)",
        R"(has(device.attributes["gpu.example.com"].model))",
        "1.5 == 1.5",
        "1u == 1u",
        "0x1 == 1",
        "device.driver == null",
        "true ? true : false",
        "1 + 1 == 2",
        "-device.driver == 'a'",
        "// comment"})
    EXPECT_EQ(Selects(expression), std::nullopt) << expression;
  EXPECT_EQ(Selects(std::string(1000, '(')), std::nullopt) << "and it does not exhaust the stack";
  EXPECT_EQ(Selects(std::string(1000, '!') + "true"), std::nullopt);
}

}  // namespace
}  // namespace ringmaster::core
