// SPDX-License-Identifier: Apache-2.0

// Recorded values: a job must find its checkpoints again after an update of the program.
#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

std::string Random(uint64_t seed, size_t bytes, uint64_t below) {
  SplitMix64 random(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random.Below(below));
  return out;
}

uint64_t FingerprintOf(Kind kind, const std::string& path) {
  Config config;
  config.kind = kind;
  config.path = path;
  config.context = 16;
  config.vocabulary = 65536;
  const auto opened = Dataset::Open(config);
  if (!opened.ok()) {
    ADD_FAILURE() << opened.error().message;
    return 0;
  }
  return (*opened)->Fingerprint();
}

TEST(Fingerprint, TheValuesNeverChange) {
  const TempFolder folder;
  std::string text = Random(1, 500'001, 95);
  for (char& c : text) c = static_cast<char>(c + 32);
  EXPECT_EQ(FingerprintOf(Kind::kText, folder.Write("small.txt", text.substr(0, 1000))),
            4765871518050463982U);
  EXPECT_EQ(FingerprintOf(Kind::kText, folder.Write("large.txt", text)), 10047007319141511939U);
  folder.Write("parts/1", text.substr(0, 300'000));
  folder.Write("parts/2", text.substr(300'000));
  EXPECT_EQ(FingerprintOf(Kind::kText, folder.path() + "/parts"), 13607534803155409570U);

  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 200'000;
  const std::string tokens =
      std::string(reinterpret_cast<const char*>(header.data()), 1024) + Random(2, 400'000, 256);
  EXPECT_EQ(FingerprintOf(Kind::kTokens, folder.Write("tokens.bin", tokens)), 11103965850244358467U);

  folder.Write("idx/train-images-idx3-ubyte", Idx({500, 28, 28}, Random(3, 500 * 28 * 28, 256)));
  folder.Write("idx/train-labels-idx1-ubyte.gz", Gzip(Idx({500}, Random(4, 500, 10))));
  EXPECT_EQ(FingerprintOf(Kind::kIdx, folder.path() + "/idx"), 9104000536470701934U);

  std::string cifar = Random(5, 200 * 3073, 256);
  for (size_t i = 0; i < 200; ++i) cifar[i * 3073] = static_cast<char>(i % 10);
  folder.Write("cifar/data_batch_1.bin", cifar);
  folder.Write("cifar/test_batch.bin", cifar.substr(0, 10 * 3073));
  EXPECT_EQ(FingerprintOf(Kind::kCifar10, folder.path() + "/cifar"), 6432942449579071108U);
}

}  // namespace
}  // namespace ringmaster::data
