// SPDX-License-Identifier: Apache-2.0

// Runs a fuzz target without a fuzzer: first every file of the corpus, then inputs mutated from them. An
// input is a function of (seed, run), so the command that a failure prints repeats it.
//
//   fuzz_x [--seed S] [--runs N] [--run I] [FOLDER...]     --run I: only that mutated input
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using ringmaster::KeyedRandom;
using ringmaster::SplitMix64;

constexpr size_t kLongestInput = 16384;
constexpr unsigned kHangSeconds = 30;

// The text that the signal handler writes; set before each input.
char g_where[4352];

extern "C" void OnFatalSignal(int number) {
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, g_where, ::strlen(g_where));
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void Run(const std::string& input) {
  ::alarm(kHangSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::string Mutate(const std::vector<std::string>& corpus, uint64_t seed, uint64_t run) {
  static constexpr const char* kTokens[] = {
      "\"", "'", "{",    "}",    "[", "]",  ":", ",", "\n", "\n  ", "-",   "&",  "*", "&a",         "*a",
      "<<", "!", "null", "true", "0", "-1", ".", "e", "%",  "\\u",  "---", "\t", "~", "2147483648", "1e999"};
  SplitMix64 rng(KeyedRandom(seed, run));
  const auto pick = [&] { return corpus[rng.Below(corpus.size())]; };
  std::string input = pick();
  for (uint64_t left = 1 + rng.Below(8); left > 0; --left) {
    const size_t at = rng.Below(input.size() + 1);
    const size_t length = std::min<size_t>(input.size() - at, rng.Below(1 + rng.Below(32)));
    switch (rng.Below(8)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(rng.Below(256));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << rng.Below(8)));
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, input.substr(at, length));
        break;
      case 4:
        input.insert(at, kTokens[rng.Below(std::size(kTokens))]);
        break;
      case 5: {  // splice
        const std::string other = pick();
        input = input.substr(0, at) + other.substr(rng.Below(other.size() + 1));
        break;
      }
      case 6:
        input.resize(at);
        break;
      case 7: {  // a piece of another input
        const std::string other = pick();
        input.insert(at, other.substr(rng.Below(other.size() + 1), 1 + rng.Below(64)));
        break;
      }
    }
  }
  if (input.size() > kLongestInput) input.resize(kLongestInput);
  return input;
}

std::vector<std::string> FilesUnder(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());  // the order in a folder varies, but must not affect the inputs
  return files;
}

uint64_t Number(const char* text) {
  uint64_t value = 0;
  std::from_chars(text, text + ::strlen(text), value);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seed = 1, runs = 1000, only = 0;
  bool one = false;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--seed" && has_value) {
      seed = Number(argv[++i]);
    } else if (arg == "--runs" && has_value) {
      runs = Number(argv[++i]);
    } else if (arg == "--run" && has_value) {
      only = Number(argv[++i]);
      one = true;
    } else if (std::filesystem::is_directory(arg)) {
      for (std::string& file : FilesUnder(arg)) files.push_back(std::move(file));
    } else {
      std::fprintf(stderr, "usage: %s [--seed S] [--runs N] [--run I] [FOLDER...]\n", argv[0]);
      return 2;
    }
  }
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    ::signal(number, OnFatalSignal);

  std::vector<std::string> corpus = {""};
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    std::snprintf(g_where, sizeof g_where, "failed on %s\n", file.c_str());
    if (!one) Run(corpus.back());
  }
  const uint64_t begin = one ? only : 0, end = one ? only + 1 : runs;
  for (uint64_t run = begin; run < end; ++run) {
    std::snprintf(g_where, sizeof g_where,
                  "failed; again with: %s --seed %llu --run %llu and the same folders\n", argv[0],
                  static_cast<unsigned long long>(seed), static_cast<unsigned long long>(run));
    Run(Mutate(corpus, seed, run));
  }
  std::printf("%zu files, %llu mutated inputs, seed %llu: passed\n", files.size(),
              static_cast<unsigned long long>(end - begin), static_cast<unsigned long long>(seed));
  return 0;
}
