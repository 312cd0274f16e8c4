// SPDX-License-Identifier: Apache-2.0

// Products by cuBLASLt. Its matrices are column-major, so what it is asked for is the transpose of what we
// want: C^T = op(B)^T op(A)^T, in which our rows are its columns and nothing has to be moved.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "worker/compute/cuda/epilogue.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/gemm_choices.h"
#include "worker/compute/cuda/random_matrix.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/memory.h"

namespace ringmaster::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmAlgorithm));

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr int kWarmUps = 1;
constexpr int kRepetitions = 5;

Status Told(cublasStatus_t status, std::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return Ok();
  const Code code = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
                        ? Code::kInvalid
                        : (status == CUBLAS_STATUS_ALLOC_FAILED ? Code::kExhausted : Code::kInternal);
  return Error{code, fmt::format("{}: {} (cuBLASLt {})", doing, cublasLtGetStatusString(status),
                                 cublasLtGetVersion())};
}

cudaDataType_t CudaType(DType type) { return type == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

// Rows and columns of a matrix as it lies, and elements from row to row.
struct Lying {
  int64_t rows = 0, columns = 0, ld = 0;
  int64_t Elements() const { return rows * ld; }
};
Lying LyingA(const GemmShape& s) {
  Lying a = s.a_transposed ? Lying{s.k, s.m, s.lda} : Lying{s.m, s.k, s.lda};
  if (a.ld == 0) a.ld = a.columns;
  return a;
}
Lying LyingB(const GemmShape& s) {
  Lying b = s.b_transposed ? Lying{s.n, s.k, s.ldb} : Lying{s.k, s.n, s.ldb};
  if (b.ld == 0) b.ld = b.columns;
  return b;
}
Lying LyingC(const GemmShape& s) { return {s.m, s.n, s.ldc == 0 ? s.n : s.ldc}; }

// Owners of the library's descriptors.
struct DestroyDesc {
  void operator()(cublasLtMatmulDesc_t desc) const { (void)cublasLtMatmulDescDestroy(desc); }
};
struct DestroyLayout {
  void operator()(cublasLtMatrixLayout_t layout) const { (void)cublasLtMatrixLayoutDestroy(layout); }
};
struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t p) const { (void)cublasLtMatmulPreferenceDestroy(p); }
};
struct DestroyHandle {
  void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
};
using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDesc>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;
using Handle = std::unique_ptr<cublasLtContext, DestroyHandle>;

template <class Value>
Status Set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  return Told(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "describing a product");
}
template <class Value>
Status Set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  return Told(cublasLtMatmulPreferenceSetAttribute(p, attribute, &value, sizeof(value)),
              "describing a product");
}

Result<Layout> MakeLayout(DType type, const Lying& matrix) {
  cublasLtMatrixLayout_t layout = nullptr;
  RM_TRY(Told(cublasLtMatrixLayoutCreate(&layout, CudaType(type), static_cast<uint64_t>(matrix.columns),
                                         static_cast<uint64_t>(matrix.rows), matrix.ld),
              "describing a matrix"));
  return Layout(layout);
}

// A shape as the library sees it: built once. Without `fused`, it is the plain product, and a kernel follows.
struct Known {
  bool fused = true;
  Desc desc;
  Layout first;   // our B
  Layout second;  // our A
  Layout result;
  cublasLtMatmulAlgo_t algorithm{};
};

// What a shape is measured with.
struct Trial {
  Buffer<std::byte> a, b, c, bias, aux;
};

class CublasLt final : public Gemm {
 public:
  explicit CublasLt(const Config& config, const DeviceProperties& device)
      : config_(config),
        device_(device),
        choices_(fmt::format("{}, sm_{}, {} multiprocessors, cuBLASLt {}", device.name, device.architecture,
                             device.multiprocessors, cublasLtGetVersion())),
        stored_(choices_.key()) {}

  Status Start() {
    cublasLtHandle_t handle = nullptr;
    RM_TRY(Told(cublasLtCreate(&handle), "starting cuBLASLt"));
    handle_.reset(handle);
    RM_ASSIGN(workspace_, Buffer<std::byte>::Create(kWorkspaceBytes));
    RM_ASSIGN(stream_, OwnedStream::Create());
    ReadStored();
    return Ok();
  }

  Status Prepare(const GemmShape& shape) override {
    if (known_.contains(shape)) return Ok();
    const GemmChoice* choice = stored_.Find(shape);
    if (choice != nullptr) {
      RM_ASSIGN(const bool works, Works(shape, *choice));
      if (!works) choice = nullptr;
    }
    if (choice == nullptr) {
      RM_ASSIGN(const GemmChoice chosen, Choose(shape));
      stored_.Set(shape, chosen);
      WriteStored();
      choice = stored_.Find(shape);
    }
    return Use(shape, *choice);
  }

  void Run(Stream stream, const GemmShape& shape, const GemmOperands& operands) override {
    const auto it = known_.find(shape);
    CHECK(it != known_.end(), "a product of {} x {} x {} was not prepared", shape.m, shape.n, shape.k);
    const Known& known = it->second;
    const cublasStatus_t status = Multiply(known, known.algorithm, shape, operands, stream);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    // All that can be refused was refused in Prepare. The library has a CUDA runtime of its own, so what went
    // wrong there is not this thread's last error: the device is asked, and its answer told by the next wait.
    const cudaError_t device = cudaStreamQuery(stream);
    CHECK(device != cudaSuccess && device != cudaErrorNotReady, "a product of {} x {} x {} was refused: {}",
          shape.m, shape.n, shape.k, cublasLtGetStatusString(status));
  }

  std::string Choices() const override { return choices_.Text(); }

  Status Adopt(const std::string& text) override {
    RM_ASSIGN(const GemmChoices theirs, GemmChoices::Parse(text, choices_.key()));
    for (const auto& [shape, choice] : theirs.all()) {
      RM_ASSIGN(const bool works, Works(shape, choice));
      if (!works)
        return Error{Code::kInvalid,
                     fmt::format("the algorithm for products of {} x {} x {} that the job uses "
                                 "does not run here, on {}",
                                 shape.m, shape.n, shape.k, choices_.key())};
      stored_.Set(shape, choice);
      const GemmChoice* const ours = choices_.Find(shape);
      if (ours == nullptr || (ours->algorithm == choice.algorithm && ours->fused == choice.fused)) continue;
      RM_TRY(Use(shape, choice));
      ++version_;
    }
    WriteStored();
    return Ok();
  }

  uint64_t Fingerprint() const override { return choices_.Fingerprint(); }
  uint64_t Version() const override { return version_; }
  double Milliseconds(const GemmShape& shape) const override { return choices_.Find(shape)->milliseconds; }
  int64_t WorkspaceBytes() const override { return workspace_.bytes(); }

 private:
  Status Use(const GemmShape& shape, const GemmChoice& choice) {
    RM_ASSIGN(Known known, Describe(shape, choice.fused));
    std::memcpy(&known.algorithm, choice.algorithm.data(), sizeof(known.algorithm));
    choices_.Set(shape, choice);
    known_.insert_or_assign(shape, std::move(known));
    return Ok();
  }

  Result<Known> Describe(const GemmShape& whole, bool fused) const {
    const GemmShape shape = fused ? whole : PlainOf(whole);
    Known known;
    known.fused = fused;
    cublasLtMatmulDesc_t desc = nullptr;
    RM_TRY(Told(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product"));
    known.desc.reset(desc);
    const cublasOperation_t first = shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_TRANSA, first));
    RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_TRANSB, second));
    if (shape.epilogue != Epilogue::kNone) {
      RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, LibraryEpilogue(shape.epilogue)));
      // Until there are operands: something that is aligned as they are.
      GemmOperands aligned;
      aligned.bias = aligned.aux = workspace_.get();
      RM_TRY(Told(SetOperands(desc, shape, aligned), "describing a product"));
      if (HasKernel(shape.epilogue)) RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n));
    }
    RM_ASSIGN(known.first, MakeLayout(shape.in, LyingB(shape)));
    RM_ASSIGN(known.second, MakeLayout(shape.in, LyingA(shape)));
    RM_ASSIGN(known.result, MakeLayout(shape.out, LyingC(shape)));
    return known;
  }

  static cublasLtEpilogue_t LibraryEpilogue(Epilogue epilogue) {
    switch (epilogue) {
      case Epilogue::kNone:
        return CUBLASLT_EPILOGUE_DEFAULT;
      case Epilogue::kBias:
        return CUBLASLT_EPILOGUE_BIAS;
      case Epilogue::kBiasGelu:
        return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
      case Epilogue::kGeluGradient:
        return CUBLASLT_EPILOGUE_DGELU;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
  }

  // What of an epilogue's operands the description holds.
  static cublasStatus_t SetOperands(cublasLtMatmulDesc_t desc, const GemmShape& shape,
                                    const GemmOperands& operands) {
    if (shape.epilogue == Epilogue::kBias || shape.epilogue == Epilogue::kBiasGelu) {
      const cublasStatus_t status = cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                                   &operands.bias, sizeof(operands.bias));
      if (status != CUBLAS_STATUS_SUCCESS) return status;
    }
    if (!HasKernel(shape.epilogue)) return CUBLAS_STATUS_SUCCESS;
    return cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operands.aux,
                                          sizeof(operands.aux));
  }

  Result<bool> Works(const GemmShape& shape, const GemmChoice& choice) const {
    RM_ASSIGN(const Known known, Describe(shape, choice.fused));
    cublasLtMatmulAlgo_t algorithm;
    std::memcpy(&algorithm, choice.algorithm.data(), sizeof(algorithm));
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_.get(), known.desc.get(), known.first.get(), known.second.get(),
                                   known.result.get(), known.result.get(), &algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           static_cast<int64_t>(result.workspaceSize) <= kWorkspaceBytes;
  }

  cublasStatus_t Multiply(const Known& known, const cublasLtMatmulAlgo_t& algorithm, const GemmShape& shape,
                          const GemmOperands& whole, Stream stream) {
    const float one = 1;
    const float beta = shape.accumulate ? 1 : 0;
    const GemmOperands operands = known.fused ? whole : PlainOf(shape, whole);
    cublasStatus_t status =
        known.fused ? SetOperands(known.desc.get(), shape, operands) : CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = cublasLtMatmul(handle_.get(), known.desc.get(), &one, operands.b, known.first.get(), operands.a,
                            known.second.get(), &beta, operands.c, known.result.get(), operands.c,
                            known.result.get(), &algorithm, workspace_.get(),
                            static_cast<size_t>(kWorkspaceBytes), stream);
    if (status == CUBLAS_STATUS_SUCCESS && !known.fused) RunEpilogue(stream, shape, whole);
    return status;
  }

  Result<std::vector<cublasLtMatmulHeuristicResult_t>> Candidates(const Known& known,
                                                                  const GemmShape& shape) {
    cublasLtMatmulPreference_t made = nullptr;
    RM_TRY(Told(cublasLtMatmulPreferenceCreate(&made), "describing a product"));
    const Preference preference(made);
    RM_TRY(Set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes)));
    // Parts of a sum that are added in the order in which they get done would differ from run to run.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    RM_TRY(Set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    std::vector<cublasLtMatmulHeuristicResult_t> results(
        static_cast<size_t>(std::max(1, config_.candidates)));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), known.desc.get(), known.first.get(), known.second.get(), known.result.get(),
        known.result.get(), made, static_cast<int>(results.size()), results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      found = 0;  // of this shape, or with this epilogue
    else
      RM_TRY(Told(status, fmt::format("looking for an algorithm for products of {} x {} x {}", shape.m,
                                      shape.n, shape.k)));
    results.resize(static_cast<size_t>(found));
    std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    return results;
  }

  // The quickest of all candidates, those with the library's epilogue and those with a kernel behind them.
  Result<GemmChoice> Choose(const GemmShape& shape) {
    std::optional<GemmChoice> best;
    std::optional<Trial> trial;
    for (const bool fused : {true, false}) {
      // The library wants rows of aux to be a multiple of 8.
      if (fused ? HasKernel(shape.epilogue) && shape.n % 8 != 0 : !HasKernel(shape.epilogue)) continue;
      RM_ASSIGN(const Known known, Describe(shape, fused));
      RM_ASSIGN(const auto candidates, Candidates(known, shape));
      for (const auto& candidate : candidates) {
        GemmChoice choice{.fused = fused};
        std::memcpy(choice.algorithm.data(), &candidate.algo, sizeof(candidate.algo));
        if (config_.candidates <= 1) return choice;
        if (!trial) {
          RM_ASSIGN(trial, MakeTrial(shape));
        }
        RM_ASSIGN(const std::optional<double> milliseconds, Measure(known, candidate.algo, shape, *trial));
        if (!milliseconds || (best && *milliseconds >= best->milliseconds)) continue;
        choice.milliseconds = *milliseconds;
        best = choice;
      }
    }
    if (best) return *best;
    RM_TRY(Synchronize(stream_.get()));  // if the device is lost, that is why
    return Error{Code::kInvalid,
                 fmt::format("cuBLASLt {} has no algorithm that runs products of {} x {} x {} on {}",
                             cublasLtGetVersion(), shape.m, shape.n, shape.k, device_.name)};
  }

  Result<Trial> MakeTrial(const GemmShape& shape) {
    Trial trial;
    RM_ASSIGN(trial.a, RandomMatrix(stream_.get(), shape.in, LyingA(shape).Elements(), 1));
    RM_ASSIGN(trial.b, RandomMatrix(stream_.get(), shape.in, LyingB(shape).Elements(), 2));
    RM_ASSIGN(trial.c, RandomMatrix(stream_.get(), shape.out, LyingC(shape).Elements(), 3));
    RM_ASSIGN(trial.bias, RandomMatrix(stream_.get(), shape.out, shape.n, 4));
    if (HasKernel(shape.epilogue)) {
      RM_ASSIGN(trial.aux, RandomMatrix(stream_.get(), shape.out, shape.m * shape.n, 5));
    }
    return trial;
  }

  // The quickest of some runs in milliseconds; nothing when the candidate does not run.
  Result<std::optional<double>> Measure(const Known& known, const cublasLtMatmulAlgo_t& algorithm,
                                        const GemmShape& shape, const Trial& trial) {
    const GemmOperands operands{trial.a.get(), trial.b.get(), trial.c.get(), trial.bias.get(),
                                trial.aux.get()};
    RM_ASSIGN(Event begin, Event::Create());
    RM_ASSIGN(Event end, Event::Create());
    double best = 0;
    for (int i = 0; i < kWarmUps + kRepetitions; ++i) {
      begin.Record(stream_.get());
      if (Multiply(known, algorithm, shape, operands, stream_.get()) != CUBLAS_STATUS_SUCCESS)
        return std::optional<double>();
      end.Record(stream_.get());
      RM_TRY(end.Synchronize());
      RM_ASSIGN(const double milliseconds, Event::Elapsed_ms(begin, end));
      if (i == kWarmUps || (i > kWarmUps && milliseconds < best)) best = milliseconds;
    }
    return std::optional<double>(best);
  }

  std::filesystem::path StoredPath() const {
    const std::string key = fmt::format("{}, driver {}", choices_.key(), device_.driver);
    return std::filesystem::path(config_.cache_folder) /
           fmt::format("products-{:016x}.txt", XXH3_64bits(key.data(), key.size()));
  }

  // A file that is missing, damaged or of another key is no file: shapes are then measured again.
  void ReadStored() {
    if (config_.cache_folder.empty()) return;
    std::ifstream file(StoredPath());
    std::ostringstream text;
    text << file.rdbuf();
    if (auto read = GemmChoices::Parse(text.str(), choices_.key()); read.ok()) stored_ = std::move(*read);
  }

  // Whole or not at all; what cannot be stored is measured again next time.
  void WriteStored() const {
    if (config_.cache_folder.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(config_.cache_folder, error);
    std::filesystem::path temporary = StoredPath();
    temporary += fmt::format(".{}", getpid());
    if (std::ofstream(temporary) << stored_.Text())
      std::filesystem::rename(temporary, StoredPath(), error);
    else
      std::filesystem::remove(temporary, error);
  }

  Config config_;
  DeviceProperties device_;
  Handle handle_;
  Buffer<std::byte> workspace_;
  OwnedStream stream_;   // for measuring
  GemmChoices choices_;  // of the shapes made known
  GemmChoices stored_;   // those and what earlier runs have chosen
  std::map<GemmShape, Known> known_;
  uint64_t version_ = 0;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(const Config& config) {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess)
    return Error{Code::kUnavailable, "products need a GPU, and this thread has none"};
  RM_ASSIGN(const DeviceProperties device, BindDevice(index));
  auto gemm = std::make_unique<CublasLt>(config, device);
  RM_TRY(gemm->Start());
  return std::unique_ptr<Gemm>(std::move(gemm));
}

}  // namespace ringmaster::cuda
