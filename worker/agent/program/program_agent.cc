// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/program_agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/exit_codes.h"
#include "base/file.h"
#include "base/log.h"
#include "worker/agent/program/preload_command.h"
#include "worker/agent/shell/find_program.h"
#include "worker/agent/shell/process_tree.h"
#include "worker/agent/shell/program_environment.h"
#include "worker/agent/shell/signals.h"
#include "worker/agent/shell/slot_relay.h"
#include "worker/agent/shell/termination.h"

namespace ringmaster::agent {
namespace {

namespace program = rendezvous::program;

constexpr Duration kProgramShutdownLimit = seconds(2);  // for each part of Shutdown that may hang
constexpr int32_t kPortsPerRank = 8;  // of a pod in the host network: the operator allocates as many
// From SIGKILL to a report of what it has not ended: a process with much memory takes seconds to end.
constexpr Duration kSurvivorLimit = seconds(5);
constexpr Duration kDyingLimit = milliseconds(500);  // from a program's last line on stderr to its end
// A spare does not compete with the start of the program.
constexpr Duration kSpareDelay = seconds(5);
constexpr const char* kNoPreload = "launch.preload has no effect in this pod";

// A key of 256 bits, as text.
std::string NewKey() {
  std::array<unsigned char, 32> bytes = {};
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    CHECK(got > 0 || errno == EINTR, "getrandom: error {}", errno);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

rendezvous::ProgramMemberOptions MemberOptionsOf(const Config& config) {
  const Result<std::string> uuid = ReadFile("/proc/sys/kernel/random/uuid", 256);
  CHECK(uuid.ok(), "{}", uuid.error().message);
  rendezvous::ProgramMemberOptions options;
  // ProgramAgent::Send fills in the secret.
  options.hello = {config.job,     config.pod,  uuid->substr(0, 36), "",
                   config.attempt, config.slot, config.node,         config.role};
  options.hello.checks_peers = true;
  options.stop_grace = config.stop_grace;
  if (config.doorbell >= 0) options.ping_interval = SlotRelay::kSlotPingInterval;
  return options;
}

ProgramAgent::ProgramAgent(Config config)
    : config_(std::move(config)),
      core_(MemberOptionsOf(config_)),
      link_(config_.coordinator_host, config_.coordinator_port, config_.ca_file, config_.doorbell),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {
  out_.SetObserver([this](std::string_view line) { progress_.Take(line, Now()); });
  err_.SetObserver([this](std::string_view line) {
    last_error_line_at_ = Now();
    progress_.Take(line, last_error_line_at_);
    error_lines_.Take(line, last_error_line_at_);
    launcher_report_.Take(line);
  });
  OpenFolder();
}

// Without a folder the program runs all the same.
void ProgramAgent::OpenFolder() {
  Result<PrivateFolder> folder = PrivateFolder::Create(
      config_.socket_folder, ProgressSocket::kLongestPath - ProgressSocket::kName.size());
  if (!folder.ok()) return log::Warn("no socket for progress, and no spare: {}", folder.error().message);
  folder_.emplace(std::move(folder).value());
  Result<ProgressSocket> socket = ProgressSocket::Open(folder_->path());
  if (socket.ok()) {
    socket_.emplace(std::move(socket).value());
  } else {
    log::Warn("no socket for progress: {}", socket.error().message);
  }
  OpenKubeflow();
  if (mpi()) OpenMpi();
  if (config_.preload.empty()) return;
  Result<std::vector<std::string>> command =
      PreloadCommand(config_.program, config_.preload, SpareProgram::RunnerPath(folder_->path()));
  if (!command.ok()) return log::Warn("{}: {}", kNoPreload, command.error().message);
  const Status written = SpareProgram::WriteRunner(folder_->path());
  if (!written.ok()) return log::Warn("{}: {}", kNoPreload, written.error().message);
  spare_command_ = std::move(command).value();
}

int ProgramAgent::Run() {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&mask, signal);
  AddPassedSignals(mask);
  signals_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  CHECK(signals_.valid(), "signalfd: error {}", errno);
  Feed(program::Started{});
  while (!exit_) WaitForEvents();
  Shutdown();
  if (exit_->code != 0) WriteTerminationLog(config_.termination_log, exit_->message, TailText());
  if (exit_->finished) WriteFinishedNote(config_.termination_log);
  log::Info("end code={} {}", exit_->code, exit_->message);
  return exit_->code;
}

void ProgramAgent::WaitForEvents() {
  std::array<pollfd, 13> polled = {pollfd{signals_.get(), POLLIN, 0},
                                   link_.PollFor(),
                                   pollfd{out_.read_fd(), POLLIN, 0},
                                   pollfd{err_.read_fd(), POLLIN, 0},
                                   pollfd{out_.write_fd(), POLLOUT, 0},
                                   pollfd{err_.write_fd(), POLLOUT, 0},
                                   pollfd{socket_ ? socket_->fd() : -1, POLLIN, 0},
                                   pollfd{spare_ ? spare_->fd() : -1, POLLIN, 0},
                                   pollfd{mpi_socket_ ? mpi_socket_->fd() : -1, POLLIN, 0},
                                   pollfd{listener_ ? listener_->fd() : -1, POLLIN, 0},
                                   pollfd{dialer_.fd(), POLLIN, 0},
                                   pollfd{kubeflow_ ? kubeflow_->fd() : -1, POLLIN, 0},
                                   pollfd{own_name_.fd(), POLLIN, 0}};
  const Time due = std::min({core_.next_wakeup(), link_.deadline(), progress_.due(), watch_at_, survivors_at_,
                             spare_at_, dialer_.deadline(), kubeflow_ ? kubeflow_->deadline() : kNever});
  const Duration wait =
      std::clamp<Duration>(due == kNever ? seconds(1) : due - Now(), Duration::zero(), seconds(1));
  const auto whole = std::chrono::duration_cast<seconds>(wait);
  const timespec limit = {whole.count(), (wait - whole).count()};
  if (::ppoll(polled.data(), polled.size(), &limit, nullptr) < 0) {
    CHECK(errno == EINTR, "ppoll: error {}", errno);
    return;
  }
  const Time now = Now();
  if (polled[2].revents != 0) out_.OnReadable();
  if (polled[3].revents != 0) err_.OnReadable();
  if (polled[6].revents != 0) ReadSocket(now);
  if (polled[8].revents != 0) ReadMpi(now);
  if (polled[9].revents != 0 && listener_) listener_->OnReadable();
  if (polled[10].revents != 0 || now >= dialer_.deadline()) AdvanceCheck(now);
  if (polled[11].revents != 0 || (kubeflow_ && now >= kubeflow_->deadline())) ReadKubeflow(now);
  if (polled[12].revents != 0) own_name_.Advance();
  if (now >= progress_.due()) ReportProgress(now);
  if (now >= watch_at_) WatchForHang(now);
  if (now >= survivors_at_) ReportSurvivors();
  if (polled[7].revents != 0) OnSpare();
  if (now >= spare_at_) StartSpare();
  if (polled[0].revents != 0) OnSignals();
  OnLink(polled[1].revents, now);
  out_.Flush(now);
  err_.Flush(now);
  if (now >= core_.next_wakeup()) Feed(program::Tick{});
}

void ProgramAgent::Feed(const program::Event& event) {
  pump_.Feed(event, [this](const program::Command& command) { Execute(command); });
}

void ProgramAgent::Execute(const program::Command& command) {
  if (std::holds_alternative<program::Connect>(command)) {
    link_.Connect(Now());
  } else if (const auto* up = std::get_if<program::Send>(&command)) {
    Send(up->message);
  } else if (const auto* start = std::get_if<program::Start>(&command)) {
    Start(*start);
  } else if (const auto* update = std::get_if<program::Update>(&command)) {
    UpdateMpi(*update);
  } else if (const auto* check = std::get_if<program::Check>(&command)) {
    Check(*check);
  } else if (const auto* signal = std::get_if<program::Signal>(&command)) {
    if (!program_) return;
    log::Info("{} to the program pid={}", signal->kill ? "SIGKILL" : "SIGTERM", program_->pid());
    if (!signal->kill) return program_->Terminate();
    program_->Kill(spare_pid());
    if (survivors_at_ == kNever) survivors_at_ = Now() + kSurvivorLimit;
  } else {
    exit_ = std::get<program::Exit>(command);
  }
}

// ---- the coordinator

std::string ProgramAgent::NextAddress() {
  if (!port_) {
    // On the host network each start takes the next of this rank's ports: the last one may still be in use.
    const int32_t first = config_.port_base == 0 ? 0 : config_.port_base + config_.slot * kPortsPerRank;
    for (int32_t tries = 0; tries < kPortsPerRank && !port_; ++tries) {
      const auto turn = static_cast<int32_t>(ports_used_++ % kPortsPerRank);
      Result<ReservedPort> reserved = ReservedPort::Reserve(first == 0 ? 0 : first + turn);
      if (reserved.ok()) port_ = std::move(reserved).value();
    }
    if (!port_) log::Error("no port of {} to {} is free", first, first + kPortsPerRank - 1);
  }
  const bool v6 = config_.address.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", config_.address, v6 ? "]" : "", port_ ? port_->port() : 0);
}

void ProgramAgent::Send(rendezvous::Message message) {
  if (link_.state() != CoordinatorLink::State::kUp) return;
  if (auto* hello = std::get_if<rendezvous::Hello>(&message)) {
    Result<std::string> secret = ReadSecret(config_.secret_file);
    if (!secret.ok()) {
      LoseLink(secret.error());
      return;
    }
    hello->secret = std::move(secret).value();
  }
  if (auto* state = std::get_if<rendezvous::ProgramState>(&message)) {
    const bool may_start =
        state->phase == rendezvous::ProgramPhase::kIdle || state->phase == rendezvous::ProgramPhase::kEnded;
    if (may_start) state->address = NextAddress();
    if (may_start && mpi()) state->key = mpi_key_ = NewKey();
  }
  if (const Status sent = link_.Send(message); !sent.ok()) LoseLink(sent.error());
}

void ProgramAgent::OnLink(short revents, Time now) {
  const CoordinatorLink::State before = link_.state();
  const Status status = link_.OnReady(revents, now);
  if (!status.ok()) {
    if (before == CoordinatorLink::State::kUp) ReadLink();
    LoseLink(status.error());
    return;
  }
  const bool is_up = link_.state() == CoordinatorLink::State::kUp;
  if (is_up && before != CoordinatorLink::State::kUp) {
    log::Info("connected to the {}", link_.through_relay() ? "relay" : "coordinator");
    Feed(program::Connected{});
  } else if (is_up && revents != 0) {
    ReadLink();
  }
}

void ProgramAgent::ReadLink() {
  while (link_.state() == CoordinatorLink::State::kUp) {
    Result<std::optional<rendezvous::Message>> message = link_.Next();
    if (!message.ok()) return LoseLink(message.error());
    if (!message.value()) return;
    Feed(program::FromCoordinator{std::move(*message.value())});
  }
}

void ProgramAgent::LoseLink(const Error& why) {
  if (link_.state() == CoordinatorLink::State::kIdle) return;
  const bool was_up = link_.state() == CoordinatorLink::State::kUp;
  if (was_up) {
    log::Warn("lost the coordinator: {}", why.message);
  } else {
    log::Debug("no coordinator: {}", why.message);
  }
  link_.Close();
  Feed(program::Disconnected{});
}

// ---- the check of the network

void ProgramAgent::Check(const program::Check& check) {
  using rendezvous::CheckStep;
  const rendezvous::CheckPeers& order = check.order;
  check_number_ = order.number;
  dialer_.Cancel();
  if (order.step == CheckStep::kConnect) {
    std::vector<std::string> addresses;
    for (const rendezvous::Member& member : order.members) addresses.push_back(member.address);
    dialer_.Start(std::move(addresses), check.self, Now());
    return AdvanceCheck(Now());
  }
  if (order.step == CheckStep::kListen && config_.slot == 0) own_name_.Start(config_.pod, config_.address);
  rendezvous::PeersChecked result{order.number, order.step};
  if (order.step == CheckStep::kEnd) {
    listener_.reset();
  } else if (!port_) {
    result.failure = "it has no free port";
  } else if (!listener_) {
    Result<PeerListener> opened = PeerListener::Open(port_->port());
    if (opened.ok())
      listener_.emplace(std::move(opened).value());
    else
      result.failure = opened.error().message;
  }
  // Another process listens there: the next check uses another port.
  const bool taken = order.step == CheckStep::kListen && !listener_;
  Feed(program::Checked{std::move(result)});
  if (!taken) return;
  port_.reset();
  Send(core_.state());
}

void ProgramAgent::AdvanceCheck(Time now) {
  if (auto unreachable = dialer_.Advance(now))
    Feed(program::Checked{{check_number_, rendezvous::CheckStep::kConnect, *std::move(unreachable)}});
}

// ---- the program

void ProgramAgent::Start(const program::Start& start) {
  CHECK(!program_, "a process of the last program is left");
  dialer_.Cancel();
  listener_.reset();
  port_.reset();  // the program binds it now
  std::vector<std::string> variables = config_.trainer.variables;
  for (std::string& variable : ProgramEnvironment(config_.framework, start.order, start.rank))
    variables.push_back(std::move(variable));
  variables.push_back(fmt::format("RINGMASTER_MEMBER={}.{}", start.order.members[start.rank].id,
                                  start.order.generation & 0xffffffff));
  variables.push_back(fmt::format("RINGMASTER_ATTEMPT={}", config_.attempt));
  variables.push_back(fmt::format("RINGMASTER_STOP_SECONDS={}",
                                  std::chrono::duration_cast<seconds>(config_.stop_grace).count()));
  if (socket_) variables.push_back("RINGMASTER_PROGRESS_SOCKET=" + socket_->path());
  if (kubeflow_) kubeflow_->Begin(NewKey(), &variables);
  mpi_failure_.clear();
  launches_ = mpi() && start.rank == LauncherAmong(start.order.members);
  Result<std::vector<std::string>> command = config_.program;
  if (mpi()) command = PrepareMpi(start, &variables);
  // The pod's program of MPI starts in any case, and runs the launcher.
  const Result<std::string> launcher =
      launches_ && !has_started_ ? FindExecutable(config_.program[0]) : config_.program[0];
  if (!launcher.ok()) command = launcher.error().In("command");
  Result<ProgramProcess> started =
      command.ok() ? StartProcess(*command, variables) : Result<ProgramProcess>(command.error());
  if (!started.ok()) {
    log::Error("cannot start the program: {}", started.error().message);
    // A command that was there before is expected back, as on a volume that fails for a while.
    const bool absent = mpi() ? !launcher.ok() : started.error().code == Code::kNotFound && !has_started_;
    const int code = absent ? kExitBadInput : kExitCannotStart;
    Feed(program::Ended{code, "start", started.error().message, Duration{0}});
    return;
  }
  has_started_ = true;
  program_ = std::move(started).value();
  if (config_.prefix_lines) {
    const std::string prefix = fmt::format("[rank {}] ", start.rank);
    out_.SetPrefix(prefix);
    err_.SetPrefix(prefix);
  }
  const Time now = Now();
  if (socket_) socket_->Read([](std::string_view) {});  // of the last program
  progress_.Begin(now);
  reports_before_ = progress_.reports();
  // What ranks of MPI print comes out of the launcher: in a pod without it, silence means nothing, unless no
  // pod has both and so only the CPU time of ranks can show that they hang.
  const auto& members = start.order.members;
  const bool apart = mpi() && !members[static_cast<size_t>(LauncherAmong(members))].role.empty();
  const Duration silence = mpi() && !launches_ && !apart ? Duration{0} : config_.silence;
  open_ranks_ = 0;
  hang_watch_.emplace(LimitsOfRole({.step = config_.limits.step, .silence = silence}, config_.role));
  watch_at_ = now;
  spare_at_ = spare_command_.empty() ? kNever : now + kSpareDelay;
  error_lines_.Clear();
  launcher_report_.Clear();
  out_.Attach(program_->TakeStdout());
  err_.Attach(program_->TakeStderr());
  log::Info("program pid={} rank={} of {} started, incarnation {}", program_->pid(), start.rank,
            start.order.members.size(), start.order.generation & 0xffffffff);
}

void ProgramAgent::OnSignals() {
  signalfd_siginfo info = {};
  bool children = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      children = true;
    } else if (IsPassed(signal)) {
      log::Info("signal {}: {}", signal, program_ ? "to the program" : "no program runs");
      if (program_) program_->Signal(signal);
    } else {
      log::Info("signal {}: leaving", signal);
      Feed(program::Terminate{});
    }
  }
  if (children) Reap();
}

void ProgramAgent::ReportProgress(Time now) {
  if (auto progress = progress_.Flush(now)) Feed(program::Reported{*std::move(progress)});
}

void ProgramAgent::ReadSocket(Time now) {
  socket_->Read([&](std::string_view message) {
    if (program_) progress_.Take(message, now);
  });
}

// A pod of Kubeflow Trainer itself reports there.
void ProgramAgent::OpenKubeflow() {
  if (std::getenv(KubeflowServer::kUrlVariable) != nullptr) return;
  Result<KubeflowServer> server = KubeflowServer::Open(config_.job, folder_->path(), config_.ca_file);
  if (!server.ok()) return log::Warn("no server for reports to Kubeflow Trainer: {}", server.error().message);
  kubeflow_.emplace(std::move(server).value());
}

void ProgramAgent::ReadKubeflow(Time now) {
  kubeflow_->Advance(now, [&](const KubeflowStatus& status) {
    if (program_) progress_.Take(status, now);
  });
}

void ProgramAgent::WatchForHang(Time now) {
  const ProgramProcess::Activity activity = program_->Observe(spare_pid());
  if (mpi() && !launches_ && open_ranks_ == 0) ++waits_;  // for its launcher
  const auto hang = hang_watch_->Feed(now, {.reports = progress_.reports() - reports_before_,
                                            .output = out_.bytes_read() + err_.bytes_read() + waits_,
                                            .cpu = activity.cpu,
                                            .stopped = activity.stopped,
                                            .finished = progress_.finished()});
  watch_at_ = now + hang_watch_->interval();
  if (!hang) return;
  const std::string message = fmt::format("rank {}: {}", core_.state().rank, *hang);
  log::Warn("program pid={} hangs: {}", program_->pid(), message);
  StopWatching();
  Feed(program::Hung{message});
}

void ProgramAgent::StopWatching() {
  hang_watch_.reset();
  watch_at_ = kNever;
}

// ---- the spare

// The program is a spare that is ready, or else a new process.
Result<ProgramProcess> ProgramAgent::StartProcess(const std::vector<std::string>& command,
                                                  const std::vector<std::string>& variables) {
  if (std::optional<SpareProgram> spare = std::exchange(spare_, std::nullopt); spare) {
    if (!spare->ready()) {
      log::Info("spare pid={} is not ready: a new process starts", spare->pid());
    } else {
      Result<ProgramProcess> process = std::move(*spare).Become(variables);
      if (process.ok()) return process;
      log::Warn("spare pid={} is lost: {}", spare->pid(), process.error().message);
    }
  }
  return ProgramProcess::Start(command, variables);
}

void ProgramAgent::StartSpare() {
  spare_at_ = kNever;
  if (!program_ || program_->exit_code() || spare_) return;
  std::vector<std::string> variables = config_.trainer.variables;
  if (socket_) variables.push_back("RINGMASTER_PROGRESS_SOCKET=" + socket_->path());
  variables.push_back(fmt::format("RINGMASTER_MEMBER={}.spare", config_.pod));
  Result<SpareProgram> started = SpareProgram::Start(spare_command_, variables);
  if (!started.ok()) {
    spare_command_.clear();
    return log::Warn("{}: {}", kNoPreload, started.error().message);
  }
  spare_.emplace(std::move(started).value());
  log::Info("spare pid={} imports {}", spare_->pid(), fmt::join(config_.preload, ", "));
}

void ProgramAgent::OnSpare() {
  spare_->OnReadable();
  if (spare_->ready()) log::Info("spare pid={} is ready", spare_->pid());
}

void ProgramAgent::Reap() {
  if (spare_) {
    if (const auto words = spare_->HasEnded()) {
      log::Warn("{}: the spare has ended: {}", kNoPreload, *words);
      spare_.reset();
      spare_command_.clear();  // the next one would do the same, and it may lack memory
    }
  }
  if (!program_) return;
  const bool first_had_ended = program_->exit_code().has_value();
  if (const std::optional<int> code = program_->Reap(spare_pid())) return OnEnded(*code);
  if (program_->exit_code() && !first_had_ended) OnFirstEnded(*program_->exit_code());
  if (program_->killed() && survivors_at_ == kNever) survivors_at_ = Now() + kSurvivorLimit;
}

void ProgramAgent::OnFirstEnded(int exit_code) {
  log::Info("program pid={} ended code={}, and some of its processes have not", program_->pid(), exit_code);
  StopWatching();
  if (exit_code == 0) return;
  // What it has written is here, though others still hold the pipes.
  out_.OnReadable();
  err_.OnReadable();
  if (mpi_socket_) ReadMpi(Now());
  Feed(program::Failed{EndOf(exit_code, Now())});
}

void ProgramAgent::ReportSurvivors() {
  survivors_at_ = kNever;
  if (!program_) return;
  const std::vector<pid_t> survivors = program_->Survivors(spare_pid());
  if (survivors.empty()) return;
  const std::string text = DescribeProcesses(survivors);
  log::Error("SIGKILL does not end a part of the program, {}: nothing starts here before that has ended",
             text);
  Feed(program::Survived{text});
}

void ProgramAgent::OnEnded(int exit_code) {
  const Time end = Now();
  out_.Finish(end);
  err_.Finish(end);
  if (socket_) ReadSocket(end);
  if (mpi_socket_) ReadMpi(end);
  ReportProgress(end);
  StopWatching();
  spare_at_ = survivors_at_ = kNever;
  log::Info("program pid={} ended code={}", program_->pid(), exit_code);
  program_.reset();
  Feed(exit_code == 0 ? program::Ended{0, launches_ ? "launcher" : "exit", "", Duration{0}}
                      : EndOf(exit_code, Now()));  // not before the last line that was read above
}

program::Ended ProgramAgent::EndOf(int exit_code, Time end) const {
  // A program says why it fails before its peers notice, and takes longer to end than some of them.
  const Duration ago = end - last_error_line_at_ < kDyingLimit ? end - last_error_line_at_ : Duration{0};
  if (!mpi_failure_.empty()) return {exit_code, "exit", mpi_failure_, end - mpi_failed_at_};
  const std::string words = LastErrorLine();
  // What a launcher cannot do now, it cannot do after a restart either.
  if (launches_ && IsHopeless(words)) exit_code = kExitBadInput;
  return {exit_code, launches_ ? "launcher" : "exit", words, ago};
}

void ProgramAgent::Shutdown() {
  Time deadline = Now() + kProgramShutdownLimit;
  while (link_.wants_write() && Now() < deadline) {
    pollfd wait = {link_.PollFor().fd, POLLOUT, 0};
    ::poll(&wait, 1, 50);
    if (wait.revents != 0 && !link_.OnReady(POLLOUT, Now()).ok()) break;
  }
  link_.Close();
  spare_.reset();
  if (program_) program_->Kill();
  deadline = Now() + kProgramShutdownLimit;
  while (program_ && Now() < deadline) {
    if (program_->Reap()) program_.reset();
    if (!program_) break;
    pollfd wait = {signals_.get(), POLLIN, 0};
    ::poll(&wait, 1, 50);
    signalfd_siginfo info = {};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    }
  }
  deadline = Now() + kProgramShutdownLimit;
  out_.Finish(Now());
  err_.Finish(Now());
  while ((out_.write_fd() >= 0 || err_.write_fd() >= 0) && Now() < deadline) {
    std::array<pollfd, 2> wait = {pollfd{out_.write_fd(), POLLOUT, 0}, pollfd{err_.write_fd(), POLLOUT, 0}};
    ::poll(wait.data(), wait.size(), 50);
    out_.Flush(Now());
    err_.Flush(Now());
  }
}

std::string ProgramAgent::TailText() const {
  std::string text;
  for (const std::string& line : err_.tail()) text += line + "\n";
  if (!text.empty()) text.pop_back();
  return text;
}

std::string ProgramAgent::LastErrorLine() const {
  return mpi() ? launcher_report_.Reason(err_.tail()) : error_lines_.Reason(err_.tail());
}

}  // namespace ringmaster::agent
