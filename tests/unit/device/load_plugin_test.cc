// SPDX-License-Identifier: Apache-2.0

// Every way in which no GPU is available: FindPlugin reports the reason, and Open uses the CPU unless cuda
// was requested.
#include "worker/compute/device/load_plugin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker/compute/device/open_device.h"

namespace ringmaster::device {
namespace {

class LoadPlugin : public testing::Test {
 protected:
  ~LoadPlugin() override {
    ::unsetenv("RINGMASTER_DEVICE_PLUGIN");
    std::filesystem::remove(text_);
  }
  void Use(const std::string& path) { ::setenv("RINGMASTER_DEVICE_PLUGIN", path.c_str(), 1); }
  void ExpectNoGpu(const std::string& why) {
    const auto found = FindPlugin();
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::kUnavailable);
    EXPECT_NE(found.error().message.find(why), std::string::npos) << found.error().message;
    EXPECT_EQ(DescribeAutoDevice(), "cpu (no GPU: " + found.error().message + ")");
    // The fall back to the CPU is not silent where the plugin is installed.
    testing::internal::CaptureStderr();
    EXPECT_EQ(Open({"auto", 1}).value()->Kind(), "cpu");
    const bool said = testing::internal::GetCapturedStderr().find("no GPU is used") != std::string::npos;
    EXPECT_EQ(said, std::filesystem::exists(PluginPath()));
    EXPECT_EQ(Open({"cpu", 1}).value()->Kind(), "cpu");
    const auto cuda = Open({"cuda", 1});
    ASSERT_FALSE(cuda.ok());
    EXPECT_EQ(cuda.error().code, Code::kUnavailable);
    EXPECT_NE(cuda.error().message.find(why), std::string::npos);
    EXPECT_NE(cuda.error().message.find("set the field to auto or cpu"), std::string::npos);
  }
  const std::string text_ = testing::TempDir() + "no_library.so";
};

TEST_F(LoadPlugin, IsNextToThisProgramUnlessSet) {
  EXPECT_EQ(std::filesystem::path(PluginPath()).parent_path(),
            std::filesystem::read_symlink("/proc/self/exe").parent_path());
  Use("/elsewhere/x.so");
  EXPECT_EQ(PluginPath(), "/elsewhere/x.so");
}

TEST_F(LoadPlugin, MissingFile) {
  Use("/nowhere/at/all.so");
  ExpectNoGpu("/nowhere/at/all.so does not exist");
}

// MayUseGpu does not load the plugin or call the driver.
TEST_F(LoadPlugin, MayUseGpuNeedsTheChoiceAndTheFile) {
  std::ofstream(text_) << "not a library";
  Use(text_);
  EXPECT_TRUE(MayUseGpu("auto"));
  EXPECT_TRUE(MayUseGpu("cuda"));
  EXPECT_FALSE(MayUseGpu("cpu"));
  Use("/nowhere/at/all.so");
  EXPECT_FALSE(MayUseGpu("auto"));
}

TEST_F(LoadPlugin, FileThatIsNotALibrary) {
  std::ofstream(text_) << "words";
  Use(text_);
  ExpectNoGpu("cannot be loaded");
}

TEST_F(LoadPlugin, LibraryThatIsNotAPlugin) {
  for (const std::string folder :
       {"/lib/x86_64-linux-gnu/", "/lib/aarch64-linux-gnu/", "/lib64/", "/usr/lib/"}) {
    if (!std::filesystem::exists(folder + "libm.so.6")) continue;
    Use(folder + "libm.so.6");
    ExpectNoGpu("is not a Ringmaster plugin");
    return;
  }
  GTEST_SKIP() << "no libm.so.6 in the usual folders";
}

TEST_F(LoadPlugin, PluginOfAnotherBuild) {
  Use(STALE_PLUGIN);
  ExpectNoGpu("comes from another build than this program");
}

}  // namespace
}  // namespace ringmaster::device
