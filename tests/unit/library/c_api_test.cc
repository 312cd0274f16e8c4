// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "include/ringmaster.h"
#include "tests/sanitized.h"

namespace {

using ::testing::HasSubstr;

constexpr int kMicroBatches = 4;

// A model of two tensors whose gradients follow from the weights, so that every step changes them.
class Program {
 public:
  explicit Program(std::string folder = "", int64_t every = 0) : folder_(std::move(folder)), every_(every) {
    EXPECT_EQ(rm_open(nullptr, &run_), RM_OK);
    std::iota(weights_.begin(), weights_.end(), 1.0f);
  }
  ~Program() { rm_close(run_); }

  rm_run* run() { return run_; }
  const std::vector<float>& weights() const { return weights_; }

  rm_status Join(int64_t steps, int32_t micro_batches = kMicroBatches) {
    const std::array<rm_tensor, 2> tensors = {{{"w", 5, 0}, {"b", 1, 0}}};
    rm_config config{};
    config.size = sizeof config;
    config.steps = steps;
    config.micro_batches = micro_batches;
    config.checkpoint_folder = folder_.c_str();
    config.checkpoint_every_steps = every_;
    config.checkpoint_keep = 100;
    return rm_join(run_, &config, tensors.data(), tensors.size());
  }

  rm_event Next() {
    rm_event event{};
    event.size = sizeof event;
    EXPECT_EQ(rm_next(run_, &event), RM_OK) << rm_error(run_);
    return event;
  }

  // Trains until the end, or until `stop_at` steps are committed. Returns the last event.
  rm_event Train(int64_t stop_at = 1 << 30) {
    while (true) {
      const rm_event event = Next();
      if (event.kind == RM_EVENT_END || (event.kind == RM_EVENT_STEP && event.step >= stop_at)) return event;
      Obey(event);
    }
  }

  void Obey(const rm_event& event) {
    if (event.kind == RM_EVENT_DESCRIBE) Describe();
    if (event.kind == RM_EVENT_LOAD) Load(event);
    if (event.kind == RM_EVENT_STEP) TakeStep(event);
  }

  void Describe() {
    const std::array<rm_array, 1> arrays = {
        {{"w", "F32", weights_.data(), weights_.size() * 4, RM_PARAMETER}}};
    EXPECT_EQ(rm_describe(run_, arrays.data(), arrays.size(), "meta", 4), RM_OK) << rm_error(run_);
  }

  void Load(const rm_event& event) {
    ASSERT_EQ(event.array_count, 1);
    EXPECT_STREQ(event.arrays[0].name, "w");
    EXPECT_STREQ(event.arrays[0].type, "F32");
    EXPECT_EQ(event.arrays[0].flags, RM_PARAMETER);
    ASSERT_EQ(event.arrays[0].bytes, weights_.size() * 4);
    EXPECT_EQ(std::string(static_cast<const char*>(event.meta), event.meta_bytes), "meta");
    std::memcpy(weights_.data(), event.arrays[0].data, event.arrays[0].bytes);
    ++loads_;
  }

  void TakeStep(const rm_event& event) {
    for (int v = event.first; v < event.end; ++v) {
      const rm_status begun = rm_begin_micro_batch(run_, v);
      if (begun == RM_SKIP) continue;
      ASSERT_EQ(begun, RM_OK);
      std::vector<float> gradient(5);
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] =
            weights_[i] * 0.01f + static_cast<float>(v) * 0.001f + static_cast<float>(event.step) * 1e-4f;
      EXPECT_EQ(rm_add(run_, 0, gradient.data()), RM_OK);
      EXPECT_EQ(rm_end_micro_batch(run_, static_cast<double>(weights_[0]) + v), RM_OK);
    }
    rm_step_result result{};
    result.size = sizeof result;
    const rm_status reduced = rm_reduce(run_, &result);
    ASSERT_TRUE(reduced == RM_OK || reduced == RM_REPEAT) << rm_error(run_);
    if (reduced == RM_REPEAT) {
      ++repeats_;
      return;
    }
    EXPECT_DOUBLE_EQ(result.loss, static_cast<double>(weights_[0]) + 1.5);
    std::vector<float> gradient(5);
    EXPECT_EQ(rm_gradient(run_, 0, gradient.data()), RM_OK);
    for (size_t i = 0; i < gradient.size(); ++i) weights_[i] -= gradient[i];
    EXPECT_EQ(rm_committed(run_, 1.0, result.gradient_norm), RM_OK);
  }

  int loads_ = 0;
  int repeats_ = 0;

 private:
  const std::string folder_;
  const int64_t every_;
  rm_run* run_ = nullptr;
  std::vector<float> weights_ = std::vector<float>(5);
};

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rm-c-api-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CApi, AProgramAloneTrainsToTheEnd) {
  EXPECT_EQ(rm_abi_version(), static_cast<uint32_t>(RM_ABI_VERSION));
  Program program;
  EXPECT_EQ(rm_has_agent(program.run()), 0);
  ASSERT_EQ(program.Join(20), RM_OK) << rm_error(program.run());
  const rm_event end = program.Train();
  EXPECT_EQ(end.kind, RM_EVENT_END);
  EXPECT_EQ(end.finished, 1);
  EXPECT_EQ(end.step, 20);
  EXPECT_EQ(end.world, 1);
  EXPECT_EQ(rm_exit_code(program.run()), 0);
  EXPECT_GE(program.repeats_, 1) << "the first step has no exponents";
}

TEST(CApi, ARunContinuesFromItsCheckpointWithTheSameBits) {
  Program whole;
  ASSERT_EQ(whole.Join(20), RM_OK);
  whole.Train();

  const Folder folder;
  {
    Program first(folder.path(), 5);
    ASSERT_EQ(first.Join(20), RM_OK);
    first.Train(13);
  }
  Program second(folder.path(), 5);
  ASSERT_EQ(second.Join(20), RM_OK);
  const rm_event load = second.Next();
  ASSERT_EQ(load.kind, RM_EVENT_LOAD);
  second.Load(load);
  const rm_event next = second.Next();
  EXPECT_EQ(next.kind, RM_EVENT_STEP);
  EXPECT_EQ(next.step, 10);
  second.Obey(next);
  EXPECT_EQ(second.Train().finished, 1);
  EXPECT_EQ(second.weights(), whole.weights());
  EXPECT_EQ(second.loads_, 1);
}

TEST(CApi, AProgramAloneSkipsADamagedCheckpoint) {
  const Folder folder;
  {
    Program first(folder.path(), 5);
    ASSERT_EQ(first.Join(30), RM_OK);
    first.Train(23);
  }
  std::set<std::string> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (std::filesystem::exists(entry.path() / "MANIFEST")) checkpoints.insert(entry.path().string());
  ASSERT_GE(checkpoints.size(), 2U);
  std::fstream chunk(*checkpoints.rbegin() + "/chunk-00000", std::ios::in | std::ios::out | std::ios::binary);
  const int byte = chunk.get();
  chunk.seekp(0).put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(chunk.flush().good());
  const std::string before = *std::next(checkpoints.rbegin());

  Program second(folder.path(), 5);
  ASSERT_EQ(second.Join(30), RM_OK);
  const rm_event load = second.Next();
  ASSERT_EQ(load.kind, RM_EVENT_LOAD);
  second.Load(load);
  EXPECT_EQ(second.Next().step, std::stoll(before.substr(before.rfind('-') + 1)));
}

TEST(CApi, AGatherComesBeforeTheFirstMicroBatch) {
  Program program;
  ASSERT_EQ(program.Join(20), RM_OK) << rm_error(program.run());
  const int mine = 5;
  int all = 0;
  EXPECT_EQ(rm_gather(program.run(), &mine, sizeof mine, &all), RM_INVALID) << "no step is attempted";
  const rm_event event = program.Train(3);
  EXPECT_EQ(rm_gather(program.run(), &mine, sizeof mine, &all), RM_OK);
  EXPECT_EQ(all, 5);
  EXPECT_EQ(rm_gather(program.run(), &mine, RM_MAX_GATHER + 1, &all), RM_INVALID);
  EXPECT_EQ(rm_gather(program.run(), &mine, 0, &all), RM_INVALID);
  EXPECT_EQ(rm_begin_micro_batch(program.run(), event.first), RM_OK);
  EXPECT_EQ(rm_gather(program.run(), &mine, sizeof mine, &all), RM_INVALID);
  EXPECT_THAT(rm_error(program.run()), HasSubstr("before its first micro-batch"));
}

TEST(CApi, ARunThatFinishesEarlyHasEndedAlsoForItsCheckpoint) {
  const Folder folder;
  std::vector<float> weights;
  {
    Program program(folder.path());
    EXPECT_EQ(rm_finish(program.run()), RM_INVALID);
    ASSERT_EQ(program.Join(20), RM_OK) << rm_error(program.run());
    EXPECT_EQ(program.Train(7).kind, RM_EVENT_STEP);
    EXPECT_EQ(rm_finish(program.run()), RM_INVALID) << "a step is attempted";
    EXPECT_THAT(rm_error(program.run()), HasSubstr("not in a step"));
    program.TakeStep(program.Next());
    EXPECT_EQ(rm_finish(program.run()), RM_OK);
    const rm_event end = program.Train();
    EXPECT_EQ(end.kind, RM_EVENT_END);
    EXPECT_EQ(end.finished, 1);
    EXPECT_EQ(end.step, 8);
    weights = program.weights();
  }
  {
    Program program(folder.path());
    ASSERT_EQ(program.Join(20), RM_OK) << rm_error(program.run());
    const rm_event end = program.Train();
    EXPECT_EQ(end.finished, 1);
    EXPECT_EQ(end.step, 8);
    EXPECT_EQ(program.weights(), weights);
  }
  Program longer(folder.path());
  ASSERT_EQ(longer.Join(30), RM_OK) << rm_error(longer.run());
  const rm_event end = longer.Train();
  EXPECT_EQ(end.finished, 1);
  EXPECT_EQ(end.step, 30) << "another number of steps continues the run";
}

TEST(CApi, AStepThatWasRepeatedCannotBeTheLastOne) {
  Program program;
  ASSERT_EQ(program.Join(20), RM_OK) << rm_error(program.run());
  program.TakeStep(program.Next());
  ASSERT_EQ(program.repeats_, 1) << "the first step has no exponents";
  EXPECT_EQ(rm_finish(program.run()), RM_INVALID);
  EXPECT_THAT(rm_error(program.run()), HasSubstr("after one that was interrupted"));
  EXPECT_EQ(program.Train().step, 20);
}

TEST(CApi, ACheckpointOfAnotherModelIsRefusedByName) {
  const Folder folder;
  {
    Program first(folder.path(), 5);
    ASSERT_EQ(first.Join(5), RM_OK);
    first.Train();
  }
  rm_run* run = nullptr;
  ASSERT_EQ(rm_open(nullptr, &run), RM_OK);
  const std::array<rm_tensor, 2> tensors = {{{"w", 6, 0}, {"c", 1, 0}}};
  rm_config config{};
  config.size = sizeof config;
  config.steps = 5;
  config.micro_batches = kMicroBatches;
  config.checkpoint_folder = folder.path().c_str();
  ASSERT_EQ(rm_join(run, &config, tensors.data(), tensors.size()), RM_OK);
  rm_event event{};
  event.size = sizeof event;
  EXPECT_EQ(rm_next(run, &event), RM_FAILED);
  EXPECT_THAT(rm_error(run), HasSubstr("w has 5 elements, here 6"));
  EXPECT_THAT(rm_error(run), HasSubstr("c is missing"));
  EXPECT_THAT(rm_error(run), HasSubstr("b is not in this model"));
  EXPECT_EQ(rm_exit_code(run), 64);
  EXPECT_EQ(rm_next(run, &event), RM_FAILED) << "a failed run stays failed";
  rm_close(run);
}

TEST(CApi, WrongArgumentsChangeNothing) {
  Program program;
  rm_run* const run = program.run();
  rm_event event{};
  event.size = sizeof event;
  EXPECT_EQ(rm_next(run, &event), RM_INVALID);
  EXPECT_THAT(rm_error(run), HasSubstr("rm_join"));
  EXPECT_EQ(program.Join(3, 0), RM_INVALID);
  EXPECT_THAT(rm_error(run), HasSubstr("rm_config.micro_batches: must be from 1 to 65536 (got 0)"));
  ASSERT_EQ(program.Join(3), RM_OK);
  EXPECT_EQ(program.Join(3), RM_INVALID);
  EXPECT_EQ(rm_reduce(run, nullptr), RM_INVALID);
  EXPECT_EQ(rm_committed(run, 0, 0), RM_INVALID);
  const rm_event step = program.Next();
  ASSERT_EQ(step.kind, RM_EVENT_STEP);
  EXPECT_EQ(rm_begin_micro_batch(run, kMicroBatches), RM_INVALID);
  EXPECT_EQ(rm_begin_micro_batch(run, 0), RM_OK);
  EXPECT_EQ(rm_begin_micro_batch(run, 1), RM_INVALID) << "micro-batch 0 has not ended";
  const std::array<float, 5> values{};
  EXPECT_EQ(rm_add(run, 2, values.data()), RM_INVALID);
  EXPECT_EQ(rm_add(run, -1, values.data()), RM_INVALID);
  EXPECT_EQ(rm_add(run, 0, nullptr), RM_INVALID);
  EXPECT_EQ(rm_end_micro_batch(run, 0), RM_OK);
  EXPECT_EQ(rm_reduce(run, nullptr), RM_INVALID);
  EXPECT_THAT(rm_error(run), HasSubstr("were not computed"));
  EXPECT_EQ(rm_gradient(run, 0, nullptr), RM_INVALID);
  EXPECT_EQ(program.Train().finished, 1);
}

TEST(CApi, ADescriptionIsChecked) {
  Program program;
  ASSERT_EQ(program.Join(1), RM_OK);
  rm_run* const run = program.run();
  float value = 0;
  const rm_array twice[] = {{"a", "F32", &value, 4, 0}, {"a", "F32", &value, 4, 0}};
  EXPECT_EQ(rm_describe(run, twice, 2, nullptr, 0), RM_INVALID);
  const rm_array reserved[] = {{"ringmaster.meta", "F32", &value, 4, 0}};
  EXPECT_EQ(rm_describe(run, reserved, 1, nullptr, 0), RM_INVALID);
  const rm_array odd[] = {{"a", "F64", &value, 4, 0}};
  EXPECT_EQ(rm_describe(run, odd, 1, nullptr, 0), RM_INVALID);
  EXPECT_THAT(rm_error(run), HasSubstr("F64"));
}

TEST(CApi, NamesTheTensorThatIsNotFinite) {
  Program program;
  ASSERT_EQ(program.Join(3), RM_OK);
  rm_run* const run = program.run();
  ASSERT_EQ(program.Next().kind, RM_EVENT_STEP);
  const std::array<float, 5> values = {1, 2, std::numeric_limits<float>::infinity(), 4, 5};
  for (int v = 0; v < kMicroBatches; ++v) {
    ASSERT_EQ(rm_begin_micro_batch(run, v), RM_OK);
    ASSERT_EQ(rm_add(run, 0, values.data()), RM_OK);
    ASSERT_EQ(rm_end_micro_batch(run, 1), RM_OK);
  }
  EXPECT_EQ(rm_reduce(run, nullptr), RM_FAILED);
  EXPECT_THAT(rm_error(run), HasSubstr("step 1: the gradient of w is not finite"));
}

TEST(CApi, AStructOfAnOlderVersionIsEnough) {
  Program program;
  ASSERT_EQ(program.Join(1), RM_OK);
  rm_event event{};
  event.size = offsetof(rm_event, step);
  event.step = -7;
  EXPECT_EQ(rm_next(program.run(), &event), RM_OK);
  EXPECT_EQ(event.kind, RM_EVENT_STEP);
  EXPECT_EQ(event.step, -7) << "written beyond the size that the caller gave";
  EXPECT_EQ(event.size, offsetof(rm_event, step));
}

// The build puts the plugin next to the programs, not next to the library.
TEST(CApi, AGpuNeedsThePluginNextToTheLibrary) {
  const std::array<rm_tensor, 1> tensors = {{{"w", 5, 0}}};
  rm_config config{};
  config.size = sizeof config;
  config.steps = 1;
  config.micro_batches = 1;
  config.device = 2;
  Program program;
  EXPECT_EQ(rm_set_stream(program.run(), nullptr), RM_INVALID);
  EXPECT_EQ(rm_synchronize(program.run()), RM_INVALID);
  EXPECT_EQ(rm_join(program.run(), &config, tensors.data(), 1), RM_INVALID);
  EXPECT_THAT(rm_error(program.run()), HasSubstr("rm_config.device: must be"));
  config.device = RM_DEVICE_CUDA;
  config.device_ordinal = -1;
  EXPECT_EQ(rm_join(program.run(), &config, tensors.data(), 1), RM_INVALID);
  EXPECT_THAT(rm_error(program.run()), HasSubstr("rm_config.device_ordinal: must be at least 0 (got -1)"));
  config.device_ordinal = 0;
  ::unsetenv("RINGMASTER_DEVICE_PLUGIN");
  EXPECT_EQ(rm_join(program.run(), &config, tensors.data(), 1), RM_FAILED);
  EXPECT_THAT(rm_error(program.run()),
              HasSubstr("gradients on a GPU cannot be summed: " RINGMASTER_LIBRARY_FOLDER
                        "/libringmaster_cuda.so does not exist"));
  EXPECT_EQ(rm_exit_code(program.run()), 74) << "another node may have one";
}

// Leaves this process as much more memory.
void LimitMemory(size_t bytes) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line) && !line.starts_with("VmSize:")) {
  }
  const rlim_t most = std::stoull(line.substr(line.find_first_of("0123456789"))) * 1024 + bytes;
  const rlimit limit = {most, most};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

// Ends this process with the exit code of the run if the call failed as it should.
[[noreturn]] void ExitLike(rm_run* run, rm_status status) {
  if (status != RM_FAILED) ::_exit(1);
  std::fprintf(stderr, "said: %s\n", rm_error(run));
  rm_event event{};
  event.size = sizeof event;
  ::_exit(rm_next(run, &event) == RM_FAILED ? rm_exit_code(run) : 2);
}

// An exit code of 0 would end the job.
TEST(CApiDeathTest, AnExceptionInTheLibraryRestartsTheWorker) {
  if (ringmaster::kSanitized) GTEST_SKIP() << "sanitizers reserve more memory than a limit leaves";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Program program;
        if (program.Join(10) != RM_OK) std::abort();
        const std::vector<char> meta(size_t{256} << 20);
        LimitMemory(size_t{64} << 20);
        ExitLike(program.run(), rm_describe(program.run(), nullptr, 0, meta.data(), meta.size()));
      },
      testing::ExitedWithCode(71), "said: libringmaster: not enough memory");
  EXPECT_EXIT(
      {
        Program program(testing::TempDir());  // a thread looks for checkpoints
        if (program.Join(10) != RM_OK) std::abort();
        LimitMemory(size_t{1} << 20);
        rm_event event{};
        event.size = sizeof event;
        ExitLike(program.run(), rm_next(program.run(), &event));
      },
      testing::ExitedWithCode(71), "said: libringmaster: cannot start a thread");
}

// Takes all memory, so that not even a short text can be allocated.
void ExhaustMemory() {
  LimitMemory(0);
  for (size_t size = size_t{1} << 26; size >= 4096; size /= 2)
    while (std::malloc(size) != nullptr) {
    }
  // What the allocator keeps of each small size.
  for (size_t size = 4096; size >= 16; size -= 16)
    while (std::malloc(size) != nullptr) {
    }
}

// The message of an exception needs memory itself.
TEST(CApiDeathTest, NoExceptionLeavesTheLibraryWhenNoMemoryIsLeft) {
  if (ringmaster::kSanitized) GTEST_SKIP() << "sanitizers reserve more memory than a limit leaves";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Program program;
        if (program.Join(10) != RM_OK) std::abort();
        const std::string meta(1000, 'x');
        ExhaustMemory();
        ExitLike(program.run(), rm_describe(program.run(), nullptr, 0, meta.data(), meta.size()));
      },
      testing::ExitedWithCode(71), "said: libringmaster: not enough memory");
  EXPECT_EXIT(
      {
        rm_options options{};
        options.size = sizeof options;
        options.transport = "a transport with a name that needs memory";
        rm_run* run = nullptr;
        ExhaustMemory();
        const rm_status status = rm_open(&options, &run);
        ::_exit(status == RM_FAILED && (run == nullptr || rm_exit_code(run) == 71) ? 71 : 1);
      },
      testing::ExitedWithCode(71), "");
}

TEST(CApi, AProgramAloneIsNotToLeave) {
  EXPECT_LT(rm_leaving(nullptr), 0);
  Program program;
  EXPECT_LT(rm_leaving(program.run()), 0);
}

std::string LinesIn(const std::string& folder) {
  std::string text;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) text += line + "\n";
  }
  return text;
}

TEST(CApi, RecordsDigestsOnRequest) {
  const Folder folder;
  const std::string digests = folder.path() + "/a/digests";
  ::setenv("RINGMASTER_DIGESTS", digests.c_str(), 1);
  Program program;
  ASSERT_EQ(program.Join(3), RM_OK) << rm_error(program.run());
  ::unsetenv("RINGMASTER_DIGESTS");
  EXPECT_EQ(program.Train().finished, 1);
  const std::string lines = LinesIn(digests);
  EXPECT_THAT(lines, HasSubstr(R"("tensors":["w","b"])"));
  EXPECT_THAT(lines, HasSubstr(R"("run":"a program of pid )" + std::to_string(::getpid())));
  for (const char* part : {R"("microBatch":3,"step":3})", R"("gradientNorm")", R"("state":[["w",")"})
    EXPECT_THAT(lines, HasSubstr(part));
  const std::string state = R"("state":)";
  size_t states = 0;
  for (size_t at = lines.find(state); at != std::string::npos; at = lines.find(state, at + 1)) ++states;
  EXPECT_EQ(states, 4u) << "before the first step and after each";
}

TEST(CApi, DigestsNeedAFolderThatCanBeWritten) {
  const Folder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "x";
  ::setenv("RINGMASTER_DIGESTS", file.c_str(), 1);
  Program program;
  EXPECT_EQ(program.Join(3), RM_FAILED);
  ::unsetenv("RINGMASTER_DIGESTS");
  EXPECT_THAT(rm_error(program.run()), HasSubstr("digests of the steps: "));
  EXPECT_THAT(rm_error(program.run()), HasSubstr(file));
  EXPECT_EQ(rm_exit_code(program.run()), 64) << "a restart would find the same file";
}

TEST(CApi, SamplesOfAnEpochAreAPermutation) {
  constexpr int64_t kSamples = 103;
  constexpr int64_t kPerStep = 16;
  std::set<int64_t> seen;
  std::vector<int64_t> counts;
  for (int64_t step = 0; step < 7; ++step) {
    for (int v = 0; v < kMicroBatches; ++v) {
      std::array<int64_t, kPerStep / kMicroBatches> indices{};
      const int64_t count = rm_samples(9, kSamples, kPerStep, kMicroBatches, step, v, indices.data());
      ASSERT_GE(count, 0);
      counts.push_back(count);
      for (int64_t i = 0; i < count; ++i) EXPECT_TRUE(seen.insert(indices[static_cast<size_t>(i)]).second);
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kSamples));
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), kSamples - 1);
  EXPECT_EQ(counts.back(), 0) << "the last step of the epoch has 7 samples: 4, 3, 0, 0";
  EXPECT_EQ(counts[counts.size() - 3], 3);
  int64_t index = 0;
  EXPECT_EQ(rm_samples(9, kSamples, 5, kMicroBatches, 0, 0, &index), -1);
  EXPECT_EQ(rm_samples(9, 0, 4, kMicroBatches, 0, 0, &index), -1);
  EXPECT_EQ(rm_samples(9, kSamples, 4, kMicroBatches, 0, kMicroBatches, &index), -1);
}

TEST(CApi, RandomSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 3; ++seed)
    for (int64_t step = 0; step < 10; ++step)
      for (int v = 0; v < 8; ++v) seeds.insert(rm_random_seed(seed, step, v));
  EXPECT_EQ(seeds.size(), 3u * 10u * 8u);
  EXPECT_EQ(rm_random_seed(1, 2, 3), rm_random_seed(1, 2, 3));
}

TEST(CApi, WithoutARun) {
  rm_close(nullptr);
  EXPECT_EQ(rm_next(nullptr, nullptr), RM_INVALID);
  EXPECT_EQ(rm_open(nullptr, nullptr), RM_INVALID);
  EXPECT_EQ(rm_has_agent(nullptr), 0);
}

}  // namespace
