// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/exit_codes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process_children.h"
#include "worker/agent/shell/process_tree.h"
#include "worker/agent/shell/slot_relay.h"

namespace ringmaster::agent {
namespace {

using rendezvous::Message;

constexpr Duration kShutdownLimit = seconds(2);  // for each part of Shutdown that may hang

std::string NewUuid() {
  const Result<std::string> uuid = ReadFile("/proc/sys/kernel/random/uuid", 256);
  CHECK(uuid.ok(), "{}", uuid.error().message);
  return uuid.value().substr(0, 36);
}

rendezvous::MemberOptions OptionsOf(const Config& config, rendezvous::MemberOptions options) {
  // Agent::Send fills in the secret.
  options.hello = {config.job, config.pod, NewUuid(), "", config.attempt, config.slot, config.node};
  options.exit_when_refused = !config.node.empty();
  // A program of the user continues after its last step.
  if (config.trainer.is_program) {
    options.exit_grace = config.stop_grace;
    options.after_loop = config.limits.startup;
  }
  if (config.doorbell >= 0) options.ping_interval = SlotRelay::kSlotPingInterval;
  return options;
}

timespec ToTimespec(Duration wait) {
  const auto whole = std::chrono::duration_cast<seconds>(wait);
  return {whole.count(), (wait - whole).count()};
}

int ExitCodeOf(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Kills the remaining children: orphans that left the trainer's process group. Returns whether there are any.
bool KillChildren() {
  const std::vector<pid_t> children = ChildrenOfThisProcess();
  for (const pid_t pid : children) ::kill(pid, SIGKILL);
  return !children.empty();
}

}  // namespace

// The revents of one poll, by source.
struct Agent::Ready {
  enum Source : size_t { kDeath, kChannel, kSignals, kLink, kOut, kErr, kOutTarget, kErrTarget, kCount };
  std::array<pollfd, kCount> polled;
  short Of(Source source) const { return polled[source].revents; }
};

Agent::Agent(Config config, const rendezvous::MemberOptions& timing)
    : config_(std::move(config)),
      core_(OptionsOf(config_, timing)),
      link_(config_.coordinator_host, config_.coordinator_port, config_.ca_file, config_.doorbell),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {
  if (!config_.prefix_lines) return;
  const std::string prefix = fmt::format("[slot {}] ", config_.slot);
  out_.SetPrefix(prefix);
  err_.SetPrefix(prefix);
}

int Agent::Run() {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&mask, signal);
  signals_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  CHECK(signals_.valid(), "signalfd: error {}", errno);

  Feed(rendezvous::Started{});
  while (!exit_) {
    const Ready ready = Wait();
    OnReady(ready, Now());
  }
  Shutdown();
  if (exit_->code != 0) WriteTerminationLog(config_.termination_log, exit_->message, TailText());
  if (exit_->finished) WriteFinishedNote(config_.termination_log);
  log::Info("end code={} {}", exit_->code, exit_->message);
  return exit_->code;
}

Agent::Ready Agent::Wait() {
  Ready ready;
  const bool watched = hang_watch_.has_value();
  auto& polled = ready.polled;
  polled[Ready::kDeath] = {watched ? trainer_->death_fd() : -1, POLLIN, 0};
  polled[Ready::kChannel] = {-1, POLLIN, 0};
  if (channel_open_) {
    const bool unsent = trainer_->channel().wants_write();
    polled[Ready::kChannel] = {trainer_->channel().fd(),
                               static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN), 0};
  }
  polled[Ready::kSignals] = {signals_.get(), POLLIN, 0};
  polled[Ready::kLink] = link_.PollFor();
  polled[Ready::kOut] = {out_.read_fd(), POLLIN, 0};
  polled[Ready::kErr] = {err_.read_fd(), POLLIN, 0};
  polled[Ready::kOutTarget] = {out_.write_fd(), POLLOUT, 0};
  polled[Ready::kErrTarget] = {err_.write_fd(), POLLOUT, 0};

  const Time due = std::min({core_.next_wakeup(), sample_at_, kill_at_, link_.deadline()});
  const Time now = Now();
  const timespec wait =
      ToTimespec(std::clamp<Duration>(due == kNever ? seconds(1) : due - now, Duration::zero(), seconds(1)));
  if (::ppoll(polled.data(), polled.size(), &wait, nullptr) < 0) {
    CHECK(errno == EINTR, "ppoll: error {}", errno);
    for (pollfd& one : polled) one.revents = 0;
  }
  return ready;
}

void Agent::OnReady(const Ready& ready, Time now) {
  // Handle a death first, because the peers wait for it, but forward the trainer's last messages before it.
  if (ready.Of(Ready::kDeath) != 0) {
    ReadChannel(now);
    died_ = true;
    LoseTrainer("mutex", "");
  } else if (ready.Of(Ready::kChannel) != 0) {
    if ((ready.Of(Ready::kChannel) & POLLOUT) != 0) (void)trainer_->channel().Flush();
    ReadChannel(now);
  }
  if (ready.Of(Ready::kSignals) != 0) OnSignals();
  OnLink(ready.Of(Ready::kLink), now);
  if (ready.Of(Ready::kOut) != 0) out_.OnReadable();
  if (ready.Of(Ready::kErr) != 0) err_.OnReadable();
  out_.Flush(now);
  err_.Flush(now);
  if (now >= sample_at_) Sample(now);
  if (now >= kill_at_) {
    kill_at_ = kNever;
    if (trainer_) trainer_->Kill();
  }
  if (now >= core_.next_wakeup()) Feed(rendezvous::Tick{});
}

void Agent::Feed(const rendezvous::MemberEvent& event) {
  pump_.Feed(event, [this](const rendezvous::MemberCommand& command) { Execute(command); });
}

void Agent::Execute(const rendezvous::MemberCommand& command) {
  if (std::holds_alternative<rendezvous::Connect>(command)) {
    link_.Connect(Now());
  } else if (const auto* up = std::get_if<rendezvous::SendCoordinator>(&command)) {
    Send(up->message);
  } else if (const auto* down = std::get_if<rendezvous::SendTrainer>(&command)) {
    SendTrainer(down->message);
  } else if (const auto* start = std::get_if<rendezvous::StartTrainer>(&command)) {
    Start(start->member);
  } else if (const auto* kill = std::get_if<rendezvous::KillTrainer>(&command)) {
    KillTrainer(kill->hangs);
  } else {
    exit_ = std::get<rendezvous::ExitAgent>(command);
  }
}

// ---- the coordinator

void Agent::Send(Message message) {
  if (link_.state() != CoordinatorLink::State::kUp) return;
  if (auto* hello = std::get_if<rendezvous::Hello>(&message)) {
    Result<std::string> secret = ReadSecret(config_.secret_file);
    if (!secret.ok()) {
      LoseLink(secret.error());
      return;
    }
    hello->secret = std::move(secret).value();
  }
  // A trainer that exited with the fatal code but sent no Fatal: report its last lines.
  if (auto* fatal = std::get_if<rendezvous::Fatal>(&message); fatal != nullptr && !fatal_sent_) {
    const std::string text = end_note_.empty() ? TailText() : end_note_;
    if (!text.empty()) fatal->message = text;
  }
  // The code of an exit alone says little. A signal leaves no termination message.
  if (auto* down = std::get_if<rendezvous::Down>(&message);
      down != nullptr && down->exit_code > 0 && down->exit_code < 128 && down->message.empty())
    down->message = LastErrorLine();
  if (auto* down = std::get_if<rendezvous::Down>(&message); down != nullptr && down->message.empty())
    down->message = stop_note_;
  if (auto* ping = std::get_if<rendezvous::Ping>(&message); ping != nullptr && hang_watch_)
    ping->busy = busy_.Take(trainer_->page(), Now());
  if (const Status sent = link_.Send(message); !sent.ok()) LoseLink(sent.error());
}

void Agent::OnLink(short revents, Time now) {
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
    Feed(rendezvous::Connected{});
  } else if (is_up && revents != 0) {
    ReadLink();
  }
}

void Agent::ReadLink() {
  while (link_.state() == CoordinatorLink::State::kUp) {
    Result<std::optional<Message>> message = link_.Next();
    if (!message.ok()) return LoseLink(message.error());
    if (!message.value()) return;
    Feed(rendezvous::FromCoordinator{std::move(*message.value())});
  }
}

void Agent::LoseLink(const Error& why) {
  if (link_.state() == CoordinatorLink::State::kIdle) return;
  const bool was_up = link_.state() == CoordinatorLink::State::kUp;
  if (was_up) {
    log::Warn("lost the coordinator: {}", why.message);
  } else {
    log::Debug("no coordinator: {}", why.message);
  }
  link_.Close();
  Feed(rendezvous::Disconnected{});
}

// ---- the trainer

void Agent::Start(const std::string& member) {
  CHECK(!trainer_, "the last trainer has not been reaped");
  fatal_sent_ = exit_sent_ = died_ = false;
  kill_at_ = kNever;
  end_note_.clear();
  stop_note_.clear();
  Result<std::unique_ptr<TrainerProcess>> started = TrainerProcess::Start(config_.trainer, member);
  if (!started.ok()) {
    log::Error("cannot start the trainer: {}", started.error().message);
    Feed(rendezvous::TrainerReaped{kExitInternal});
    return;
  }
  trainer_ = std::move(started).value();
  out_.Attach(trainer_->TakeStdout());
  err_.Attach(trainer_->TakeStderr());
  hang_watch_.emplace(config_.limits);
  stop_watch_.reset();
  busy_ = {};
  channel_open_ = true;
  channel_ended_at_.reset();
  sample_at_ = Now();
  log::Info("trainer member={} pid={} started", member, trainer_->pid());
}

void Agent::SendTrainer(const Message& message) {
  exit_sent_ = exit_sent_ || std::holds_alternative<rendezvous::Exit>(message);
  if (!channel_open_) return;
  if (const Status sent = trainer_->channel().Send(message); !sent.ok()) {
    // Other events report a dead trainer more precisely. A trainer that has not read for so long hangs.
    log::Warn("cannot send to the trainer: {}", sent.error().message);
    if (sent.error().code == Code::kExhausted) LoseTrainer("hang", "the trainer does not read its orders");
  }
}

void Agent::ReadChannel(Time now) {
  if (!channel_open_) return;
  // Before the coordinator hears of a member, its death watch runs.
  StartDeathWatch();
  const Status status = trainer_->channel().Receive();
  while (channel_open_) {
    Result<std::optional<Message>> message = trainer_->channel().Next();
    if (!message.ok()) return LoseTrainer("corrupt", "the trainer's channel: " + message.error().message);
    if (!message.value()) break;
    if (std::holds_alternative<rendezvous::Fatal>(*message.value())) fatal_sent_ = true;
    Feed(rendezvous::FromTrainer{std::move(*message.value())});
  }
  if (!status.ok() && channel_open_) {
    channel_open_ = false;
    channel_ended_at_ = now;
  }
}

void Agent::LoseTrainer(const std::string& evidence, const std::string& message) {
  if (!hang_watch_) return;  // already lost
  hang_watch_.reset();
  channel_open_ = false;
  sample_at_ = kNever;
  if (Finishing()) {
    sample_at_ = Now();  // EndIfStopped
    return;
  }
  if (exit_sent_ && evidence == "mutex") {
    log::Info("trainer member={} pid={} ends as ordered", trainer_->member(), trainer_->pid());
  } else {
    log::Warn("trainer member={} pid={} lost evidence={} {}", trainer_->member(), trainer_->pid(), evidence,
              message);
  }
  Feed(rendezvous::TrainerLost{evidence, message});
}

void Agent::KillTrainer(bool hangs) {
  if (!trainer_) return;
  if (hangs && config_.trainer.is_program && trainer_->ShowStacks()) {
    kill_at_ = Now() + kStackGrace;
  } else if (config_.trainer.is_program && std::exchange(died_, false)) {
    kill_at_ = Now() + kShellGrace;
  } else {
    trainer_->Kill();
  }
}

void Agent::StartDeathWatch() {
  if (const Status watching = trainer_->StartDeathWatchWhenReady(); !watching.ok()) {
    log::Warn("no death watch, a death will be detected later: {}", watching.error().message);
  }
}

// Kill a program that a signal stops after the last step. MemberCore limits all other programs.
void Agent::EndIfStopped(Time now) {
  if (!stop_watch_)
    stop_watch_.emplace(HangLimits{.startup = {}, .step = Duration{}, .stopped = config_.limits.stopped});
  const bool stopped = trainer_->ReadStopped().by_signal;
  const auto report =
      stop_watch_->Feed(now, {.ready = true, .activity = Activity::kWaiting, .stopped = stopped});
  if (!report) return;
  stop_note_ = "killed after the last step: " + report->message;
  log::Warn("trainer member={} pid={} {}", trainer_->member(), trainer_->pid(), stop_note_);
  sample_at_ = kNever;
  trainer_->Kill();
}

void Agent::Sample(Time now) {
  sample_at_ = now + kSampleInterval;
  StartDeathWatch();
  if (Finishing()) return EndIfStopped(now);
  // Wait a moment for the exit code, if this is an exit: it is the better evidence.
  if (channel_ended_at_ && now - *channel_ended_at_ > kEofGrace) {
    return LoseTrainer("eof", "the trainer closed its channel");
  }
  const SharedPage& page = trainer_->page();
  const TrainerProcess::Stopped stopped = trainer_->ReadStopped();
  // Without hang detection, a tracer is probably a debugger.
  const bool hangs_matter = config_.limits.step != Duration::zero();
  const HangWatch::Sample sample = {
      .ready = page.ready.load(std::memory_order_acquire) != 0,
      .activity = static_cast<Activity>(page.activity.load(std::memory_order_relaxed)),
      .heartbeat = page.heartbeat.load(std::memory_order_relaxed),
      .stopped = stopped.by_signal || (stopped.by_tracer && hangs_matter && !config_.trainer.is_program),
      .waits = page.waits.load(std::memory_order_relaxed),
      .stepped = page.busy_steps.load(std::memory_order_relaxed) > 0,
      .work = hang_watch_->WantsWork(now) ? std::optional(WorkOf(trainer_->pid())) : std::nullopt,
  };
  const auto report = hang_watch_->Feed(now, sample);
  if (!report) return;
  if (!report->in_collective) return LoseTrainer(report->evidence, report->message);
  log::Warn("trainer member={} {}", trainer_->member(), report->message);
  Feed(rendezvous::FromTrainer{rendezvous::OperationFailed{page.generation.load(), "", report->message}});
}

// ---- the process

void Agent::OnSignals() {
  signalfd_siginfo info;
  bool children = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      children = true;
    } else {
      log::Info("signal {}: leaving", info.ssi_signo);
      if (trainer_ && trainer_->page().leaving_since_ns.load() == 0)
        trainer_->page().leaving_since_ns.store(Now().time_since_epoch().count());
      Feed(rendezvous::Terminate{});
    }
  }
  if (children) Reap();
}

void Agent::Reap() {
  while (true) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const bool is_trainer = trainer_ && info.si_pid == trainer_->pid();
    // Kill its process group as long as the id cannot have been reused.
    if (is_trainer) trainer_->Kill();
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (is_trainer) OnTrainerExit(status);
  }
  // What a program leaves behind must not train next to its successor. The end of each is the next SIGCHLD.
  if (!reaped_code_ || (config_.trainer.is_program && KillChildren())) return;
  Feed(rendezvous::TrainerReaped{*std::exchange(reaped_code_, std::nullopt)});
}

void Agent::OnTrainerExit(int status) {
  const Time now = Now();
  const int code = ExitCodeOf(status);
  ReadChannel(now);
  err_.Finish(now);
  out_.Finish(now);
  log::Info("trainer member={} pid={} ended code={}", trainer_->member(), trainer_->pid(), code);
  hang_watch_.reset();
  channel_open_ = false;
  sample_at_ = kNever;
  end_note_ = NoteOfExit(code);
  kill_at_ = kNever;
  trainer_.reset();
  // A program that ends too early would do so again after each restart.
  reaped_code_ = end_note_.empty() ? code : kExitBadInput;
}

std::string Agent::NoteOfExit(int code) const {
  if (!config_.trainer.is_program || code != 0 || exit_sent_) return "";
  const bool opened = trainer_->page().ready.load(std::memory_order_acquire) != 0;
  return opened
             ? "the program ended with exit code 0 before the job did; it must train until the library "
               "reports the end, or end the run early by rm_finish (in Python: run.finish())"
             : "the program ended with exit code 0 and did not open libringmaster; with launch.kind library "
               "it must train through the library, otherwise set launch.kind to ranks";
}

void Agent::Shutdown() {
  Time deadline = Now() + kShutdownLimit;
  while (link_.wants_write() && Now() < deadline) {
    pollfd wait = {link_.PollFor().fd, POLLOUT, 0};
    ::poll(&wait, 1, 50);
    if (wait.revents != 0 && !link_.OnReady(POLLOUT, Now()).ok()) break;
  }
  link_.Close();

  if (trainer_) trainer_->Kill();
  KillChildren();
  deadline = Now() + kShutdownLimit;
  while (trainer_ && Now() < deadline) {
    Reap();
    if (!trainer_) break;
    pollfd wait = {signals_.get(), POLLIN, 0};
    ::poll(&wait, 1, 50);
  }
  // SIGKILL did not end it and its death watch still waits: leak both, this process exits.
  if (trainer_) (void)trainer_.release();

  deadline = Now() + kShutdownLimit;
  while ((out_.write_fd() >= 0 || err_.write_fd() >= 0) && Now() < deadline) {
    std::array<pollfd, 2> wait = {pollfd{out_.write_fd(), POLLOUT, 0}, pollfd{err_.write_fd(), POLLOUT, 0}};
    ::poll(wait.data(), wait.size(), 50);
    out_.Flush(Now());
    err_.Flush(Now());
  }
}

std::string Agent::TailText() const {
  std::string text;
  for (const std::string& line : err_.tail()) text += line + "\n";
  if (!text.empty()) text.pop_back();
  return text;
}

// Returns the trainer's last line, without the time, level, pod and member of a log line.
std::string Agent::LastErrorLine() const {
  if (err_.tail().empty()) return "";
  const std::string& line = err_.tail().back();
  const size_t member = line.find(" member=");
  const size_t words = member == std::string::npos ? member : line.find(' ', member + 1);
  return words == std::string::npos ? line : line.substr(words + 1);
}

}  // namespace ringmaster::agent
