// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_links.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/exit_codes.h"

namespace ringmaster::agent {
namespace {

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string ProgramName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool LeadsHere(const std::string& path) {
  std::error_code error;
  return std::filesystem::equivalent(path, "/proc/self/exe", error) && !error;
}

Result<std::string> FindBehindLinks(const std::string& word) {
  if (word.find('/') != std::string::npos && !LeadsHere(word)) return word;
  const std::string name = ProgramName(word);
  const char* const set = std::getenv("PATH");
  const std::string path = set == nullptr ? "" : set;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = begin == end ? "." : path.substr(begin, end - begin);
    begin = end + 1;
    const std::string found = folder + "/" + name;
    if (IsProgram(found) && !LeadsHere(found)) return found;
  }
  return Error{Code::kNotFound, name + ": no such program in PATH"};
}

int ReplaceProcess(const std::string& path, std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  std::fprintf(stderr, "cannot run %s: %s\n", path.c_str(), std::strerror(errno));
  return kExitCannotStart;
}

}  // namespace ringmaster::agent
