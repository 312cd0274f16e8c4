// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/file.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/shell/find_program.h"

namespace ringmaster::agent {
namespace {

constexpr int64_t kMaxSeconds = 365LL * 24 * 3600;  // as in the API
constexpr int64_t kMaxSlots = 999;
constexpr int64_t kMaxPort = 65535;
constexpr size_t kMaxSecretBytes = size_t{64} << 10;

class Reader {
 public:
  explicit Reader(const GetEnv& get) : get_(get) {}

  std::string Required(const char* name) {
    const std::optional<std::string> value = get_(name);
    if (!value || value->empty()) {
      Problem(name, "is not set");
      return {};
    }
    return *value;
  }
  std::string Optional(const char* name) { return get_(name).value_or(std::string()); }

  std::string ReadableFile(const char* name) {
    const std::string path = Required(name);
    if (!path.empty() && ::access(path.c_str(), R_OK) != 0) {
      Problem(name, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    }
    return path;
  }

  // Returns 0 when unset or invalid.
  int64_t Count(const char* name) {
    const std::string text = Optional(name);
    int64_t value = 0;
    if (text.empty()) return value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value > 0) return value;
    Problem(name, fmt::format("must be a whole number above 0 (got \"{}\")", text));
    return 0;
  }

  // Returns nullopt when unset or invalid.
  std::optional<Duration> Seconds(const char* name) {
    const std::string text = Optional(name);
    if (text.empty()) return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxSeconds) {
      Problem(name,
              fmt::format("must be a whole number of seconds from 0 to {} (got \"{}\")", kMaxSeconds, text));
      return std::nullopt;
    }
    return seconds(value);
  }

  void Problem(const char* name, const std::string& what) {
    if (!problems_.empty()) problems_ += "; ";
    problems_ += fmt::format("{}: {}", name, what);
  }
  const std::string& problems() const { return problems_; }

 private:
  const GetEnv& get_;
  std::string problems_;
};

bool IsPort(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= 65535;
}

void ReadCoordinator(Reader& reader, Config* config) {
  constexpr const char* kName = "RINGMASTER_COORDINATOR";
  const std::string text = reader.Required(kName);
  if (text.empty()) return;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || !IsPort(text.substr(colon + 1)) || colon == 0) {
    reader.Problem(kName, fmt::format("must be host:port (got \"{}\")", text));
    return;
  }
  config->coordinator_port = text.substr(colon + 1);
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != std::string::npos) {
    reader.Problem(kName, fmt::format("an IPv6 address must be in brackets (got \"{}\")", text));
    return;
  }
  config->coordinator_host = host;
}

std::vector<std::string> SplitWords(const std::string& text, char separator) {
  std::vector<std::string> words;
  size_t begin = 0;
  while ((begin = text.find_first_not_of(separator, begin)) != std::string::npos) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

void ReadTrainer(Reader& reader, const std::string& program_folder, Config* config) {
  config->job_file = reader.ReadableFile("RINGMASTER_JOB_FILE");
  std::vector<std::string>& words = config->trainer.words;
  words = SplitWords(reader.Optional("RINGMASTER_TRAINER"), ' ');
  if (words.empty()) words = {program_folder + "/ringmaster-worker", "train"};
  if (::access(words[0].c_str(), X_OK) != 0)
    reader.Problem("RINGMASTER_TRAINER", fmt::format("cannot run {}: {}", words[0], std::strerror(errno)));
}

void ReadStopSeconds(Reader& reader, Config* config) {
  if (const auto grace = reader.Seconds("RINGMASTER_STOP_SECONDS")) config->stop_grace = *grace;
}

// No restart gives an image a command that it lacks.
void CheckCommand(Reader& reader, const std::string& command) {
  const Result<std::string> path = FindExecutable(command);
  if (!path.ok()) reader.Problem("command", path.error().message);
}

// The trainer is a program of the user.
void ReadOwnTrainer(Reader& reader, std::vector<std::string> words, Config* config) {
  config->job_file = reader.ReadableFile("RINGMASTER_JOB_FILE");
  CheckCommand(reader, words[0]);
  config->trainer.words = std::move(words);
  config->trainer.is_program = true;
  ReadStopSeconds(reader, config);
  config->limits.program = true;
  config->limits.stopped = HangLimits::kProgramStopped;
  config->prefix_lines = config->slots > 1;
}

void ReadProgram(Reader& reader, Config* config) {
  config->framework = reader.Optional("RINGMASTER_FRAMEWORK");
  config->role = reader.Optional("RINGMASTER_ROLE");
  config->address = reader.Required("RINGMASTER_ADDRESS");
  ReadStopSeconds(reader, config);
  if (const auto silence = reader.Seconds("RINGMASTER_SILENCE_SECONDS")) config->silence = *silence;
  config->socket_folder = reader.Optional("RINGMASTER_SOCKET_FOLDER");
  const int64_t base = reader.Count("RINGMASTER_PORT_BASE");
  if (base > kMaxPort) {
    reader.Problem("RINGMASTER_PORT_BASE", fmt::format("must be at most {} (got {})", kMaxPort, base));
  } else {
    config->port_base = static_cast<int32_t>(base);
  }
  // Several ranks share a log then.
  config->prefix_lines = config->slots > 1 || !reader.Optional("RINGMASTER_LOCAL_RANK").empty();
  config->preload = SplitWords(reader.Optional("RINGMASTER_PRELOAD"), ',');
  config->mpi = reader.Optional("RINGMASTER_MPI");
  if (!config->mpi.empty()) config->prefix_lines = false;  // the launcher's output is that of all ranks
  // Of frameworks mpi and horovod, only the program that launches the others runs it (ProgramAgent::Start).
  if (config->mpi.empty()) CheckCommand(reader, config->program[0]);
  const bool gloo = config->mpi == kGloo && config->framework == "horovod";
  if (!config->mpi.empty() && !gloo && config->mpi != "openmpi" && config->mpi != "mpich" &&
      config->mpi != "intel")
    reader.Problem("RINGMASTER_MPI",
                   fmt::format("must be openmpi, mpich or intel, or gloo with framework horovod (got \"{}\")",
                               config->mpi));
  config->mpi_slots =
      static_cast<int32_t>(std::clamp<int64_t>(reader.Count("RINGMASTER_MPI_SLOTS"), 1, kMaxSlots));
}

}  // namespace

Result<CommandLine> ParseCommandLine(const std::vector<std::string>& words) {
  CommandLine line;
  if (words.empty()) return line;
  // `ringmaster-worker agent` passes its own argument on.
  if (words[0] != "run" && words[0] != "train") return line;
  if (words.size() < 3 || words[1] != "--")
    return Error{
        Code::kInvalid,
        "usage: ringmaster-agent [run -- COMMAND ARGS... | train -- COMMAND ARGS... | install FILE]"};
  (words[0] == "run" ? line.program : line.trainer).assign(words.begin() + 2, words.end());
  return line;
}

Result<Config> LoadConfig(const GetEnv& get, const std::string& program_folder, CommandLine command) {
  Reader reader(get);
  Config config;
  config.job = reader.Required("RINGMASTER_JOB");
  const size_t slash = config.job.find('/');
  if (!config.job.empty() && (slash == std::string::npos || slash == 0 || slash + 1 == config.job.size())) {
    reader.Problem("RINGMASTER_JOB", fmt::format("must be namespace/name (got \"{}\")", config.job));
  }
  config.pod = reader.Required("RINGMASTER_POD");
  ReadCoordinator(reader, &config);
  config.secret_file = reader.ReadableFile("RINGMASTER_SECRET_FILE");
  if (!reader.Optional("RINGMASTER_CA_FILE").empty())
    config.ca_file = reader.ReadableFile("RINGMASTER_CA_FILE");
  config.attempt = reader.Count("RINGMASTER_ATTEMPT");
  config.node = reader.Optional("RINGMASTER_NODE");
  const int64_t slots = std::max<int64_t>(1, reader.Count("RINGMASTER_SLOTS"));
  if (slots > kMaxSlots) {
    reader.Problem("RINGMASTER_SLOTS", fmt::format("must be at most {} (got {})", kMaxSlots, slots));
  }
  config.slots = static_cast<int32_t>(std::min(slots, kMaxSlots));
  config.program = std::move(command.program);
  config.termination_log = reader.Optional("RINGMASTER_TERMINATION_LOG");
  if (!config.program.empty()) {
    ReadProgram(reader, &config);
  } else if (!command.trainer.empty()) {
    ReadOwnTrainer(reader, std::move(command.trainer), &config);
  } else {
    ReadTrainer(reader, program_folder, &config);
  }
  if (const auto limit = reader.Seconds("RINGMASTER_STARTUP_SECONDS")) config.limits.startup = *limit;
  if (reader.Optional("RINGMASTER_STEP_SECONDS") != "auto") {
    config.limits.step = reader.Seconds("RINGMASTER_STEP_SECONDS");
  }
  if (!reader.problems().empty()) return Error{Code::kInvalid, reader.problems()};
  return config;
}

Result<std::string> ReadSecret(const std::string& path) {
  RM_ASSIGN(std::string secret, ReadFile(path, kMaxSecretBytes));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) return Error{Code::kInvalid, path + ": the secret is empty"};
  return secret;
}

}  // namespace ringmaster::agent
