// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

TEST(Safetensors, FileHasTheLayoutOfTheFormat) {
  const TempFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {7};
  ASSERT_TRUE(WriteSafetensors(folder.File("m.safetensors"), {{"a", {2, 3}, a}, {"b", {1}, b}}).ok());
  const std::string text = folder.Read("m.safetensors");
  uint64_t length = 0;
  ASSERT_GE(text.size(), 8U);
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0U);
  ASSERT_EQ(text.size(), 8 + length + 7 * sizeof(float));
  const Json header = ParseJson(text.substr(8, length)).value();
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  EXPECT_EQ(header["a"], (Json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(header["b"]["data_offsets"], (Json{24, 28}));
  std::vector<float> values(7);
  std::memcpy(values.data(), text.data() + 8 + length, 7 * sizeof(float));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(Safetensors, AFailureLeavesNoFile) {
  const TempFolder folder;
  EXPECT_FALSE(WriteSafetensors(folder.File("no/m.safetensors"), {}).ok());
  ASSERT_TRUE(std::filesystem::create_directory(folder.File("m.safetensors")));
  EXPECT_FALSE(WriteSafetensors(folder.File("m.safetensors"), {}).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace ringmaster::cli
