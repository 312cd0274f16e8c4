// SPDX-License-Identifier: Apache-2.0

// Folders that are removed with their test, and checkpoints whose content is a function of their step.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/temp_folder.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/publisher.h"

namespace ringmaster::checkpoint {

inline constexpr const char* kModel = "0123456789abcdef";
inline constexpr size_t kSmallChunk = 64;  // so that little data has many chunks

class Folder : public TempFolder {
 public:
  // In memory if possible: thousands of fsyncs of a disk would take minutes.
  Folder() : TempFolder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "") {}

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      const std::string name = entry.path().filename().string();
      if (name != kFolderLockName) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

inline std::vector<std::byte> Bytes(int64_t step, uint64_t salt, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(KeyedRandom(static_cast<uint64_t>(step), salt, i / 8) >> (i % 8 * 8));
  }
  return bytes;
}

inline Copy MakeCopy(int64_t step, const std::string& model = kModel, size_t params = 200) {
  Copy copy;
  copy.step = step;
  copy.model = model;
  copy.meta = {{"cursor", step * 7}, {"rate", 0.1}, {"name", "äöü"}};
  copy.arrays = {{"params", "f32", Bytes(step, 1, params)},
                 {"adamw.m", "f32", Bytes(step, 2, kSmallChunk)},
                 {"empty", "f32", {}},
                 {"exponents", "i32", Bytes(step, 3, 8)}};
  return copy;
}

inline Snapshot Borrow(const Copy& copy) {
  Snapshot snapshot;
  snapshot.step = copy.step;
  snapshot.model = copy.model;
  snapshot.meta = copy.meta;
  snapshot.state = copy.state;
  snapshot.attempt = copy.attempt;
  for (const Copy::Array& array : copy.arrays)
    snapshot.arrays.push_back({array.name, array.type, array.bytes});
  return snapshot;
}

// Returns whether `loaded` equals MakeCopy(loaded.step).
inline void ExpectWhole(const Loaded& loaded, size_t params = 200) {
  const Copy want = MakeCopy(loaded.step, loaded.model, params);
  EXPECT_EQ(loaded.meta, want.meta);
  ASSERT_EQ(loaded.arrays.size(), want.arrays.size());
  for (size_t i = 0; i < want.arrays.size(); ++i) {
    EXPECT_EQ(loaded.arrays[i].name, want.arrays[i].name);
    EXPECT_EQ(loaded.arrays[i].type, want.arrays[i].type);
    EXPECT_TRUE(loaded.arrays[i].bytes == want.arrays[i].bytes) << want.arrays[i].name;
  }
}

inline void PublishSmall(const std::string& folder, int64_t step, int keep = 2,
                         const std::string& model = kModel) {
  Publisher publisher(&PosixFiles(), folder, keep, "m1", kSmallChunk);
  const Status published = publisher.Publish(MakeCopy(step, model));
  ASSERT_TRUE(published.ok()) << published.error().message;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace ringmaster::checkpoint
