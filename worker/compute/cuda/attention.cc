// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "worker/compute/cuda/attention_trial.h"
#include "worker/compute/cuda/choice_table.h"
#include "worker/compute/cuda/kernels/attention.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/graph.h"
#include "worker/compute/cuda/runtime/memory.h"

namespace ringmaster::cuda {
namespace {

constexpr int kWarmUps = 1;
constexpr int kRepetitions = 5;
// Two backends round differently, by less than 0.02 of the result. A wrong mask, scale or order of operands
// gives an error of 0.1 or more.
constexpr double kMaxRelativeError = 0.05;
constexpr AttentionPass kPasses[] = {AttentionPass::kForward, AttentionPass::kBackward};

kernels::AttentionShape ShapeOf(const AttentionProblem& p) {
  return {.samples = p.samples, .heads = p.heads, .context = p.context, .head_size = p.head_size};
}

std::string Describe(const AttentionProblem& p) {
  return fmt::format("attention of {} x {} heads of {}, context {}, in {}", p.samples, p.heads, p.head_size,
                     p.context, p.type == DType::kBf16 ? "bf16" : "fp32");
}

template <class T>
void RunNative(Stream stream, const AttentionProblem& problem, AttentionPass pass,
               const AttentionOperands& of, float* scratch) {
  const kernels::AttentionShape shape = ShapeOf(problem);
  if (pass == AttentionPass::kForward)
    kernels::AttentionForward<T>(stream, shape, static_cast<const T*>(of.qkv), static_cast<T*>(of.out),
                                 of.lse);
  else
    kernels::AttentionBackward<T>(stream, shape, static_cast<const T*>(of.qkv), static_cast<const T*>(of.out),
                                  static_cast<const T*>(of.d_out), of.lse, static_cast<T*>(of.d_qkv),
                                  scratch);
}

void RunNative(Stream stream, const AttentionProblem& problem, AttentionPass pass,
               const AttentionOperands& of, float* scratch) {
  if (problem.type == DType::kBf16)
    RunNative<Bf16>(stream, problem, pass, of, scratch);
  else
    RunNative<float>(stream, problem, pass, of, scratch);
}

class MeasuredAttention final : public Attention {
 public:
  MeasuredAttention(const Config& config, const DeviceProperties& device)
      : config_(config),
        device_(device),
        choices_(fmt::format("{}, sm_{}, {} multiprocessors", device.name, device.architecture,
                             device.multiprocessors)),
        stored_(choices_.key()) {}

  Status Start() {
    RM_ASSIGN(stream_, OwnedStream::Create());
    return Ok();
  }

  Status Prepare(const AttentionProblem& problem) override {
    if (choices_.Find(problem) != nullptr) return Ok();
    LoadLibraryOnce();
    const AttentionChoice* const stored = stored_.Find(problem);
    if (stored != nullptr && Works(problem, *stored).ok()) return Use(problem, *stored);
    RM_ASSIGN(const Selection selection, Choose(problem));
    if (selection.durable) {
      stored_.Set(problem, selection.choice);
      WriteStored();
    }
    return Use(problem, selection.choice);
  }

  void Forward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands) override {
    Run(stream, problem, AttentionPass::kForward, operands, nullptr);
  }
  void Backward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands,
                float* scratch) override {
    Run(stream, problem, AttentionPass::kBackward, operands, scratch);
  }
  Status TakeError() override { return std::exchange(error_, Ok()); }

  std::string Choices() const override { return choices_.Text(); }

  Status Adopt(const std::string& text) override {
    RM_ASSIGN(const AttentionChoices theirs, AttentionChoices::Parse(text, choices_.key()));
    if (!theirs.all().empty()) LoadLibraryOnce();
    for (const auto& [problem, choice] : theirs.all()) RM_TRY(Works(problem, choice));
    for (const auto& [problem, choice] : theirs.all()) {
      stored_.Set(problem, choice);
      const AttentionChoice* const ours = choices_.Find(problem);
      if (ours == nullptr || *ours == choice) continue;
      RM_TRY(Use(problem, choice));
      ++version_;
    }
    WriteStored();
    return Ok();
  }

  uint64_t Fingerprint() const override { return choices_.Fingerprint(); }
  uint64_t Version() const override { return version_; }
  int64_t WorkspaceBytes() const override { return workspace_.bytes(); }
  AttentionBackend Backend(const AttentionProblem& problem, AttentionPass pass) const override {
    return ChoiceOf(problem).Of(pass);
  }

  Status RunWith(bool library, Stream stream, const AttentionProblem& problem, AttentionPass pass,
                 const AttentionOperands& operands, float* scratch) override {
    if (!library) {
      RunNative(stream, problem, pass, operands, scratch);
      return Ok();
    }
    RM_ASSIGN(const AttentionLibrary::Plan plan, PlanOf(problem, pass));
    RM_TRY(GrowWorkspace(plan.workspace_bytes));
    return library_->Run(stream, problem, pass, operands, workspace_.get());
  }

 private:
  // Loads the library with the first problem, because it takes memory and not every model has attention.
  void LoadLibraryOnce() {
    if (std::exchange(loaded_, true)) return;
    auto library = LoadAttentionLibrary();
    if (library.ok()) {
      library_ = std::move(*library);
      ReadStored();
    } else {
      unavailable_ = library.error().message;
      log::Info("attention uses the native kernels: {}", unavailable_);
    }
  }

  const AttentionChoice& ChoiceOf(const AttentionProblem& problem) const {
    const AttentionChoice* const choice = choices_.Find(problem);
    CHECK(choice != nullptr, "{} was not prepared", Describe(problem));
    return *choice;
  }

  void Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
           const AttentionOperands& operands, float* scratch) {
    if (ChoiceOf(problem).Of(pass).native()) return RunNative(stream, problem, pass, operands, scratch);
    const Status done = library_->Run(stream, problem, pass, operands, workspace_.get());
    if (!done.ok() && error_.ok()) error_ = done.error().In(Describe(problem));
  }

  Result<AttentionLibrary::Plan> PlanOf(const AttentionProblem& problem, AttentionPass pass) {
    LoadLibraryOnce();
    if (library_ == nullptr) return Error{Code::kUnavailable, unavailable_};
    const auto known = plans_.find({problem, pass});
    if (known != plans_.end()) return known->second;
    RM_ASSIGN(AttentionLibrary::Plan plan, library_->Prepare(problem, pass));
    return plans_.emplace(std::pair(problem, pass), std::move(plan)).first->second;
  }

  // Checks whether this process can run `choice`. Errors: kInvalid with what is missing.
  Status Works(const AttentionProblem& problem, const AttentionChoice& choice) {
    for (const AttentionPass pass : kPasses) {
      const AttentionBackend& backend = choice.Of(pass);
      if (backend.native()) continue;
      if (library_ == nullptr)
        return Error{Code::kInvalid, fmt::format("the job's attention uses {}, which is not available here: "
                                                 "{}; use one image for all workers",
                                                 backend.library, unavailable_)};
      if (library_->Name() != backend.library)
        return Error{Code::kInvalid,
                     fmt::format("the job's attention uses {}, this machine has {}: use one image for "
                                 "all workers",
                                 backend.library, library_->Name())};
      const auto plan = PlanOf(problem, pass);
      if (!plan.ok()) return Error{Code::kInvalid, plan.error().message}.In(Describe(problem));
      if (plan->name != backend.plan)
        return Error{Code::kInvalid, fmt::format("{} uses plan {} of {} in the job, and plan {} here, on {}",
                                                 Describe(problem), backend.plan, backend.library, plan->name,
                                                 choices_.key())};
    }
    return Ok();
  }

  Status Use(const AttentionProblem& problem, const AttentionChoice& choice) {
    for (const AttentionPass pass : kPasses) {
      if (choice.Of(pass).native()) continue;
      RM_ASSIGN(const AttentionLibrary::Plan plan, PlanOf(problem, pass));
      RM_TRY(GrowWorkspace(plan.workspace_bytes));
    }
    choices_.Set(problem, choice);
    return Ok();
  }

  // All problems share one workspace, because their work runs in the order of one stream.
  Status GrowWorkspace(int64_t bytes) {
    if (bytes <= workspace_.bytes()) return Ok();
    // Keep the old workspace until the new one exists: if the allocation fails, the old one stays in use.
    RM_ASSIGN(auto larger, Buffer<std::byte>::Create(bytes));
    if (workspace_.bytes() > 0) ++version_;  // recorded graphs hold its address
    workspace_ = std::move(larger);
    return Ok();
  }

  struct Selection {
    AttentionChoice choice;
    bool durable = true;  // the same choice is expected the next time
  };

  // A library that fails here does not fail the job, unless the device is lost.
  Result<Selection> Choose(const AttentionProblem& problem) {
    Selection selection;
    if (library_ == nullptr) return selection;
    std::optional<AttentionTrial> trial;
    for (const AttentionPass pass : kPasses) {
      const std::string words = Describe(problem) + (pass == AttentionPass::kForward ? "" : ", backward");
      const auto compared = Compare(problem, pass, trial);
      if (!compared.ok()) {
        RM_TRY(Synchronize(stream_.get()));  // reports a lost device as the cause
        log::Info("{} uses the native kernels: {}", words, compared.error().message);
        // Other processes may hold the memory at the moment.
        if (compared.error().code == Code::kExhausted) selection.durable = false;
        continue;
      }
      AttentionBackend& backend = selection.choice.Of(pass);
      if (!config_.measure) {
        backend = {.library = library_->Name(), .plan = PlanOf(problem, pass)->name};
        log::Info("{} uses {}", words, backend.library);
        continue;
      }
      const auto [theirs, ours] = *compared;
      if (theirs < ours) backend = {.library = library_->Name(), .plan = PlanOf(problem, pass)->name};
      log::Info("{} uses {}: {:.4f} ms with {}, {:.4f} ms with the native kernels", words, backend.library,
                theirs, library_->Name(), ours);
    }
    return selection;
  }

  // Returns the milliseconds of the library and of the native kernels; zeros without config_.measure. Errors:
  // kInvalid when their results differ, or when the library's bits differ between runs, recorded in a graph
  // or not.
  Result<std::pair<double, double>> Compare(const AttentionProblem& problem, AttentionPass pass,
                                            std::optional<AttentionTrial>& trial) {
    RM_ASSIGN(const AttentionLibrary::Plan plan, PlanOf(problem, pass));
    if (!trial) {
      RM_ASSIGN(trial, AttentionTrial::Create(stream_.get(), problem, Scratch(problem)));
    }
    if (plan.workspace_bytes > trial->workspace.bytes()) {
      trial->workspace = Buffer<std::byte>();
      RM_ASSIGN(trial->workspace, Buffer<std::byte>::Create(plan.workspace_bytes));
    }
    const auto run_native = [&](AttentionPass which) {
      RunNative(stream_.get(), problem, which, trial->operands(), trial->scratch.get());
    };
    const auto run_theirs = [&] {
      return library_->Run(stream_.get(), problem, pass, trial->operands(), trial->workspace.get());
    };
    run_native(AttentionPass::kForward);  // backward reads its results
    double theirs = 0;
    double ours = 0;
    if (config_.measure) {
      RM_ASSIGN(ours, Measure([&] {
                  run_native(pass);
                  return Ok();
                }));
    } else {
      run_native(pass);
    }
    RM_ASSIGN(const auto wanted, ReadResults(stream_.get(), problem, pass, *trial));
    trial->ClearOutputs(stream_.get(), pass);  // so that outputs the library fails to write do not match
    RM_TRY(run_theirs());
    RM_ASSIGN(const auto first, ReadResults(stream_.get(), problem, pass, *trial));
    if (const double off = MaxRelativeError(first, wanted); !(off < kMaxRelativeError))
      return Error{Code::kInvalid,
                   fmt::format("{} has wrong results: relative error {:.3f}", library_->Name(), off)};
    if (config_.measure) {
      RM_ASSIGN(theirs, Measure(run_theirs));
    }
    Status recorded;
    const auto graph = Graph::Record(stream_.get(), [&] { recorded = run_theirs(); });
    RM_TRY(recorded);
    if (!graph.ok()) return graph.error();
    graph->Launch(stream_.get());
    RM_ASSIGN(const auto again, ReadResults(stream_.get(), problem, pass, *trial));
    if (again != first)
      return Error{Code::kInvalid, fmt::format("{} is not deterministic", library_->Name())};
    return std::pair(theirs, ours);
  }

  // Returns the shortest duration of several runs in milliseconds.
  template <class Enqueue>
  Result<double> Measure(const Enqueue& enqueue) {
    RM_ASSIGN(Event begin, Event::Create());
    RM_ASSIGN(Event end, Event::Create());
    double best = 0;
    for (int i = 0; i < kWarmUps + kRepetitions; ++i) {
      begin.Record(stream_.get());
      RM_TRY(enqueue());
      end.Record(stream_.get());
      RM_TRY(end.Synchronize());
      RM_ASSIGN(const double milliseconds, Event::Elapsed_ms(begin, end));
      if (i == kWarmUps || (i > kWarmUps && milliseconds < best)) best = milliseconds;
    }
    return best;
  }

  // Without a library every choice is the native kernels, so there is nothing to store.
  bool Stores() const { return !config_.cache_folder.empty() && library_ != nullptr; }
  std::string StoredPath() const {
    const std::string key =
        fmt::format("{}, driver {}, {}", choices_.key(), device_.driver, library_->Name());
    return ChoicePath(config_.cache_folder, "attention", key);
  }

  // Ignores a file that is missing, damaged or has another key: its problems are then measured again.
  void ReadStored() {
    if (!Stores()) return;
    if (auto read = AttentionChoices::Parse(ReadStoredChoices(StoredPath()), choices_.key()); read.ok())
      stored_ = std::move(*read);
  }

  void WriteStored() const {
    if (Stores()) StoreChoices(StoredPath(), stored_.Text());
  }

  Config config_;
  DeviceProperties device_;
  bool loaded_ = false;
  OwnedStream stream_;                         // for measurements; outlives the library, which may hold it
  std::unique_ptr<AttentionLibrary> library_;  // null: not available
  std::string unavailable_;
  AttentionChoices choices_;  // of the prepared problems
  AttentionChoices stored_;   // these and the choices of earlier runs
  std::map<std::pair<AttentionProblem, AttentionPass>, AttentionLibrary::Plan> plans_;
  Buffer<std::byte> workspace_;
  uint64_t version_ = 0;
  Status error_;
};

}  // namespace

int64_t Attention::Scratch(const AttentionProblem& problem) {
  return kernels::AttentionBackwardScratch(ShapeOf(problem));
}

Result<std::unique_ptr<Attention>> Attention::Create(const Config& config, const DeviceProperties& device) {
  auto attention = std::make_unique<MeasuredAttention>(config, device);
  RM_TRY(attention->Start());
  return std::unique_ptr<Attention>(std::move(attention));
}

}  // namespace ringmaster::cuda
