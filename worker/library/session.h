// SPDX-License-Identifier: Apache-2.0

// Session is one member of a job whose model is a program's own: what include/ringmaster.h offers, in C++.
// The program asks for the next event and obeys it; start reading at Session::Next.
//
// It is the counterpart of trainer::Trainer, which computes by itself. Differences: only the program can
// describe its state, so the session asks for it when it is needed, and a program keeps no undo: a member
// that is a step behind fetches the state from one that is ahead.
//
// Without an agent the session is the only member of its run.
//
// Not thread-safe, except Heartbeat and TimeToLeave; Open and Next belong to the main thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/training_job.h"
#include "base/exit_codes.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/fabric/fabric.h"
#include "worker/library/gradient_sums.h"
#include "worker/library/program_state.h"
#include "worker/library/run_identity.h"
#include "worker/library/step_digests.h"
#include "worker/trainer/agent_channel.h"
#include "worker/trainer/checkpoint_saver.h"
#include "worker/trainer/checkpoint_search.h"
#include "worker/trainer/compare_states.h"
#include "worker/trainer/reporter.h"
#include "worker/trainer/root_work.h"

namespace ringmaster::library {

// The members compare their whole states after this many steps: a pass over the state, which costs about as
// much as a step, so it adds at most one percent.
inline constexpr int64_t kCompareEverySteps = 100;

class Session {
 public:
  enum class EventKind { kStep, kDescribe, kLoad, kEnd };
  struct Event {
    EventKind kind = EventKind::kEnd;
    int64_t step = 0;  // committed
    uint64_t generation = 0;
    int rank = 0;
    int world = 1;
    int first = 0;  // kStep: the micro-batches of this member are [first, end)
    int end = 0;
    int attempt = 0;        // kStep: how often this member began the step before
    bool finished = false;  // kEnd: all steps are committed
  };
  enum class Verdict { kGo, kSkip, kRepeat };

  // Attaches the agent's page and channel. `transport`: auto, shm or ucx; empty: that of the job. Errors:
  // kInvalid for an environment that no agent sets.
  static Result<std::unique_ptr<Session>> Open(const std::string& transport);
  ~Session();

  bool has_agent() const { return channel_ != nullptr; }
  bool joined() const { return sums_ != nullptr; }
  const std::vector<Tensor>& tensors() const { return sums_->tensors(); }
  // Why this process cannot continue; then every call fails.
  bool failed() const { return failure_.has_value(); }
  int exit_code() const { return exit_code_; }

  // Every error is fatal: the session has failed afterwards, and the job knows why.
  Status Join(Config config);
  Result<Event> Next();
  // Ends the job, and fails.
  Error Fail(const std::string& message);
  // Fails for a reason that another attempt may not have, such as too little memory.
  Error FailWith(int exit_code, const std::string& message);

  // The answer to kDescribe. The memory of the arrays is used until the next kStep. Errors: kInvalid for a
  // name or a type that is not allowed.
  Status Describe(std::vector<StateArray> arrays, std::string meta);
  // The state to adopt after kLoad: valid until Next.
  const OwnedState& loaded() const { return *loading_; }

  // The attempt at a step is interrupted: call Next. It may become so at any moment; what is added afterwards
  // is of no use.
  bool interrupted() const { return cancelled(); }
  // REQUIRES: a step is attempted, and v is in the share. kSkip: the sums contain it.
  Verdict BeginMicroBatch(int v);
  // Errors: the session has failed. kRepeat: call Next.
  Result<Verdict> Add(int tensor, std::span<const float> values);
  Result<Verdict> EndMicroBatch(double loss, std::optional<double> weight);
  // REQUIRES: joined(). As GradientSums::SetStream.
  void SetStream(device::ForeignStream stream) { sums_->SetStream(stream); }
  // REQUIRES: joined(). As GradientSums::Synchronize. Errors: the session has failed.
  Status Synchronize();
  bool in_step() const { return in_step_; }
  uint64_t world() const { return static_cast<uint64_t>(event_.world); }
  // Whether a micro-batch was computed in this attempt.
  bool computed() const { return computed_ > 0; }
  // Every rank's `mine` in the order of the ranks. REQUIRES: in_step(), not computed(). kRepeat: call Next.
  Result<Verdict> Gather(std::span<const std::byte> mine, std::span<std::byte> all);
  bool in_micro_batch() const { return in_step_ && sums_->in_micro_batch(); }
  std::pair<int, int> share() const { return {event_.first, event_.end}; }
  // Errors: the session has failed. kRepeat: call Next.
  struct StepResult {
    Verdict verdict = Verdict::kGo;
    double loss = 0;
    double gradient_norm = 0;
    double weight = 0;
  };
  Result<StepResult> Reduce();
  bool reduced() const { return reduced_; }
  // Whether micro-batches of the share are missing though nothing interrupted the attempt.
  bool Incomplete() const { return !cancelled() && !sums_->Complete(); }
  // Errors: the session has failed.
  Status ReadGradient(int tensor, std::span<float> values);
  // REQUIRES: reduced().
  Status Commit(double learning_rate, double gradient_norm);

  // Whether the step of the last event is committed: not after an attempt that was interrupted or repeated.
  bool committed() const { return event_.kind == EventKind::kStep && step_ == event_.step + 1; }
  // The run ends before the next step. REQUIRES: committed().
  void RequestFinish() { finish_requested_ = true; }
  void Validated(double loss, std::optional<double> accuracy);
  void Heartbeat();
  // How long this member may take to leave; nullopt: its agent has received no notice. Thread-safe.
  std::optional<Duration> TimeToLeave() const;

 private:
  enum class Stage {
    kOrder,   // waits for an order
    kLoad,    // the loader gets the first state
    kShare,   // members that have the state send it to those that do not
    kStart,   // everyone has the state
    kSteps,   // trains
    kFinish,  // writes the last checkpoint
    kEnded,
  };

  Session() = default;

  // Each does the work of its stage, and returns an event for the program, or nothing: then Next continues.
  Result<std::optional<Event>> TakeOrder();
  Result<std::optional<Event>> Load();
  Result<std::optional<Event>> Share();
  Result<std::optional<Event>> Start();
  Result<std::optional<Event>> TakeStep();
  // Collective, every kCompareEverySteps, before each checkpoint and at the end: compares the whole state of
  // all members.
  Result<std::optional<Event>> CompareIfDue(bool at_end);
  // Collective: returns how these parts differ between the members; empty text: they are equal.
  Result<std::string> CompareAcross(const std::vector<trainer::StatePart>& parts);
  // As CompareAcross. Errors: kUnavailable when the parts differ; then the members vote.
  Status CompareParts(const std::vector<trainer::StatePart>& parts, const std::string& since);
  // Learns whether all members end the run before the next step. Errors: some do not.
  Result<std::optional<Event>> AgreeToFinish();
  Error FinishedBySome();
  Error CommitsDiffer();
  Result<std::optional<Event>> Finish();

  Status Answer(const rendezvous::Prepare& prepare);
  Status BeginGeneration(rendezvous::NewGeneration formed);
  Status Connect();
  // Opens the device whose memory has the gradients. Errors: the session has failed.
  Status OpenDevice();
  // Connects the collectives of the devices.
  Status ConnectDevices();
  // Returns the transport of gradients. The state always uses the fabric.
  std::string Transport() const;
  Status CheckFound(const Result<checkpoint::Loaded>& found);
  // Reports how the run differs from the one that wrote the checkpoint.
  // After kLoad: the program has adopted the state.
  void Adopted();
  // Ends the attempt at a step, if there is one.
  void EndAttempt();
  void Disconnect();
  // The generation has ended with an error: reports it, and waits for an order next. Errors: fatal ones.
  Status GenerationFailed(const Error& error);
  // Returns the answer to a program whose call had this outcome.
  Result<Verdict> VerdictOf(const Status& outcome);
  // Ends the job, and fails.
  Error EndJob(int exit_code, const std::string& message);
  // Fails because of the device that has the sums.
  Error DeviceFailed(const Error& error);
  // Fails, unless the digests were written.
  Status AfterDigests(const Status& written);
  // Records the state, if digests are recorded. Returns a request for its description if that is needed.
  Result<std::optional<Event>> RecordState();
  Event MakeEvent(EventKind kind) const;
  // Begins an attempt at a step in the sums. Returns its event.
  Result<Event> BeginAttempt();
  Result<GradientSums::Reduced> ReduceSums();
  std::vector<StateArray> State();
  StateHashes Hashes();
  // The parts of the state with their hashes.
  std::vector<trainer::StatePart> StateParts();
  Result<checkpoint::Snapshot> TakeSnapshot();
  const std::atomic<bool>& cancelled() const;
  void SetActivity(agent::Activity activity);

  Config config_;
  std::optional<api::TrainingJob> job_;
  std::string member_ = "alone";
  std::string transport_;
  int threads_ = 1;                // that hash the state
  checkpoint::Identity identity_;  // of the run, in checkpoints
  std::optional<agent::TrainerPage> page_;
  std::shared_ptr<fabric::Aborter> aborter_;
  std::unique_ptr<trainer::AgentChannel> channel_;  // null: alone
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<device::GradientDevice> device_;
  std::unique_ptr<GradientSums> sums_;
  std::optional<StepDigests> digests_;  // nullopt: none are recorded
  std::unique_ptr<fabric::Communicator> comm_;
  std::unique_ptr<fabric::AsyncCommunicator> device_comm_;  // null: gradients travel through the host
  std::unique_ptr<trainer::CheckpointSearch> search_;
  std::unique_ptr<trainer::Reporter> reporter_;
  std::unique_ptr<trainer::CheckpointSaver> saver_;
  std::atomic<bool> never_{false};

  Stage stage_ = Stage::kOrder;
  Event event_;  // the last one
  std::optional<rendezvous::Message> order_;
  rendezvous::NewGeneration formed_;
  std::vector<int32_t> sources_;
  struct Loader {
    Result<checkpoint::Loaded> found{Error{Code::kNotFound, ""}};
    std::string note;  // what users should know about the folder
    std::atomic<bool> cancel{false};
    std::unique_ptr<trainer::BackgroundWork> work;
    ~Loader() { cancel = true; }
  };
  std::unique_ptr<Loader> loader_;  // outlives generations until one has adopted it

  bool has_state_ = false;
  int64_t step_ = 0;
  uint64_t version_ = 1;  // changes whenever the state changes
  double loss_ = 0;       // of the last step
  bool described_ = false;
  std::vector<StateArray> described_arrays_;
  std::string described_meta_;
  struct Loading {
    int64_t step = 0;
    bool finish = false;
    Json records;
  };
  std::unique_ptr<OwnedState> loading_;  // the program is adopting it
  Loading loading_info_;

  bool in_step_ = false;
  bool reduced_ = false;
  bool pause_ = false;  // the members agreed to pause after the step
  bool save_due_ = false;
  bool finished_ = false;  // stage kFinish: all steps are committed
  // The program ended the run after step_. Part of the state, so that members that get it end, too.
  bool finish_requested_ = false;
  Time attempt_began_{};
  Duration waited_{};  // for peers, in this attempt
  int computed_ = 0;   // micro-batches in this attempt
  int attempts_ = 0;   // at this step
  Time last_commit_{};
  // What the program passed to the last commit, which the members compare in the next step. Empty: none was
  // in this generation.
  std::vector<trainer::StatePart> committed_;
  int64_t compared_step_ = -1;  // of the last comparison of the whole state in this generation; -1: none
  std::string compared_state_;  // then: the text of the hashes on which the members agreed

  std::optional<std::string> diverged_;  // which states differ
  std::optional<std::string> fatal_;
  std::optional<std::string> unreachable_;
  std::optional<std::string> failure_;
  int exit_code_ = 0;
};

}  // namespace ringmaster::library
