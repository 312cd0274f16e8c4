// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/spare_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "worker/agent/program/preload_runner.h"

namespace ringmaster::agent {
namespace {

constexpr timeval kSendLimit = {1, 0};  // it waits for the order: a second is long

Status SendAll(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return ErrnoError("send the environment", errno);
    text.remove_prefix(static_cast<size_t>(put));
  }
  return Ok();
}

}  // namespace

std::string SpareProgram::RunnerPath(const std::string& folder) { return folder + "/preload.py"; }

Status SpareProgram::WriteRunner(const std::string& folder) {
  return WriteFileAtomic(RunnerPath(folder), kPreloadRunner);
}

Result<SpareProgram> SpareProgram::Start(const std::vector<std::string>& command,
                                         const std::vector<std::string>& variables) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoError("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  if (::setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit) != 0)
    return ErrnoError("setsockopt", errno);
  RM_ASSIGN(ProgramProcess process, ProgramProcess::Start(command, variables, theirs.get()));
  return SpareProgram(std::move(process), std::move(ours));
}

SpareProgram::~SpareProgram() {
  if (!process_) return;
  ::kill(-process_->pid(), SIGKILL);
  ::waitpid(process_->pid(), nullptr, WNOHANG);  // otherwise the agent collects it with the program
}

void SpareProgram::OnReadable() {
  char byte = 0;
  if (::recv(channel_.get(), &byte, sizeof byte, MSG_DONTWAIT) == sizeof byte) {
    ready_ = true;
  } else if (errno != EAGAIN && errno != EINTR) {
    channel_.Reset();  // it has ended, or ends: HasEnded
  }
}

std::optional<std::string> SpareProgram::HasEnded() {
  if (::waitpid(process_->pid(), nullptr, WNOHANG) == 0) return std::nullopt;
  ::kill(-process_->pid(), SIGKILL);
  const Fd err = process_->TakeStderr();
  std::array<char, 4096> piece{};
  std::string text;  // at most what fits into the pipe
  for (ssize_t got = 0; (got = ::read(err.get(), piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<size_t>(got));
  process_.reset();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Result<ProgramProcess> SpareProgram::Become(const std::vector<std::string>& variables) && {
  std::string environment;
  for (const std::string& variable : ProgramProcess::EnvironmentWith(variables))
    environment += variable + '\0';
  RM_TRY(SendAll(channel_.get(), environment));
  channel_.Reset();
  return *std::exchange(process_, std::nullopt);
}

}  // namespace ringmaster::agent
