// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/exec_plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/pipe.h"
#include "operator/kube/pem.h"

namespace ringmaster::kube {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr size_t kMaxErrorTextBytes = 1024;
constexpr auto kEarly = std::chrono::seconds(10);  // a credential is renewed this long before it expires

struct Output {
  std::string out;
  std::string error_text;  // the end of stderr, in one line
};

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::vector<std::string> PluginEnvironment(const ExecPlugin& plugin) {
  std::map<std::string, std::string> variables;
  for (const std::string& text : plugin.inherited)
    if (const size_t equals = text.find('='); equals != std::string::npos)
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  for (const auto& [name, value] : plugin.env) variables[name] = value;
  Json info = {
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}};
  if (plugin.provide_cluster_info) info["spec"]["cluster"] = plugin.cluster;
  variables["KUBERNETES_EXEC_INFO"] = DumpJson(info);
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Reads both pipes to their end. Returns false if that takes too long or the output is too large.
bool ReadAll(Fd out, Fd err, Time until, Output& output) {
  while (out.valid() || err.valid()) {
    pollfd polled[2] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    const int64_t left = ToMs(until - Now());
    if (left <= 0) return false;
    if (::poll(polled, 2, static_cast<int>(std::min<int64_t>(left, 60'000))) < 0 && errno != EINTR)
      return false;
    for (Fd* fd : {&out, &err}) {
      const pollfd& entry = polled[fd == &out ? 0 : 1];
      if (!fd->valid() || entry.revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(fd->get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fd->Reset();
      } else if (fd == &out) {
        output.out.append(buffer, static_cast<size_t>(got));
        if (output.out.size() > kMaxOutputBytes) return false;
      } else {
        output.error_text.append(buffer, static_cast<size_t>(got));
        if (output.error_text.size() > kMaxErrorTextBytes)
          output.error_text.erase(0, output.error_text.size() - kMaxErrorTextBytes);
      }
    }
  }
  return true;
}

Result<Output> Run(const ExecPlugin& plugin) {
  RM_ASSIGN(Pipe out, MakePipe());
  RM_ASSIGN(Pipe err, MakePipe());
  SpawnActions actions;
  posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), out.write.get(), 1);
  posix_spawn_file_actions_adddup2(actions.get(), err.write.get(), 2);
  // The transport's sockets are not close-on-exec.
  posix_spawn_file_actions_addclosefrom_np(actions.get(), 3);
  std::vector<std::string> arguments = {plugin.command};
  arguments.insert(arguments.end(), plugin.args.begin(), plugin.args.end());
  std::vector<std::string> environment = PluginEnvironment(plugin);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, plugin.command.c_str(), actions.get(), nullptr,
                                    Pointers(arguments).data(), Pointers(environment).data());
  if (failed != 0) {
    std::string why = fmt::format("cannot start: {}", std::strerror(failed));
    if (!plugin.install_hint.empty()) why += "; " + plugin.install_hint;
    return Error{Code::kInvalid, why};
  }
  out.write.Reset();
  err.write.Reset();
  Output output;
  const bool whole = ReadAll(std::move(out.read), std::move(err.read), Now() + plugin.time_limit, output);
  if (!whole) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  std::replace_if(
      output.error_text.begin(), output.error_text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  if (!whole)
    return Error{Code::kUnavailable, fmt::format("did not end within {} s, or printed more than {} bytes",
                                                 ToSeconds(plugin.time_limit), kMaxOutputBytes)};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string how = WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status));
    return Error{Code::kUnavailable, fmt::format("failed with {}: {}", how, output.error_text)};
  }
  return output;
}

class ExecTokenSource final : public TokenSource {
 public:
  explicit ExecTokenSource(ExecPlugin plugin) : plugin_(std::move(plugin)) {}

  Result<std::string> Token() override {
    MutexLock lock(mutex_);
    if (credential_ && (!credential_->expires || WallNow() + kEarly < *credential_->expires))
      return credential_->token;
    Result<ExecCredential> fresh = RunExecPlugin(plugin_);
    if (!fresh.ok()) return fresh.error();
    credential_ = std::move(fresh).value();
    return credential_->token;
  }
  void Expire() override {
    MutexLock lock(mutex_);
    credential_.reset();
  }
  std::optional<KeyPair> Certificate() override {
    MutexLock lock(mutex_);
    return credential_ ? credential_->pair : std::nullopt;
  }

 private:
  const ExecPlugin plugin_;
  Mutex mutex_;
  std::optional<ExecCredential> credential_ RM_GUARDED_BY(mutex_);
};

std::string Member(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

Result<ExecCredential> ParseExecCredential(const std::string& output, const std::string& api_version) {
  const Result<Json> parsed = ParseJson(output);
  if (!parsed.ok() || !parsed->is_object())
    return Error{Code::kInvalid, "printed something that is not a JSON object"};
  if (Member(*parsed, "kind") != "ExecCredential")
    return Error{Code::kInvalid, "printed an object whose kind is not ExecCredential"};
  if (const std::string got = Member(*parsed, "apiVersion"); got != api_version)
    return Error{Code::kInvalid, fmt::format("printed apiVersion \"{}\", expected \"{}\"", got, api_version)};
  const auto status = parsed->find("status");
  if (status == parsed->end() || !status->is_object()) return Error{Code::kInvalid, "printed no status"};
  ExecCredential credential;
  credential.token = Member(*status, "token");
  KeyPair pair{Member(*status, "clientCertificateData"), Member(*status, "clientKeyData")};
  if (!pair.cert_pem.empty() || !pair.key_pem.empty()) {
    RM_TRY(CheckKeyPair(pair.cert_pem, pair.key_pem));
    credential.pair = std::move(pair);
  }
  if (credential.token.empty() && !credential.pair)
    return Error{Code::kInvalid, "printed neither a token nor a client certificate"};
  if (credential.token.find_first_of("\r\n") != std::string::npos)
    return Error{Code::kInvalid, "printed a token of more than one line"};
  if (const std::string expires = Member(*status, "expirationTimestamp"); !expires.empty()) {
    const Result<WallTime> time = ParseWallTime(expires);
    if (!time.ok()) return time.error().In("expirationTimestamp");
    credential.expires = *time;
  }
  return credential;
}

std::vector<std::string> ProcessEnvironment() {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) list.emplace_back(*entry);
  return list;
}

Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin) {
  const std::string where = fmt::format("{}: exec plugin {}", plugin.origin, plugin.command);
  const Result<Output> output = Run(plugin);
  if (!output.ok()) return output.error().In(where);
  Result<ExecCredential> credential = ParseExecCredential(output->out, plugin.api_version);
  if (!credential.ok()) return credential.error().In(where);
  return credential;
}

std::shared_ptr<TokenSource> MakeExecTokenSource(ExecPlugin plugin) {
  return std::make_shared<ExecTokenSource>(std::move(plugin));
}

}  // namespace ringmaster::kube
