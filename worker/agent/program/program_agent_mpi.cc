// SPDX-License-Identifier: Apache-2.0

// The part of ProgramAgent for frameworks with a launcher.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/program/program_agent.h"

namespace ringmaster::agent {

namespace {

namespace program = rendezvous::program;

}  // namespace

void ProgramAgent::OpenMpi() {
  Result<ProgressSocket> socket = ProgressSocket::Open(folder_->path(), kMpiCounts);
  if (socket.ok())
    mpi_socket_.emplace(std::move(socket).value());
  else
    log::Error("{}", socket.error().message);
}

Result<std::vector<std::string>> ProgramAgent::PrepareMpi(const program::Start& start,
                                                          std::vector<std::string>* variables) {
  if (!mpi_socket_) return Error{Code::kUnavailable, "no folder for the sockets of MPI"};
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return Error{Code::kUnavailable, "/proc/self/exe: " + error.message()};
  mpi_socket_->Read([](std::string_view) {});  // of the last incarnation
  mpi_members_ = start.order.members;
  mpi_setup_ = {config_.framework, config_.mpi,
                config_.mpi_slots, self,
                folder_->path(),   HostOf(mpi_members_[static_cast<size_t>(start.rank)])};
  RM_TRY(WriteMpiFiles(mpi_setup_, start.order));
  const bool loopback = config_.address.starts_with("127.") || config_.address == "::1";
  const char* const path = std::getenv("PATH");
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  for (std::string& variable :
       MpiVariables(mpi_setup_, loopback, path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path, is_set))
    variables->push_back(std::move(variable));
  std::vector<std::string> command = {self, "ranks"};
  if (!launches_) return command;
  command.push_back("--");
  command.insert(command.end(), config_.program.begin(), config_.program.end());
  return command;
}

// A coordinator that took the incarnation over does not have the keys of those that it found there.
void ProgramAgent::UpdateMpi(const program::Update& update) {
  if (!mpi() || !program_) return;
  std::vector<rendezvous::Member> members = update.order.members;
  for (rendezvous::Member& member : members) {
    const auto known = std::find_if(mpi_members_.begin(), mpi_members_.end(), [&](const auto& old) {
      return old.id == member.id && old.joined == member.joined;
    });
    if (member.key.empty() && known != mpi_members_.end()) {
      member.key = known->key;
      member.address = known->address;
    }
  }
  mpi_members_ = std::move(members);
  if (const Status written = WriteMpiMembers(mpi_setup_, mpi_members_); !written.ok())
    return log::Error("{}", written.error().message);
  log::Info("the incarnation has {} programs now", mpi_members_.size());
}

void ProgramAgent::ReadMpi(Time now) {
  program::Ranks ranks;
  mpi_socket_->Read([&](std::string_view message) {
    if (!program_) return;
    if (message.starts_with(kMpiFailed)) {
      mpi_failed_at_ = now;
      mpi_failure_ = message.substr(std::strlen(kMpiFailed));
      return;
    }
    rendezvous::RankCount one{.count = 1};
    if (message == kMpiStarted)
      ++ranks.started;
    else if (std::sscanf(std::string(message).c_str(), "%d %d", &one.rank, &one.size) == 2)
      ranks.succeeded.push_back(one);
  });
  open_ranks_ += ranks.started - static_cast<int64_t>(ranks.succeeded.size());
  if (ranks.started > 0 || !ranks.succeeded.empty()) Feed(std::move(ranks));
}

}  // namespace ringmaster::agent
