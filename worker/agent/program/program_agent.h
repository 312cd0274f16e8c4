// SPDX-License-Identifier: Apache-2.0

// ProgramAgent runs a user's program in a worker: one event loop passes events of the program, the
// coordinator connection and the process's signals to rendezvous::ProgramMemberCore, and performs its
// commands. It can run as PID 1: it reaps orphans and passes SIGTERM on, once the coordinator agrees, and the
// signals of signals.h at once.
//
// Not thread-safe; main thread only. REQUIRES: SIGTERM, SIGINT, SIGCHLD and the signals of signals.h are
// blocked before Run, and this process has no children (main.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/time.h"
#include "rendezvous/program_member.h"
#include "worker/agent/kubeflow/kubeflow_server.h"
#include "worker/agent/mpi/launcher_report.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/net/own_name.h"
#include "worker/agent/program/peer_check.h"
#include "worker/agent/program/program_hang_watch.h"
#include "worker/agent/program/program_progress.h"
#include "worker/agent/program/progress_socket.h"
#include "worker/agent/program/spare_program.h"
#include "worker/agent/shell/coordinator_link.h"
#include "worker/agent/shell/error_lines.h"
#include "worker/agent/shell/event_pump.h"
#include "worker/agent/shell/log_pipe.h"
#include "worker/agent/shell/private_folder.h"
#include "worker/agent/shell/program_process.h"
#include "worker/agent/trainer/config.h"

namespace ringmaster::agent {

// Returns how the agent of such a pod introduces itself, under a new id. The secret is missing: it may change
// before each connection.
rendezvous::ProgramMemberOptions MemberOptionsOf(const Config& config);

class ProgramAgent {
 public:
  // REQUIRES: config.program is not empty.
  explicit ProgramAgent(Config config);

  // Runs until the core commands Exit, and returns the exit code. Writes the termination message unless the
  // code is 0.
  int Run();

 private:
  void WaitForEvents();
  void Feed(const rendezvous::program::Event& event);
  void Execute(const rendezvous::program::Command& command);
  void Start(const rendezvous::program::Start& start);
  void Send(rendezvous::Message message);
  void OnSignals();
  void OnLink(short revents, Time now);
  void ReadLink();
  void LoseLink(const Error& why);
  void Reap();
  void ReportProgress(Time now);
  void ReadSocket(Time now);
  void OpenKubeflow();
  void ReadKubeflow(Time now);
  void WatchForHang(Time now);
  void StopWatching();
  void OpenFolder();
  void StartSpare();
  void OnSpare();
  Result<ProgramProcess> StartProcess(const std::vector<std::string>& command,
                                      const std::vector<std::string>& variables);
  pid_t spare_pid() const { return spare_ ? spare_->pid() : -1; }
  // The first process of the program has ended, and others have not.
  void OnFirstEnded(int exit_code);
  void OnEnded(int exit_code);
  // How a program failed that ended with this code at this time.
  rendezvous::program::Ended EndOf(int exit_code, Time end) const;
  void ReportSurvivors();
  // The address at which the next program of this agent will be reached: with a port that is kept for it.
  std::string NextAddress();
  void Check(const rendezvous::program::Check& check);
  void AdvanceCheck(Time now);
  // After Exit: sends pending messages, kills the program, flushes the logs.
  void Shutdown();
  std::string LastErrorLine() const;
  std::string TailText() const;
  // ---- frameworks mpi and horovod: the program is MpiPod (mpi_pod.h)
  bool mpi() const { return !config_.mpi.empty(); }
  void OpenMpi();
  // Prepares the incarnation and adds its variables. Returns the command of this pod.
  Result<std::vector<std::string>> PrepareMpi(const rendezvous::program::Start& start,
                                              std::vector<std::string>* variables);
  void ReadMpi(Time now);
  // The workers of the incarnation that runs are others now.
  void UpdateMpi(const rendezvous::program::Update& update);

  Config config_;
  rendezvous::ProgramMemberCore core_;
  CoordinatorLink link_;
  LogPipe out_;
  LogPipe err_;
  Fd signals_;
  ProgramProgress progress_;
  std::optional<PrivateFolder> folder_;
  std::optional<ProgressSocket> socket_;
  std::optional<KubeflowServer> kubeflow_;
  std::optional<ProgramHangWatch> hang_watch_;  // while a program runs, until it is killed
  Time watch_at_ = kNever;
  Time survivors_at_ = kNever;              // when what SIGKILL has not ended is reported
  uint64_t reports_before_ = 0;             // of earlier programs
  int64_t open_ranks_ = 0;                  // of MPI, that have started in this pod and not succeeded
  uint64_t waits_ = 0;                      // looks at a pod that has no rank: it waits, and does not hang
  std::vector<std::string> spare_command_;  // empty: there are no spares
  std::optional<SpareProgram> spare_;
  Time spare_at_ = kNever;                    // when the next one starts
  std::optional<ProgressSocket> mpi_socket_;  // kMpiCounts
  std::string mpi_key_;                       // of the next incarnation
  MpiSetup mpi_setup_;                        // of the incarnation that runs
  std::vector<rendezvous::Member> mpi_members_;
  bool launches_ = false;    // the program starts the ranks in all pods
  std::string mpi_failure_;  // why the program is going to fail
  Time mpi_failed_at_{};
  Time last_error_line_at_{};              // when the program wrote the last line to stderr
  ErrorLines error_lines_;                 // of stderr
  LauncherReport launcher_report_;         // of stderr, with a launcher
  bool has_started_ = false;               // its command has been there
  std::optional<ProgramProcess> program_;  // until no process of it is left
  std::optional<ReservedPort> port_;       // of the next program
  uint32_t ports_used_ = 0;
  std::optional<PeerListener> listener_;  // on port_, during a check of the network
  PeerDialer dialer_;
  OwnNameCheck own_name_;
  uint64_t check_number_ = 0;
  EventPump<rendezvous::ProgramMemberCore, rendezvous::program::Event> pump_{&core_};
  std::optional<rendezvous::program::Exit> exit_;
};

}  // namespace ringmaster::agent
