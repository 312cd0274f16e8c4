// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "worker/compute/cuda/attention_trial.h"
#include "worker/compute/cuda/kernels/attention.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/graph.h"
#include "worker/compute/cuda/runtime/memory.h"

namespace ringmaster::cuda {
namespace {

constexpr int kWarmUps = 1;
constexpr int kRepetitions = 5;
// Two makers round differently, by less than 0.02 of what they compute; another mask, scale or order of
// operands is 0.1 and more off.
constexpr double kMaxRelativeError = 0.05;
constexpr AttentionPass kPasses[] = {AttentionPass::kForward, AttentionPass::kBackward};

kernels::AttentionShape ShapeOf(const AttentionProblem& p) {
  return {.samples = p.samples, .heads = p.heads, .context = p.context, .head_size = p.head_size};
}

std::string WordsOf(const AttentionProblem& p) {
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

class ChosenAttention final : public Attention {
 public:
  ChosenAttention(const Config& config, const DeviceProperties& device)
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
    LoadOnce();
    const AttentionChoice* const stored = stored_.Find(problem);
    if (stored != nullptr && Works(problem, *stored).ok()) return Use(problem, *stored);
    RM_ASSIGN(const Chosen chosen, Choose(problem));
    if (chosen.lasting) {
      stored_.Set(problem, chosen.choice);
      WriteStored();
    }
    return Use(problem, chosen.choice);
  }

  void Forward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands) override {
    Run(stream, problem, AttentionPass::kForward, operands, nullptr);
  }
  void Backward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands,
                float* scratch) override {
    Run(stream, problem, AttentionPass::kBackward, operands, scratch);
  }
  Status TakeError() override { return std::exchange(given_, Ok()); }

  std::string Choices() const override { return choices_.Text(); }

  Status Adopt(const std::string& text) override {
    RM_ASSIGN(const AttentionChoices theirs, AttentionChoices::Parse(text, choices_.key()));
    if (!theirs.all().empty()) LoadOnce();
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
    RM_TRY(Enlarge(plan.workspace_bytes));
    return library_->Run(stream, problem, pass, operands, workspace_.get());
  }

 private:
  // Once somebody has a problem, which models without attention have not: a library takes memory.
  void LoadOnce() {
    if (std::exchange(loaded_, true)) return;
    auto library = LoadAttentionLibrary();
    if (library.ok()) {
      library_ = std::move(*library);
      ReadStored();
    } else {
      why_none_ = library.error().message;
      log::Info("attention is by our own kernels: {}", why_none_);
    }
  }

  const AttentionChoice& ChoiceOf(const AttentionProblem& problem) const {
    const AttentionChoice* const choice = choices_.Find(problem);
    CHECK(choice != nullptr, "{} was not prepared", WordsOf(problem));
    return *choice;
  }

  void Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
           const AttentionOperands& operands, float* scratch) {
    if (ChoiceOf(problem).Of(pass).native()) return RunNative(stream, problem, pass, operands, scratch);
    const Status done = library_->Run(stream, problem, pass, operands, workspace_.get());
    if (!done.ok() && given_.ok()) given_ = done.error().In(WordsOf(problem));
  }

  Result<AttentionLibrary::Plan> PlanOf(const AttentionProblem& problem, AttentionPass pass) {
    LoadOnce();
    if (library_ == nullptr) return Error{Code::kUnavailable, why_none_};
    const auto known = plans_.find({problem, pass});
    if (known != plans_.end()) return known->second;
    RM_ASSIGN(AttentionLibrary::Plan plan, library_->Prepare(problem, pass));
    return plans_.emplace(std::pair(problem, pass), std::move(plan)).first->second;
  }

  // Whether this process does as the choice says; kInvalid tells what is missing.
  Status Works(const AttentionProblem& problem, const AttentionChoice& choice) {
    for (const AttentionPass pass : kPasses) {
      const AttentionBackend& backend = choice.Of(pass);
      if (backend.native()) continue;
      if (library_ == nullptr)
        return Error{Code::kInvalid, fmt::format("the job's attention is by {}, which is not to be had here: "
                                                 "{}; use one image for all workers",
                                                 backend.library, why_none_)};
      if (library_->Name() != backend.library)
        return Error{Code::kInvalid,
                     fmt::format("the job's attention is by {}, here is {}: use one image for "
                                 "all workers",
                                 backend.library, library_->Name())};
      const auto plan = PlanOf(problem, pass);
      if (!plan.ok()) return Error{Code::kInvalid, plan.error().message}.In(WordsOf(problem));
      if (plan->name != backend.plan)
        return Error{
            Code::kInvalid,
            fmt::format("{} is done by plan {} of {} in the job, and by {} here, on {}", WordsOf(problem),
                        backend.plan, backend.library, plan->name, choices_.key())};
    }
    return Ok();
  }

  Status Use(const AttentionProblem& problem, const AttentionChoice& choice) {
    for (const AttentionPass pass : kPasses) {
      if (choice.Of(pass).native()) continue;
      RM_ASSIGN(const AttentionLibrary::Plan plan, PlanOf(problem, pass));
      RM_TRY(Enlarge(plan.workspace_bytes));
    }
    choices_.Set(problem, choice);
    return Ok();
  }

  // All problems share one workspace: what is enqueued runs in the order of one stream.
  Status Enlarge(int64_t bytes) {
    if (bytes <= workspace_.bytes()) return Ok();
    // The one that goes is still there when there is no memory for another: it is still used then.
    RM_ASSIGN(auto larger, Buffer<std::byte>::Create(bytes));
    if (workspace_.bytes() > 0) ++version_;  // recorded work knows it
    workspace_ = std::move(larger);
    return Ok();
  }

  struct Chosen {
    AttentionChoice choice;
    bool lasting = true;  // would be chosen again
  };

  // Nothing that a library does wrong here fails the job, unless it takes the device with it.
  Result<Chosen> Choose(const AttentionProblem& problem) {
    Chosen chosen;
    if (library_ == nullptr) return chosen;
    std::optional<AttentionTrial> trial;
    for (const AttentionPass pass : kPasses) {
      const std::string words = WordsOf(problem) + (pass == AttentionPass::kForward ? "" : ", backward");
      const auto compared = Compare(problem, pass, trial);
      if (!compared.ok()) {
        RM_TRY(Synchronize(stream_.get()));  // if the device is lost, that is why
        log::Info("{} is by our own kernels: {}", words, compared.error().message);
        // Memory that somebody else has at the moment.
        if (compared.error().code == Code::kExhausted) chosen.lasting = false;
        continue;
      }
      const auto [theirs, ours] = *compared;
      AttentionBackend& backend = chosen.choice.Of(pass);
      if (theirs < ours) backend = {.library = library_->Name(), .plan = PlanOf(problem, pass)->name};
      log::Info("{} is by {}: {:.4f} ms by {}, {:.4f} ms by our own kernels", words, backend.library, theirs,
                library_->Name(), ours);
    }
    return chosen;
  }

  // Milliseconds of the library and of our kernels, once it is seen that both compute the same and the
  // library has the same bits every time, recorded or not.
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
    const auto run_own = [&](AttentionPass which) {
      RunNative(stream_.get(), problem, which, trial->operands(), trial->scratch.get());
    };
    const auto run_theirs = [&] {
      return library_->Run(stream_.get(), problem, pass, trial->operands(), trial->workspace.get());
    };
    run_own(AttentionPass::kForward);  // what backward reads
    RM_ASSIGN(const double ours, Measure([&] {
                run_own(pass);
                return Ok();
              }));
    RM_ASSIGN(const auto wanted, ReadResults(stream_.get(), problem, pass, *trial));
    trial->Forget(stream_.get(), pass);  // what the library does not write is not ours by chance
    RM_TRY(run_theirs());
    RM_ASSIGN(const auto first, ReadResults(stream_.get(), problem, pass, *trial));
    if (const double off = MaxRelativeError(first, wanted); !(off < kMaxRelativeError))
      return Error{Code::kInvalid,
                   fmt::format("{} computes something else: {:.3f} off", library_->Name(), off)};
    RM_ASSIGN(const double theirs, Measure(run_theirs));
    Status recorded;
    const auto graph = Graph::Record(stream_.get(), [&] { recorded = run_theirs(); });
    RM_TRY(recorded);
    if (!graph.ok()) return graph.error();
    graph->Launch(stream_.get());
    RM_ASSIGN(const auto again, ReadResults(stream_.get(), problem, pass, *trial));
    if (again != first)
      return Error{Code::kInvalid, fmt::format("{} has other bits every time", library_->Name())};
    return std::pair(theirs, ours);
  }

  // The quickest of some runs in milliseconds.
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

  // Of a library: where there is none, nothing is measured that would be worth keeping.
  bool Stores() const { return !config_.cache_folder.empty() && library_ != nullptr; }
  std::string StoredPath() const {
    const std::string key =
        fmt::format("{}, driver {}, {}", choices_.key(), device_.driver, library_->Name());
    return fmt::format("{}/attention-{:016x}.txt", config_.cache_folder, XXH3_64bits(key.data(), key.size()));
  }

  // A file that is missing, damaged or of another key is no file: problems are then measured again.
  void ReadStored() {
    if (!Stores()) return;
    const auto text = ReadFile(StoredPath(), 1 << 20);
    if (!text.ok()) return;
    if (auto read = AttentionChoices::Parse(*text, choices_.key()); read.ok()) stored_ = std::move(*read);
  }

  // What cannot be stored is measured again next time.
  void WriteStored() const {
    if (Stores() && MakeFolder(config_.cache_folder).ok())
      (void)WriteFileAtomic(StoredPath(), stored_.Text());
  }

  Config config_;
  DeviceProperties device_;
  bool loaded_ = false;
  OwnedStream stream_;                         // for measuring; it outlives the library, which may know it
  std::unique_ptr<AttentionLibrary> library_;  // null: there is none
  std::string why_none_;
  AttentionChoices choices_;  // of the problems made known
  AttentionChoices stored_;   // those and what earlier runs have chosen
  std::map<std::pair<AttentionProblem, AttentionPass>, AttentionLibrary::Plan> plans_;
  Buffer<std::byte> workspace_;
  uint64_t version_ = 0;
  Status given_;
};

}  // namespace

int64_t Attention::Scratch(const AttentionProblem& problem) {
  return kernels::AttentionBackwardScratch(ShapeOf(problem));
}

Result<std::unique_ptr<Attention>> Attention::Create(const Config& config, const DeviceProperties& device) {
  auto attention = std::make_unique<ChosenAttention>(config, device);
  RM_TRY(attention->Start());
  return std::unique_ptr<Attention>(std::move(attention));
}

}  // namespace ringmaster::cuda
