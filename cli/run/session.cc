// SPDX-License-Identifier: Apache-2.0

#include "cli/run/session.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "api/launch.h"
#include "api/load.h"
#include "api/slots.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/manifest.h"
#include "cli/run/gang_coordinator.h"
#include "cli/run/inbox.h"
#include "cli/run/metrics_server.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_view.h"
#include "cli/run/signals.h"
#include "cli/track/mlflow_thread.h"
#include "cli/ui/folder_feed.h"
#include "cli/ui/page_server.h"
#include "cli/write_text.h"
#include "operator/control/loop.h"
#include "operator/local/local_backend.h"
#include "rendezvous/server.h"
#include "worker/inventory/inventory.h"

namespace ringmaster::cli {
namespace {

constexpr auto kTick = milliseconds(100);   // period of the display and of --chaos
constexpr auto kMlflowGrace = seconds(15);  // to upload the rest at the end

// `name`: of one of our programs.
Result<std::string> ProgramNextToThis(const char* name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  if (error || ::access(path.c_str(), X_OK) != 0)
    return Error{Code::kNotFound,
                 path + ": not found; build it (scripts/build) or install it next to ringmaster"};
  return path;
}

// Divides the CPUs among the workers. The number of threads does not change the bits.
// Returns what the environment says, or this process's share of the machine divided by the workers.
std::string ThreadsPerWorker(int workers) {
  if (const char* const given = std::getenv("RINGMASTER_THREADS"); given != nullptr && *given != '\0')
    return given;
  return std::to_string(std::max(1, inventory::UsableCpus(inventory::ReadCpu("")) / std::max(1, workers)));
}

// On one machine, "auto" means shared memory: it reaches every worker, and a network transport would need
// more memory than a small model.
api::TrainingJob OnOneMachine(api::TrainingJob job) {
  if (job.spec.network.transport == "auto") job.spec.network.transport = "shm";
  return job;
}

}  // namespace

class Session::Impl {
 public:
  Impl(const RunOptions& options, RunPlan plan, OutputFolder folder)
      : options_(options), plan_(std::move(plan)), folder_(std::move(folder)), chaos_(options.chaos) {}

  // Starts everything except the workers. An error here is reported as bad input.
  Status Prepare(int64_t resume_step) {
    const bool command = api::RunsCommand(plan_.job.spec);
    RM_ASSIGN(worker_, ProgramNextToThis(command ? "ringmaster-agent" : "ringmaster-worker"));
    if (options_.chaos.kind != ChaosOptions::Kind::kNone) {
      // Injected failures must not exhaust the restart limits.
      plan_.job.spec.restart.maxRestarts = 1'000'000;
      plan_.job.spec.restart.maxWithoutProgress = 1'000'000;
    }
    RM_ASSIGN(RunFolder run_folder, RunFolder::Create(folder_.paths().folder, OnOneMachine(plan_.job)));
    run_folder_.emplace(std::move(run_folder));
    if (!options_.metrics_address.empty()) {
      RM_ASSIGN(metrics_, MetricsServer::Start(options_.metrics_address));
    }
    RM_TRY(StartPage());
    RM_TRY(StartServer());
    RM_TRY(StartBackend());
    // Everything that may refuse the start has passed: from here on the files of an earlier run change.
    if (options_.fresh) RM_TRY(folder_.Clean(plan_.job.metadata.namespace_ + "/" + plan_.job.metadata.name));
    RM_ASSIGN(view_, RunView::Create(plan_, folder_.paths(), resume_step, options_));
    RM_TRY(StartMlflow(resume_step));
    if (metrics_) view_->Announce(false, "MetricsServed", "metrics: " + metrics_->Url());
    if (page_) Print(stderr, "page: {}\n", page_->url());
    RM_TRY(RecordCheckpointPath());
    folder_.Keep();
    return Ok();
  }

  // Lets sample and export find checkpoints that spec.checkpoint.path puts elsewhere.
  Status RecordCheckpointPath() const {
    const OutputPaths& paths = folder_.paths();
    const std::string record = paths.folder + "/" + kCheckpointPathFile;
    if (paths.checkpoints != paths.folder + "/checkpoints") return WriteFileAtomic(record, paths.checkpoints);
    std::error_code ignored;
    std::filesystem::remove(record, ignored);
    return Ok();
  }

  int Run() {
    loop_->Start();
    while (!Ended()) {
      Wait();
      while (auto signal = signals_.Next()) OnSignal(*signal);
      Drain();
      Chaos(Now());
      view_->Show(plan_.job.spec.workers.replicas, interrupts_ > 0, JobStatus().ledger.not_before, Now());
      UpdateMetrics();
    }
    return Finish();
  }

 private:
  Status StartMlflow(int64_t resume_step) {
    if (options_.mlflow_uri.empty()) return Ok();
    MlflowOptions options;
    options.uri = options_.mlflow_uri;
    options.token = options_.mlflow_token;
    options.folder = folder_.paths().folder;
    options.resume = resume_step > 0;
    const std::string& name = plan_.job.metadata.name;
    options.job.experiment = options_.mlflow_experiment.empty() ? name : options_.mlflow_experiment;
    options.job.run_name = name;
    options.job.parameters =
        FlattenParameters(api::ToJson(plan_.job).at("spec").value("training", Json::object()));
    options.job.parameters.emplace_back("workers.replicas", std::to_string(plan_.job.spec.workers.replicas));
    options.job.tags = {{"mlflow.source.name", "ringmaster run"}, {"ringmaster.version", VersionText()}};
    options.say = [this](bool warning, const std::string& text) {
      inbox_.PutNote({warning, "MlflowUpload", text});
    };
    RM_ASSIGN(mlflow_, MlflowThread::Start(std::move(options)));
    return Ok();
  }

  // Waits for the rest of the upload for a while. What is missing stays in the output folder.
  void FinishMlflow(const std::string& phase) {
    if (!mlflow_) return;
    MlflowEnd end;
    end.status = phase == "Succeeded" ? "FINISHED" : phase == "Failed" ? "FAILED" : "KILLED";
    end.ended_ms =
        std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    if (const auto& done = view_->report().done)
      end.tags = {{"weights_hash", done->weights_hash}, {"optimizer_hash", done->optimizer_hash}};
    const bool complete = mlflow_->Finish(end, kMlflowGrace);
    mlflow_.reset();
    if (!complete)
      Print(stderr, "ringmaster: MLflow does not have the whole run; the same command uploads the rest\n");
  }

  Status StartPage() {
    if (!options_.ui) return Ok();
    RM_ASSIGN(feed_, FolderFeed::OpenEarly(folder_.paths().folder));
    RM_ASSIGN(page_, PageServer::Start(*options_.ui, *feed_));
    return Ok();
  }

  Status StartServer() {
    rendezvous::ServerCallbacks callbacks;
    callbacks.on_report = [this](const std::string&, const std::string&, const rendezvous::Report& report) {
      checkpoint_step_ = report.checkpoint_step;
      backend_->SetReport(key_, report);
      inbox_.PutReport(report);
    };
    callbacks.on_progress = [this](const std::string&, const rendezvous::Progress& progress) {
      if (metrics_) metrics_->OnProgress(progress);
      inbox_.PutProgress(progress);
    };
    callbacks.on_event = [this](const std::string&, const rendezvous::EventLine& line) {
      if (metrics_) metrics_->OnEvent(line);
      inbox_.PutLine(line);
    };
    callbacks.on_busy_times = [this](const std::string&, const rendezvous::GangBusyTimes& times) {
      if (metrics_) metrics_->OnBusyTimes(times);
      inbox_.PutBusyTimes(times);
    };
    rendezvous::ServerOptions server;
    server.secret = run_folder_->secret();
    RM_ASSIGN(server_, rendezvous::Server::Start(server, std::move(callbacks)));
    return Ok();
  }

  std::vector<std::string> ArgvOf(const UserProgram& program) const {
    std::vector<std::string> argv = {worker_, plan_.library ? "train" : "run", "--"};
    argv.insert(argv.end(), program.command.begin(), program.command.end());
    // Workers with a launcher apart: their agents run what it asks for.
    if (program.command.empty()) argv.insert(argv.end(), {worker_, "ranks"});
    return argv;
  }

  void AddProgram(const std::string& role, const UserProgram& program) {
    local::LocalBackend::RoleProgram& own = role_programs_[role];
    own.argv = ArgvOf(program);
    own.environment = program.environment;
    if (!role.empty() && role != api::kMaster)
      own.environment["RINGMASTER_ROLE"] = role;
    else
      AddSlots(own.environment);
  }

  void AddSlots(std::map<std::string, std::string>& environment) const {
    const int32_t slots = api::ProgramsPerWorker(plan_.job.spec);
    if (slots > 1) environment["RINGMASTER_SLOTS"] = std::to_string(slots);
  }

  Status StartBackend() {
    local::LocalBackend::Options options;
    options.argv = {worker_};
    if (plan_.programs) {
      options.argv = ArgvOf(plan_.programs->workers);
      options.working_folder = plan_.programs->workers.folder;
      AddProgram("", plan_.programs->workers);
      for (const auto& [role, program] : plan_.programs->roles) AddProgram(role, program);
      options.role_program = [this](const std::string& role, int32_t index) {
        const bool master = role.empty() && index == 0 && role_programs_.contains(api::kMaster);
        return &role_programs_.at(master ? api::kMaster : role);
      };
    } else if (plan_.library) {
      options.argv = ArgvOf(*plan_.library);
      options.working_folder = plan_.library->folder;
      AddProgram("", *plan_.library);
      options.role_program = [this](const std::string&, int32_t) { return &role_programs_.at(""); };
    } else {
      options.argv.push_back("agent");
    }
    options.directory = folder_.paths().folder;
    options.environment.job_file = run_folder_->job_file();
    options.environment.coordinator = "127.0.0.1:" + std::to_string(server_->port());
    options.environment.secret_file = run_folder_->secret_file();
    options.environment.extra = {
        {"RINGMASTER_THREADS", ThreadsPerWorker(plan_.job.spec.workers.replicas)},
        {"RINGMASTER_STARTUP_SECONDS", std::to_string(plan_.job.spec.health.startupSeconds)},
        {"RINGMASTER_STEP_SECONDS", plan_.job.spec.health.stepSeconds}};
    if (api::RunsCommand(plan_.job.spec))
      options.environment.extra["RINGMASTER_STOP_SECONDS"] =
          std::to_string(plan_.job.spec.restart.stopSeconds);
    if (options_.digests)
      options.environment.extra["RINGMASTER_DIGESTS"] =
          std::filesystem::absolute(folder_.paths().digests).string();
    if (plan_.programs) {
      options.environment.extra["RINGMASTER_FRAMEWORK"] = plan_.job.spec.framework;
      options.environment.extra["RINGMASTER_ADDRESS"] = "127.0.0.1";
      options.environment.extra["RINGMASTER_PRELOAD"] =
          fmt::format("{}", fmt::join(plan_.job.spec.launch.preload, ","));
      options.environment.extra["RINGMASTER_SOCKET_FOLDER"] =
          std::filesystem::path(run_folder_->secret_file()).parent_path().string();
      options.environment.extra["RINGMASTER_SILENCE_SECONDS"] =
          std::to_string(plan_.job.spec.launch.silenceSeconds);
      if (api::LaunchesRanks(plan_.job.spec)) {
        options.environment.extra["RINGMASTER_MPI"] = api::LaunchedBy(plan_.job.spec);
        options.environment.extra["RINGMASTER_MPI_SLOTS"] =
            std::to_string(api::SlotsOf(plan_.job.spec.workers));
        if (api::HasLiveWorkers(plan_.job.spec))
          options.environment.extra["RINGMASTER_MPI_MIN"] =
              std::to_string(plan_.job.spec.workers.EffectiveMin());
      }
    } else if (!plan_.library) {
      AddSlots(options.environment.extra);
    }
    options.on_gang = [this](const control::Key&, const core::SetGang& order) {
      gang_coordinator_->Order(order, checkpoint_step_);
    };
    options.on_status = [this](const control::Key&, const core::Status&) { inbox_.Wake(); };
    options.on_event = [this](const control::Key&, const core::Event& event) {
      if (event.reason == "Succeeded") return;  // RunView::Finish writes it, after everything else
      RunEvent line;
      line.warning = event.warning;
      line.reason = event.reason;
      line.message = event.message;
      view_->events().Write(std::move(line));
    };
    options.on_pod_end = [this](const control::Key& key, const std::string& pod) {
      server_->ReportPodEnded(key.ToString(), pod);
    };
    key_ = {plan_.job.metadata.namespace_, plan_.job.metadata.name};
    gang_coordinator_.emplace(server_.get(), key_.ToString());
    RM_ASSIGN(backend_, local::LocalBackend::Create(std::move(options)));
    backend_->Subscribe([this](const control::Key&) { inbox_.Wake(); });
    loop_.emplace(*backend_, control::Controller::Options{});
    auto submitted = backend_->Submit(plan_.job);
    if (!submitted.ok()) return submitted.error();
    CHECK(*submitted == key_);
    return Ok();
  }

  void Wait() {
    pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {inbox_.wake_fd(), POLLIN, 0}};
    ::poll(waits, 2, static_cast<int>(ToMs(kTick)));
  }

  void OnSignal(int signal) {
    if (signal == SIGHUP) return Reload();
    if (signal == Signals::kTerminalClosed)
      return view_->Announce(true, "TerminalClosed",
                             fmt::format("the terminal was closed; the run continues (pid {}): stop it with "
                                         "`kill {}`, follow it with `ringmaster ui {}`",
                                         ::getpid(), ::getpid(), folder_.paths().folder));
    ++interrupts_;
    if (interrupts_ > 1) return;
    view_->Announce(false, "Stopping", "stopping after a checkpoint; interrupt again to stop immediately");
    if (auto status = backend_->SetSuspend(key_, true); !status.ok()) log::Warn("{}", status.error().message);
  }

  // Applies only the fields that may change while a job runs.
  void Reload() {
    if (Stopped()) return;
    if (!options_.manifest.empty())
      return view_->Announce(true, "ReloadFailed",
                             "the job came from a command line: keep its manifest (--dry-run) and run that "
                             "to change it by SIGHUP");
    if (options_.file == "-")
      return view_->Announce(true, "ReloadFailed",
                             "the manifest came from standard input: give a file to change it by SIGHUP");
    auto job = LoadManifest(options_.file, options_.sets, options_.workers);
    if (!job.ok()) return view_->Announce(true, "ReloadFailed", job.error().message);
    api::TrainingJob wanted = plan_.job;
    wanted.spec.workers.replicas = job->spec.workers.replicas;
    wanted.spec.suspend = job->spec.suspend;
    const api::Workers& workers = plan_.job.spec.workers;
    if (wanted.spec.workers.replicas < workers.EffectiveMin() ||
        wanted.spec.workers.replicas > workers.EffectiveMax())
      return view_->Announce(
          true, "ReloadFailed",
          fmt::format("spec.workers.replicas: must stay between min {} and max {} of the running "
                      "job (got {})",
                      workers.EffectiveMin(), workers.EffectiveMax(), wanted.spec.workers.replicas));
    if (!workers.min) wanted.spec.workers.min = workers.EffectiveMin();
    if (!workers.max) wanted.spec.workers.max = workers.EffectiveMax();
    Status replaced = backend_->Replace(wanted);
    // Replacing the manifest does not end a suspension that SetSuspend requested.
    if (replaced.ok()) replaced = backend_->SetSuspend(key_, wanted.spec.suspend);
    if (!replaced.ok()) return view_->Announce(true, "ReloadFailed", replaced.error().message);
    plan_.job = std::move(wanted);
    view_->Announce(false, "Reloaded",
                    fmt::format("{}: {} workers desired{}", options_.file, plan_.job.spec.workers.replicas,
                                plan_.job.spec.suspend ? ", suspended" : ""));
  }

  void Drain() {
    const Status taken = view_->Take(inbox_.Take());
    if (taken.ok() || !fatal_error_.empty()) return;
    // The metrics must be complete: end the run and keep the newest checkpoint.
    fatal_error_ = taken.error().message + "; free some space and run the same command again to continue";
    if (auto status = backend_->SetSuspend(key_, true); !status.ok()) log::Warn("{}", status.error().message);
  }

  void Chaos(Time now) {
    if (options_.chaos.kind == ChaosOptions::Kind::kNone || !view_->training() || interrupts_ > 0) return;
    if (!next_strike_) next_strike_ = now + chaos_.NextDelay();
    if (now < *next_strike_) return;
    next_strike_ = now + chaos_.NextDelay();
    const int signal = options_.chaos.kind == ChaosOptions::Kind::kKill ? SIGKILL : SIGSTOP;
    const std::vector<Victim> victims = FindVictims(::getpid());
    const Strike strike = chaos_.NextStrike();
    const std::string what = ExecuteStrike(strike, victims, signal);
    if (what.empty()) return;
    RunEvent event;
    event.warning = true;
    event.reason = "Chaos";
    event.message = "chaos: " + what;
    event.signal = signal == SIGKILL ? "SIGKILL" : "SIGSTOP";
    event.pod = victims[strike.victim % victims.size()].pod;
    view_->Announce(std::move(event));
  }

  void UpdateMetrics() {
    if (!metrics_) return;
    if (const auto snapshot = backend_->Observe(key_))
      metrics_->Update(snapshot->observed, server_->connected());
  }

  bool Stopped() const { return interrupts_ > 0 || !fatal_error_.empty(); }

  core::Status JobStatus() const {
    auto snapshot = backend_->Observe(key_);
    return snapshot ? snapshot->observed.status : core::Status{};
  }

  // Whether the result is durable: processes that still run (usually stopped ones) cannot change it.
  bool Durable() const {
    return JobStatus().ended() || (Stopped() && view_->report().phase == rendezvous::GangPhase::kStopped);
  }

  bool Ended() {
    if (interrupts_ > 1) return true;
    if (backend_->Settled(key_) && (Stopped() || JobStatus().ended())) return true;
    if (!Durable()) return false;
    if (!durable_since_) durable_since_ = Now();
    return Now() - *durable_since_ > seconds(api::FinishSeconds(plan_.job.spec));
  }

  int Finish() {
    const core::Status status = JobStatus();
    // This order prevents callbacks into destroyed objects: orders, then reports, then processes.
    loop_->Stop();
    server_->Shutdown();
    backend_.reset();
    Drain();
    std::string phase = "Interrupted";
    std::string message = status.ledger.outcome_message;
    int code = kInterrupted;
    if (!fatal_error_.empty()) {
      phase = "Failed";
      message = fatal_error_;
      code = kFailed;
    } else if (status.ledger.outcome == core::Outcome::kSucceeded) {
      phase = "Succeeded";
      code = kSucceeded;
    } else if (status.ledger.outcome == core::Outcome::kFailed) {
      phase = "Failed";
      code = kFailed;
    } else {
      message = "interrupted; run the same command again (without --fresh) to continue";
    }
    if (const Status written = view_->Finish(phase, message); !written.ok()) {
      Print(stderr, "ringmaster: {}\n", written.error().message);
      if (code == kSucceeded) code = kFailed;
    }
    page_.reset();  // browsers get the end of the run
    FinishMlflow(phase);
    if (code == kFailed) Print(stderr, "ringmaster: {}\n", message);
    return code;
  }

  Signals signals_;  // first: threads created later inherit the mask
  const RunOptions options_;
  RunPlan plan_;
  OutputFolder folder_;
  std::string worker_;
  control::Key key_;
  Inbox inbox_;
  std::optional<RunFolder> run_folder_;
  std::unique_ptr<MetricsServer> metrics_;  // null: not requested
  std::unique_ptr<RunView> view_;
  std::unique_ptr<MlflowThread> mlflow_;                                   // null: not requested
  std::map<std::string, local::LocalBackend::RoleProgram> role_programs_;  // as long as the backend
  std::unique_ptr<local::LocalBackend> backend_;
  std::unique_ptr<rendezvous::Server> server_;
  std::optional<GangCoordinator> gang_coordinator_;
  std::atomic<int64_t> checkpoint_step_{-1};  // newest that a worker of this run has published
  std::optional<control::Loop> loop_;
  std::unique_ptr<FolderFeed> feed_;
  std::unique_ptr<PageServer> page_;
  ChaosPlan chaos_;
  std::optional<Time> next_strike_;
  std::optional<Time> durable_since_;
  int interrupts_ = 0;
  std::string fatal_error_;  // why this process ended the run; empty: it did not
};

Result<std::unique_ptr<Session>> Session::Create(const RunOptions& options, RunPlan plan, OutputFolder folder,
                                                 int64_t resume_step) {
  auto impl = std::make_unique<Impl>(options, std::move(plan), std::move(folder));
  RM_TRY(impl->Prepare(resume_step));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
int Session::Run() { return impl_->Run(); }

}  // namespace ringmaster::cli
