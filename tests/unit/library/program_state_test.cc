// SPDX-License-Identifier: Apache-2.0

#include "worker/library/program_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/fabric/fabric.h"

namespace ringmaster::library {
namespace {

std::vector<StateArray> Example(std::vector<char>* weights, std::vector<char>* momentum) {
  for (size_t i = 0; i < weights->size(); ++i) (*weights)[i] = static_cast<char>(i * 7);
  for (size_t i = 0; i < momentum->size(); ++i) (*momentum)[i] = static_cast<char>(i * 3);
  return {{"weights", "f32", std::as_writable_bytes(std::span(*weights)), true},
          {"momentum", "bf16", std::as_writable_bytes(std::span(*momentum)), false},
          {"empty", "i64", {}, false}};
}

TEST(ProgramState, HashesSeparateTheWeightsFromTheRest) {
  std::vector<char> weights(4096);
  std::vector<char> momentum(100);
  const std::vector<StateArray> arrays = Example(&weights, &momentum);
  const StateHashes before = HashState(arrays, 5);
  EXPECT_EQ(HashState(arrays, 5), before);
  EXPECT_NE(HashState(arrays, 6).others, before.others);
  EXPECT_EQ(HashState(arrays, 6).params, before.params);
  momentum[99] ^= 1;
  EXPECT_EQ(HashState(arrays, 5).params, before.params);
  EXPECT_NE(HashState(arrays, 5).others, before.others);
  momentum[99] ^= 1;
  weights[0] ^= 1;
  EXPECT_NE(HashState(arrays, 5).params, before.params);
  EXPECT_EQ(HashState(arrays, 5).others, before.others);
}

TEST(ProgramState, TheNumberOfThreadsDoesNotChangeItsHashes) {
  std::vector<char> weights((size_t{17} << 20) + 5);
  std::vector<char> momentum(size_t{8} << 20);
  const std::vector<StateArray> arrays = Example(&weights, &momentum);
  const StateHashes hashes = HashState(arrays, 5, 1);
  EXPECT_EQ(HashState(arrays, 5, 3), hashes);
  weights.back() ^= 1;
  EXPECT_NE(HashState(arrays, 5, 3).params, hashes.params);
  EXPECT_EQ(HashState(arrays, 5, 3).others, hashes.others);
}

// A copy would cost the size of the state when a program resumes.
TEST(ProgramState, OfACheckpointKeepsItsMemory) {
  std::vector<char> weights(4096);
  std::vector<char> momentum(100);
  const std::vector<StateArray> arrays = Example(&weights, &momentum);
  const auto load = [&arrays] {
    checkpoint::Loaded loaded;
    loaded.path = "step-1";
    loaded.meta["arrays"] = DescribeArrays(arrays);
    for (const StateArray& array : arrays)
      loaded.arrays.push_back({array.name, array.type, {array.bytes.begin(), array.bytes.end()}});
    return loaded;
  };
  checkpoint::Loaded good = load();
  const std::byte* const memory = good.Find("weights")->bytes.data();
  const auto state = StateOf(std::move(good));
  ASSERT_TRUE(state.ok()) << state.error().message;
  const std::vector<StateArray> views = state->views();
  EXPECT_EQ(views[0].bytes.data(), memory);
  EXPECT_EQ(HashState(views, 5), HashState(arrays, 5));
  EXPECT_NE(views[2].bytes.data(), nullptr);
  EXPECT_TRUE(views[2].bytes.empty());

  checkpoint::Loaded twice = load();
  twice.meta["arrays"].push_back(twice.meta["arrays"][0]);
  EXPECT_EQ(StateOf(std::move(twice)).error().message,
            "step-1: array weights is missing or has another size");
  checkpoint::Loaded shorter = load();
  shorter.arrays[0].bytes.pop_back();
  EXPECT_FALSE(StateOf(std::move(shorter)).ok());
}

TEST(ProgramState, TravelsFromAllSourcesToTheOthers) {
  // More pieces than sources; the sources hold equal states.
  std::vector<char> weights(size_t{9} << 20);
  std::vector<char> momentum(1000);
  const std::vector<StateArray> arrays = Example(&weights, &momentum);
  constexpr int kWorld = 4;
  const std::vector<int32_t> sources = {1, 3};
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
  std::vector<std::string> addresses;
  for (int r = 0; r < kWorld; ++r) {
    fabrics.push_back(fabric::Fabric::Create({.transport = "shm", .host_id = ""}).value());
    addresses.push_back(fabrics.back()->Address());
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      const auto comm = fabrics[static_cast<size_t>(r)]->Connect({1, r, addresses}).value();
      if (r == 1 || r == 3) {
        EXPECT_TRUE(SendState(comm.get(), sources, arrays, {{"step", 12}}).ok());
        return;
      }
      const auto received = ReceiveState(comm.get(), sources);
      ASSERT_TRUE(received.ok()) << received.error().message;
      EXPECT_EQ(received->info["step"], 12);
      const std::vector<StateArray> views = received->state.views();
      ASSERT_EQ(views.size(), arrays.size());
      EXPECT_EQ(HashState(views, 12), HashState(arrays, 12));
      EXPECT_EQ(views[1].type, "bf16");
      EXPECT_TRUE(views[0].parameter && !views[1].parameter);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProgramState, ACheckpointWithoutAnArrayIsCorrupt) {
  std::vector<char> weights(64);
  std::vector<char> momentum(10);
  const std::vector<StateArray> arrays = Example(&weights, &momentum);
  checkpoint::Loaded loaded;
  loaded.path = "out/step-3";
  loaded.meta = {{"arrays", DescribeArrays(arrays)}};
  for (const StateArray& array : arrays)
    loaded.arrays.push_back({array.name, array.type, {array.bytes.begin(), array.bytes.end()}});
  const auto whole = StateOf(loaded);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(HashState(whole->views(), 1), HashState(arrays, 1));
  loaded.arrays.erase(loaded.arrays.begin() + 1);
  const auto broken = StateOf(loaded);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, Code::kCorrupt);
  EXPECT_NE(broken.error().message.find("momentum"), std::string::npos);
}

}  // namespace
}  // namespace ringmaster::library
