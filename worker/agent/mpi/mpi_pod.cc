// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_pod.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/exit_codes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pipe.h"
#include "worker/agent/mpi/launcher_tree.h"
#include "worker/agent/mpi/pod_environment.h"
#include "worker/agent/net/unix_address.h"
#include "worker/agent/shell/find_program.h"
#include "worker/agent/shell/signals.h"

namespace ringmaster::agent {
namespace {

constexpr int kKilled = 128;    // exit codes from here on are signals
constexpr int kPeerLost = 255;  // of launchers: probably a consequence
// A launcher needs one, or one for each time that it runs; a script may start others.
constexpr size_t kMaxCommands = 1024;
constexpr size_t kMaxCallers = 64;  // that have not proved that they know the key
constexpr rlim_t kDescriptors = 4 * (kMaxCommands + kMaxCallers) + 64;
constexpr size_t kMaxInput = size_t{256} << 10;
constexpr Duration kHandshakeLimit = seconds(10);
// From a rank's failure to the end of the pod: its last output is on the way to the launcher.
constexpr Duration kLinger = milliseconds(50);
// From the end of a command to that of its output: a process that it leaves behind may keep the pipes open.
constexpr Duration kOutputLimit = milliseconds(200);
// From SIGTERM to SIGKILL for a command whose caller is gone, unless its ranks are stopping.
constexpr Duration kOrphanLimit = seconds(2);
// From the end of the ranks to SIGTERM for a launcher that is to stop: it should end by itself.
constexpr Duration kLauncherLimit = seconds(1);
// An unseen rank counts when it is there at two checks in a row: a daemon may be starting its wrapper.
constexpr Duration kCheckRanks = seconds(5);

int CodeOf(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string DescribeCode(int code) {
  return code > kKilled ? fmt::format("was killed by signal {}", code - kKilled)
                        : fmt::format("ended with exit code {}", code);
}

struct ChildFiles {
  int in = -1;  // -1: as this process
  int out = -1;
  int err = -1;
};

// Runs in the child between fork and exec.
[[noreturn]] void ExecChild(pid_t parent, const char* path, char* const* argv, const ChildFiles& files,
                            bool own_group) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  if (own_group) ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (files.in >= 0) ::dup2(files.in, STDIN_FILENO);
  if (files.out >= 0) ::dup2(files.out, STDOUT_FILENO);
  if (files.err >= 0) ::dup2(files.err, STDERR_FILENO);
  ::execv(path, argv);
  const std::string why = fmt::format("cannot run {}: {}\n", path, std::strerror(errno));
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, why.data(), why.size());
  ::_exit(kExitCannotStart);
}

Result<pid_t> StartChild(const std::string& path, std::vector<std::string> words, const ChildFiles& files,
                         bool own_group) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoError("fork", errno);
  if (pid == 0) ExecChild(self, path.c_str(), argv.data(), files, own_group);
  if (own_group) ::setpgid(pid, pid);
  return pid;
}

}  // namespace

struct MpiPod::Session {
  explicit Session(std::unique_ptr<ByteChannel> bytes, Time now) : channel(std::move(bytes)), due(now) {}

  MpiChannel channel;
  Time due;           // of the handshake; then of SIGKILL for a command whose caller is gone
  bool up = false;    // the caller has proved that it knows the key
  bool lost = false;  // the caller is gone
  bool done = false;  // its exit code is queued
  bool full = false;  // the pod takes no further command
  pid_t pid = -1;     // -1: no command has come
  std::optional<int> code;
  Time ended{};
  Fd in, out, err;
  std::string input;
  bool input_ends = false;

  bool runs() const { return pid >= 0 && !code; }
  bool finished() const { return (done && channel.unsent() == 0) || (lost && !runs()); }

  void Lose(Time now) {
    if (std::exchange(lost, true)) return;
    in.Reset();
    due = now + kOrphanLimit;
    Signal(SIGTERM);
  }
  void Signal(int number) const {
    if (runs()) ::kill(-pid, number);
  }

  short Events() const {
    short events = 0;
    if (input.size() < kMaxInput) events |= POLLIN;
    if (up && channel.unsent() > 0) events |= POLLOUT;
    return events;
  }

  void Start(const std::string& command, Time now) {
    if (full)
      return Refuse(fmt::format("{} commands run in this pod, and it takes no more", kMaxCommands), now);
    Result<Pipe> to = MakePipe();
    Result<Pipe> from = MakePipe();
    Result<Pipe> errors = MakePipe();
    if (!to.ok() || !from.ok() || !errors.ok()) return Refuse("no descriptor is free", now);
    Result<pid_t> started = StartChild("/bin/sh", {"sh", "-c", command},
                                       {to->read.get(), from->write.get(), errors->write.get()}, true);
    if (!started.ok()) return Refuse(started.error().message, now);
    pid = *started;
    in = std::move(to->write);
    out = std::move(from->read);
    err = std::move(errors->read);
    for (const Fd* end : {&in, &out, &err}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  }

  void Refuse(const std::string& why, Time now) {
    channel.Queue(MpiChannel::Type::kErrors, "ringmaster rsh: " + why + "\n");
    pid = 0;
    code = kExitCannotStart;
    ended = now;
  }

  Status Handle(const MpiChannel::Frame& frame, Time now) {
    switch (frame.type) {
      case MpiChannel::Type::kCommand:
        if (pid != -1) break;
        Start(frame.payload, now);
        return Ok();
      case MpiChannel::Type::kInput:
        input += frame.payload;
        input_ends = input_ends || frame.payload.empty();
        return Ok();
      case MpiChannel::Type::kSignal: {
        int number = 0;
        std::from_chars(frame.payload.data(), frame.payload.data() + frame.payload.size(), number);
        if (number > 0 && number < 65) Signal(number);
        return Ok();
      }
      default:
        break;
    }
    return Error{Code::kCorrupt, "not a frame of rsh"};
  }

  // Advances as far as possible without waiting.
  void Advance(short revents, Time now) {
    if (!lost && !up && revents != 0) {
      const Result<bool> secure = channel.Handshake();
      if (!secure.ok()) {
        log::Warn("a caller was refused: {}", secure.error().message);
        return Lose(now);
      }
      up = *secure;
      if (!up) return;
      due = kNever;
    }
    if (!lost && up && (revents & (POLLIN | POLLHUP | POLLERR)) != 0) Read(now);
    WriteInput();
    ReadOutput(out, MpiChannel::Type::kOutput);
    ReadOutput(err, MpiChannel::Type::kErrors);
    const bool silent = !out.valid() && !err.valid();
    if (code && !done && (silent || now - ended >= kOutputLimit)) {
      channel.Queue(MpiChannel::Type::kExit, std::to_string(*code));
      done = true;
    }
    if (!lost && up && !channel.Flush().ok()) Lose(now);
  }

  void Read(Time now) {
    const Status received = channel.Receive();
    while (true) {
      Result<std::optional<MpiChannel::Frame>> frame = channel.Next();
      if (!frame.ok() || (*frame && !Handle(**frame, now).ok())) return Lose(now);
      if (!*frame) break;
    }
    if (!received.ok()) Lose(now);
  }

  void WriteInput() {
    if (!in.valid()) return input.clear();
    while (!input.empty()) {
      const ssize_t put = ::write(in.get(), input.data(), input.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) return;
      if (put < 0) return in.Reset();
      input.erase(0, static_cast<size_t>(put));
    }
    if (input_ends) in.Reset();
  }

  void ReadOutput(Fd& from, MpiChannel::Type type) {
    char chunk[16 << 10];
    while (from.valid() && (lost || channel.unsent() < MpiChannel::kMuchUnsent)) {
      const ssize_t got = ::read(from.get(), chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return from.Reset();
      if (!lost) channel.Queue(type, {chunk, static_cast<size_t>(got)});
    }
  }
};

MpiPod::MpiPod(std::string folder, MpiPeer self, std::vector<std::string> launcher)
    : folder_(std::move(folder)), self_(std::move(self)), command_(std::move(launcher)) {}

MpiPod::~MpiPod() = default;

Status MpiPod::Open() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::signal(SIGPIPE, SIG_IGN);
  // Each command has four descriptors here.
  rlimit descriptors = {};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur < kDescriptors) {
    descriptors.rlim_cur = std::min<rlim_t>(kDescriptors, descriptors.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&mask, signal);
  AddPassedSignals(mask);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return ErrnoError("signalfd", errno);

  const bool v6 = self_.host.find(':') != std::string::npos;
  listener_ = Fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return ErrnoError("socket", errno);
  const int on = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto port = htons(static_cast<uint16_t>(std::strtoul(self_.port.c_str(), nullptr, 10)));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_port = port;
  sockaddr_in6 any6 = {};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = port;
  const auto* address =
      v6 ? reinterpret_cast<const sockaddr*>(&any6) : reinterpret_cast<const sockaddr*>(&any);
  if (::bind(listener_.get(), address, v6 ? sizeof any6 : sizeof any) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0)
    return ErrnoError("listen on port " + self_.port, errno);

  const std::string ranks = folder_ + kMpiRanks;
  ::unlink(ranks.c_str());
  RM_ASSIGN(const sockaddr_un local, UnixAddress(ranks));
  rank_listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!rank_listener_.valid() ||
      ::bind(rank_listener_.get(), reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0 ||
      ::listen(rank_listener_.get(), SOMAXCONN) != 0)
    return ErrnoError("listen on " + ranks, errno);

  RM_ASSIGN(const sockaddr_un agent, UnixAddress(folder_ + kMpiCounts));
  counts_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!counts_.valid() ||
      ::connect(counts_.get(), reinterpret_cast<const sockaddr*>(&agent), sizeof agent) != 0)
    return ErrnoError("connect to the agent", errno);
  return Ok();
}

Status MpiPod::StartLauncher() {
  std::string name = command_.at(0);
  // A path to Hydra or horovodrun does not lead through PATH.
  if (const size_t slash = name.rfind('/'); slash != std::string::npos) {
    const std::string link = folder_ + kMpiBin + name.substr(slash);
    if (::access(link.c_str(), X_OK) == 0) name = link;
  }
  RM_ASSIGN(const std::string path, FindProgram(name));
  // The launcher gives its environment to ranks in other pods.
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  ::setenv(kMpiMarksVariable, MarksOf(environment).c_str(), 1);
  RM_ASSIGN(launcher_, StartChild(path, command_, {}, false));
  return Ok();
}

int MpiPod::Run() {
  if (!command_.empty()) {
    if (const Status started = StartLauncher(); !started.ok()) {
      Report(started.error().message);
      return kExitCannotStart;
    }
    check_ranks_at_ = Now() + kCheckRanks;
  }
  while (!IsEnded()) Wait();
  if (stopping_ || !failure_) return launcher_code_.value_or(0);
  return failure_->code;
}

bool MpiPod::IsEnded() const {
  if (stopping_) return (launcher_ < 0 || launcher_code_) && ranks_.empty() && sessions_.empty();
  if (failure_) return launcher_code_ || Now() >= failure_->due;
  return launcher_code_.has_value();
}

void MpiPod::Wait() {
  const auto callers = static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [](const auto& s) { return !s->up; }));
  std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0},
                                {listener_.get(), static_cast<short>(callers < kMaxCallers ? POLLIN : 0), 0},
                                {rank_listener_.get(), POLLIN, 0}};
  Time due = std::min(launcher_term_at_, check_ranks_at_);
  if (failure_) due = std::min(due, failure_->due);
  const size_t first_session = polled.size();
  for (const auto& session : sessions_) {
    polled.push_back({session->lost ? -1 : session->channel.fd(), session->Events(), 0});
    const bool full = !session->lost && session->channel.unsent() >= MpiChannel::kMuchUnsent;
    polled.push_back({full ? -1 : session->out.get(), POLLIN, 0});
    polled.push_back({full ? -1 : session->err.get(), POLLIN, 0});
    polled.push_back({session->input.empty() ? -1 : session->in.get(), POLLOUT, 0});
    if (session->code && !session->done)
      due = std::min(due, session->ended + kOutputLimit);
    else if (!session->lost || !stopping_ || ranks_.empty())
      due = std::min(due, session->due);
  }
  const size_t first_rank = polled.size();
  for (const auto& rank : ranks_) polled.push_back({rank->socket.get(), POLLIN, 0});

  const int wait =
      due == kNever ? -1 : static_cast<int>(std::clamp<int64_t>(ToMs(due - Now()) + 1, 0, 60'000));
  if (::poll(polled.data(), polled.size(), wait) < 0) {
    CHECK(errno == EINTR, "poll: error {}", errno);
    return;
  }
  const Time now = Now();
  const size_t ranks = ranks_.size();
  // A rank says how it ended before its daemon and the launcher see its end.
  for (size_t i = 0; i < ranks; ++i) {
    if (polled[first_rank + i].revents != 0) ReadRank(*ranks_[i]);
  }
  if (polled[2].revents != 0) AcceptRanks();
  std::erase_if(ranks_, [](const auto& rank) { return !rank->socket.valid(); });
  if (polled[0].revents != 0) OnSignals();
  const size_t sessions = sessions_.size();
  for (size_t i = 0; i < sessions; ++i) {
    Session& session = *sessions_[i];
    session.full = sessions - callers >= kMaxCommands;
    session.Advance(polled[first_session + 4 * i].revents, now);
    if (now >= session.due && !session.up) session.Lose(now);
    if (now >= session.due && session.lost && (!stopping_ || ranks_.empty())) session.Signal(SIGKILL);
  }
  if (polled[1].revents != 0) Accept(now);
  std::erase_if(sessions_, [](const auto& session) { return session->finished(); });
  if (stopping_) StopAll(now);
  if (now >= check_ranks_at_) CheckRanks(now);
}

// ---- remote commands

void MpiPod::Accept(Time now) {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  Result<std::unique_ptr<ByteChannel>> channel = MakeSharedKeyChannel(std::move(fd), self_.key, true);
  if (!channel.ok()) return log::Warn("{}", channel.error().message);
  sessions_.push_back(std::make_unique<Session>(std::move(channel).value(), now + kHandshakeLimit));
}

void MpiPod::OnSignals() {
  signalfd_siginfo info = {};
  bool children = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    children = children || signal == SIGCHLD;
    if (IsPassed(signal)) Pass(signal);
    if (signal == SIGCHLD || IsPassed(signal) || std::exchange(stopping_, true)) continue;
    // The launcher would end the ranks within a second: they get the time that they have instead.
    for (const auto& rank : ranks_)
      if (rank->pid > 0) ::kill(rank->pid, SIGTERM);
  }
  int status = 0;
  while (children) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) break;
    OnChild(pid, status);
  }
}

// A pod of the role launcher has no ranks: its launcher decides what to pass on to them.
void MpiPod::Pass(int signal) const {
  for (const auto& rank : ranks_)
    if (rank->pid > 0) ::kill(rank->pid, signal);
  if (ranks_.empty() && launcher_ > 0 && !launcher_code_) ::kill(launcher_, signal);
}

void MpiPod::OnChild(pid_t pid, int status) {
  const int code = CodeOf(status);
  if (pid == launcher_) {
    launcher_code_ = code;
    // Otherwise its exit code is that of a rank, or says that it has lost one.
    if (WIFSIGNALED(status)) Fail(code, fmt::format("the launcher {}", DescribeCode(code)), Duration{0});
    return;
  }
  for (const auto& session : sessions_) {
    if (session->pid != pid) continue;
    session->code = code;
    session->ended = Now();
    // A command that fails is the launcher's matter, but launchers may overlook a daemon that was killed.
    if (code > kKilled && !session->lost)
      Fail(code, fmt::format("a daemon of the launcher {}", DescribeCode(code)), Duration{0});
  }
}

void MpiPod::StopAll(Time now) {
  if (!ranks_.empty()) return;
  const char* const implementation = std::getenv(kMpiImplementationVariable);
  const bool gloo = implementation == nullptr || std::string_view(implementation) == kGloo;
  // The launcher ends its daemons when all ranks have ended. Ranks in other pods that still save would end
  // with them. What does not end by itself gets SIGKILL from the agent. Without daemons, the commands are the
  // ranks.
  for (const auto& session : sessions_)
    if (gloo || session->lost || launcher_code_) session->Signal(SIGTERM);
  if (launcher_ < 0 || launcher_code_) return;
  if (launcher_term_at_ == kNever) launcher_term_at_ = now + kLauncherLimit;
  if (now < launcher_term_at_) return;
  launcher_term_at_ = now + kLauncherLimit;
  const auto is_this_pod = [this](const std::string& host) { return host == self_.pod; };
  if (!gloo && ReachesOtherPods(launcher_, is_this_pod)) return;
  for (const auto& session : sessions_) session->Signal(SIGTERM);
  ::kill(launcher_, SIGTERM);
}

void MpiPod::CheckRanks(Time now) {
  check_ranks_at_ = launcher_code_ || stopping_ || failure_ ? kNever : now + kCheckRanks;
  if (check_ranks_at_ == kNever) return;
  const UnseenRank rank = FindUnseenRank(launcher_);
  const bool again = rank.pid >= 0 && rank.pid == unseen_rank_;
  unseen_rank_ = rank.pid;
  if (!again) return;
  Fail(kExitBadInput,
       fmt::format(
           "a rank runs that no agent sees (pid {}: {}): the command must start the mpirun, mpiexec or "
           "horovodrun that is first in PATH of the pod, by its name, and launch.mpi must name its "
           "MPI; setvars.sh or module load may put another one in front",
           rank.pid, rank.command),
       Duration{0});
}

// ---- ranks

void MpiPod::AcceptRanks() {
  while (true) {
    Fd fd(::accept4(rank_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    ranks_.push_back(std::make_unique<Rank>(Rank{std::move(fd), "", ""}));
  }
}

void MpiPod::ReadRank(Rank& rank) {
  std::array<char, 1024> message;
  while (rank.socket.valid()) {
    const ssize_t got = ::recv(rank.socket.get(), message.data(), message.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      // By a daemon that has lost its launcher, most often.
      if (!rank.ended && !rank.name.empty())
        Fail(kPeerLost, fmt::format("{} was killed with its daemon", rank.name), kLinger);
      return rank.socket.Reset();
    }
    const std::string text(message.data(), static_cast<size_t>(got));
    if (rank.name.empty()) {
      int number = 0;
      int size = 0;
      int pid = 0;
      if (std::sscanf(text.c_str(), "%d %d %d", &number, &size, &pid) != 3) return rank.socket.Reset();
      rank.name = fmt::format("rank {} of {}", number, size);
      rank.count = fmt::format("{} {}", number, size);
      rank.pid = pid;
      (void)::send(counts_.get(), kMpiStarted, std::strlen(kMpiStarted), MSG_NOSIGNAL);
      if (stopping_) ::kill(pid, SIGTERM);
    } else {
      const size_t space = std::min(text.find(' '), text.size());
      int32_t code = 0;
      std::from_chars(text.data(), text.data() + space, code);
      OnRankEnded(rank, code, space < text.size() ? text.substr(space + 1) : "");
      return;
    }
  }
}

void MpiPod::OnRankEnded(Rank& rank, int32_t code, const std::string& words) {
  rank.ended = true;
  if (code == 0) {
    (void)::send(counts_.get(), rank.count.data(), rank.count.size(), MSG_NOSIGNAL);
  } else if (code < 0) {
    Fail(kPeerLost, fmt::format("the daemon of {} has ended", rank.name), kLinger);
  } else {
    const std::string text = rank.name + " " + DescribeCode(code) + (words.empty() ? "" : ": " + words);
    Fail(code, text, code > kKilled ? Duration{0} : kLinger);
  }
  (void)::send(rank.socket.get(), "ok", 2, MSG_NOSIGNAL);
  rank.socket.Reset();
}

void MpiPod::Fail(int32_t code, std::string text, Duration linger) {
  if (stopping_ || (failure_ && (failure_->code != kPeerLost || code == kPeerLost))) return;
  Report(text);
  failure_ = Failure{code, std::move(text), Now() + linger};
}

void MpiPod::Report(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  const std::string message = kMpiFailed + text;
  (void)::send(counts_.get(), message.data(), message.size(), MSG_NOSIGNAL);
}

// ---- the program

int RunMpiPod(std::vector<std::string> launcher) {
  Result<MpiPlace> place = FindMpiPlace();
  if (!place.ok()) {
    log::Error("{}", place.error().message);
    return kExitCannotStart;
  }
  MpiPod program(place->folder, place->self, std::move(launcher));
  if (const Status opened = program.Open(); !opened.ok()) {
    log::Error("{}", opened.error().message);
    return kExitCannotStart;
  }
  return program.Run();
}

}  // namespace ringmaster::agent
