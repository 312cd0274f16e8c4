// SPDX-License-Identifier: Apache-2.0

// GEMM by cuBLASLt, whose matrices are column-major. It therefore computes the transpose of the row-major
// product, C^T = op(B)^T op(A)^T: a row-major matrix in memory is the column-major transpose of itself.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "worker/compute/cuda/choice_table.h"
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
constexpr int kCandidates = 16;
constexpr int kWarmUps = 1;
constexpr int kRepetitions = 5;

Status Check(cublasStatus_t status, std::string_view action) {
  if (status == CUBLAS_STATUS_SUCCESS) return Ok();
  const Code code = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
                        ? Code::kInvalid
                        : (status == CUBLAS_STATUS_ALLOC_FAILED ? Code::kExhausted : Code::kInternal);
  return Error{code, fmt::format("{}: {} (cuBLASLt {})", action, cublasLtGetStatusString(status),
                                 cublasLtGetVersion())};
}

cudaDataType_t CudaType(DType type) { return type == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

// A row-major matrix in memory: its shape (rows, columns) and its row stride.
struct StoredMatrix {
  int64_t rows = 0, columns = 0, ld = 0;
  int64_t Elements() const { return rows * ld; }
};
StoredMatrix StoredMatrixA(const GemmShape& s) {
  StoredMatrix a = s.a_transposed ? StoredMatrix{s.k, s.m, s.lda} : StoredMatrix{s.m, s.k, s.lda};
  if (a.ld == 0) a.ld = a.columns;
  return a;
}
StoredMatrix StoredMatrixB(const GemmShape& s) {
  StoredMatrix b = s.b_transposed ? StoredMatrix{s.n, s.k, s.ldb} : StoredMatrix{s.k, s.n, s.ldb};
  if (b.ld == 0) b.ld = b.columns;
  return b;
}
StoredMatrix StoredMatrixC(const GemmShape& s) { return {s.m, s.n, s.ldc == 0 ? s.n : s.ldc}; }

// Owners of the library's descriptors: unique_ptr with these deleters.
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
  return Check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "describing a GEMM");
}
template <class Value>
Status Set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  return Check(cublasLtMatmulPreferenceSetAttribute(p, attribute, &value, sizeof(value)),
               "describing a GEMM");
}

Result<Layout> MakeLayout(DType type, const StoredMatrix& matrix) {
  cublasLtMatrixLayout_t layout = nullptr;
  RM_TRY(Check(cublasLtMatrixLayoutCreate(&layout, CudaType(type), static_cast<uint64_t>(matrix.columns),
                                          static_cast<uint64_t>(matrix.rows), matrix.ld),
               "describing a matrix"));
  return Layout(layout);
}

// The descriptors of a shape for the library, built once. Without `fused`, they describe the plain product,
// and a kernel runs the epilogue.
struct Prepared {
  bool fused = true;
  Desc desc;
  Layout first;   // B
  Layout second;  // A
  Layout result;
  cublasLtMatmulAlgo_t algorithm{};
};

// The operands that a shape is measured with.
struct TrialOperands {
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
    RM_TRY(Check(cublasLtCreate(&handle), "creating a handle of cuBLASLt"));
    handle_.reset(handle);
    RM_ASSIGN(workspace_, Buffer<std::byte>::Create(kWorkspaceBytes));
    RM_ASSIGN(stream_, OwnedStream::Create());
    ReadStored();
    return Ok();
  }

  Status Prepare(const GemmShape& shape) override {
    if (prepared_.contains(shape)) return Ok();
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
    const auto it = prepared_.find(shape);
    CHECK(it != prepared_.end(), "the GEMM {} x {} x {} was not prepared", shape.m, shape.n, shape.k);
    const Prepared& prepared = it->second;
    const cublasStatus_t status = Multiply(prepared, prepared.algorithm, shape, operands, stream);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    // Prepare has rejected every shape that the library rejects, so the device has failed. The library has
    // its own CUDA runtime, so its error is not the last error of this thread. Query the device instead; the
    // next Synchronize reports its error.
    const cudaError_t device = cudaStreamQuery(stream);
    CHECK(device != cudaSuccess && device != cudaErrorNotReady, "cuBLASLt rejected the GEMM {} x {} x {}: {}",
          shape.m, shape.n, shape.k, cublasLtGetStatusString(status));
  }

  std::string Choices() const override { return choices_.Text(); }

  Status Adopt(const std::string& text) override {
    RM_ASSIGN(const GemmChoices theirs, GemmChoices::Parse(text, choices_.key()));
    for (const auto& [shape, choice] : theirs.all()) {
      RM_ASSIGN(const bool works, Works(shape, choice));
      if (!works)
        return Error{Code::kInvalid, fmt::format("the job's algorithm for the GEMM {} x {} x {} "
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
    RM_ASSIGN(Prepared prepared, Describe(shape, choice.fused));
    std::memcpy(&prepared.algorithm, choice.algorithm.data(), sizeof(prepared.algorithm));
    choices_.Set(shape, choice);
    prepared_.insert_or_assign(shape, std::move(prepared));
    return Ok();
  }

  Result<Prepared> Describe(const GemmShape& whole, bool fused) const {
    const GemmShape shape = fused ? whole : WithoutEpilogue(whole);
    Prepared prepared;
    prepared.fused = fused;
    cublasLtMatmulDesc_t desc = nullptr;
    RM_TRY(Check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a GEMM"));
    prepared.desc.reset(desc);
    const cublasOperation_t first = shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_TRANSA, first));
    RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_TRANSB, second));
    if (shape.epilogue != Epilogue::kNone) {
      RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, LibraryEpilogue(shape.epilogue)));
      // A placeholder with the alignment of operands, until there are operands.
      GemmOperands aligned;
      aligned.bias = aligned.aux = workspace_.get();
      RM_TRY(Check(SetOperands(desc, shape, aligned), "describing a GEMM"));
      if (HasKernel(shape.epilogue)) RM_TRY(Set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n));
    }
    RM_ASSIGN(prepared.first, MakeLayout(shape.in, StoredMatrixB(shape)));
    RM_ASSIGN(prepared.second, MakeLayout(shape.in, StoredMatrixA(shape)));
    RM_ASSIGN(prepared.result, MakeLayout(shape.out, StoredMatrixC(shape)));
    return prepared;
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

  // Sets the operands of the epilogue that the descriptor holds.
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
    RM_ASSIGN(const Prepared prepared, Describe(shape, choice.fused));
    cublasLtMatmulAlgo_t algorithm;
    std::memcpy(&algorithm, choice.algorithm.data(), sizeof(algorithm));
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_.get(), prepared.desc.get(), prepared.first.get(),
                                   prepared.second.get(), prepared.result.get(), prepared.result.get(),
                                   &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           static_cast<int64_t>(result.workspaceSize) <= kWorkspaceBytes;
  }

  cublasStatus_t Multiply(const Prepared& prepared, const cublasLtMatmulAlgo_t& algorithm,
                          const GemmShape& shape, const GemmOperands& whole, Stream stream) {
    const float one = 1;
    const float beta = shape.accumulate ? 1 : 0;
    const GemmOperands operands = prepared.fused ? whole : WithoutEpilogue(shape, whole);
    cublasStatus_t status =
        prepared.fused ? SetOperands(prepared.desc.get(), shape, operands) : CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = cublasLtMatmul(handle_.get(), prepared.desc.get(), &one, operands.b, prepared.first.get(),
                            operands.a, prepared.second.get(), &beta, operands.c, prepared.result.get(),
                            operands.c, prepared.result.get(), &algorithm, workspace_.get(),
                            static_cast<size_t>(kWorkspaceBytes), stream);
    if (status == CUBLAS_STATUS_SUCCESS && !prepared.fused) RunEpilogue(stream, shape, whole);
    return status;
  }

  Result<std::vector<cublasLtMatmulHeuristicResult_t>> Candidates(const Prepared& prepared,
                                                                  const GemmShape& shape) {
    cublasLtMatmulPreference_t made = nullptr;
    RM_TRY(Check(cublasLtMatmulPreferenceCreate(&made), "describing a GEMM"));
    const Preference preference(made);
    RM_TRY(Set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes)));
    // Exclude reductions that add partial sums in the order of completion, whose bits differ from run to run.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    RM_TRY(Set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), prepared.desc.get(), prepared.first.get(),
                                       prepared.second.get(), prepared.result.get(), prepared.result.get(),
                                       made, static_cast<int>(results.size()), results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      found = 0;  // not for this shape or this epilogue
    else
      RM_TRY(Check(status,
                   fmt::format("finding an algorithm for the GEMM {} x {} x {}", shape.m, shape.n, shape.k)));
    results.resize(static_cast<size_t>(found));
    std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    return results;
  }

  // Returns the first candidate that runs, with a fused epilogue before those with a separate kernel. With
  // config_.measure, measures all of them and returns the fastest.
  Result<GemmChoice> Choose(const GemmShape& shape) {
    std::optional<GemmChoice> best;
    std::optional<TrialOperands> trial;
    for (const bool fused : {true, false}) {
      // The library needs rows of aux whose length is a multiple of 8.
      if (fused ? HasKernel(shape.epilogue) && shape.n % 8 != 0 : !HasKernel(shape.epilogue)) continue;
      RM_ASSIGN(const Prepared prepared, Describe(shape, fused));
      RM_ASSIGN(const auto candidates, Candidates(prepared, shape));
      for (const auto& candidate : candidates) {
        GemmChoice choice{.fused = fused};
        std::memcpy(choice.algorithm.data(), &candidate.algo, sizeof(candidate.algo));
        if (!trial) {
          RM_ASSIGN(trial, MakeTrialOperands(shape));
        }
        RM_ASSIGN(const std::optional<double> milliseconds, Measure(prepared, candidate.algo, shape, *trial));
        if (!milliseconds) continue;
        if (!config_.measure) return choice;
        if (best && *milliseconds >= best->milliseconds) continue;
        choice.milliseconds = *milliseconds;
        best = choice;
      }
    }
    if (best) return *best;
    RM_TRY(Synchronize(stream_.get()));  // reports a lost device as the cause
    return Error{Code::kInvalid, fmt::format("cuBLASLt {} has no algorithm for the GEMM {} x {} x {} on {}",
                                             cublasLtGetVersion(), shape.m, shape.n, shape.k, device_.name)};
  }

  Result<TrialOperands> MakeTrialOperands(const GemmShape& shape) {
    TrialOperands trial;
    RM_ASSIGN(trial.a, RandomMatrix(stream_.get(), shape.in, StoredMatrixA(shape).Elements(), 1));
    RM_ASSIGN(trial.b, RandomMatrix(stream_.get(), shape.in, StoredMatrixB(shape).Elements(), 2));
    RM_ASSIGN(trial.c, RandomMatrix(stream_.get(), shape.out, StoredMatrixC(shape).Elements(), 3));
    RM_ASSIGN(trial.bias, RandomMatrix(stream_.get(), shape.out, shape.n, 4));
    if (HasKernel(shape.epilogue)) {
      RM_ASSIGN(trial.aux, RandomMatrix(stream_.get(), shape.out, shape.m * shape.n, 5));
    }
    return trial;
  }

  // Returns the shortest duration of several runs in milliseconds; nullopt when the candidate does not run.
  Result<std::optional<double>> Measure(const Prepared& prepared, const cublasLtMatmulAlgo_t& algorithm,
                                        const GemmShape& shape, const TrialOperands& trial) {
    const GemmOperands operands{trial.a.get(), trial.b.get(), trial.c.get(), trial.bias.get(),
                                trial.aux.get()};
    RM_ASSIGN(Event begin, Event::Create());
    RM_ASSIGN(Event end, Event::Create());
    double best = 0;
    for (int i = 0; i < kWarmUps + kRepetitions; ++i) {
      begin.Record(stream_.get());
      if (Multiply(prepared, algorithm, shape, operands, stream_.get()) != CUBLAS_STATUS_SUCCESS)
        return std::optional<double>();
      end.Record(stream_.get());
      RM_TRY(end.Synchronize());
      RM_ASSIGN(const double milliseconds, Event::Elapsed_ms(begin, end));
      if (i == kWarmUps || (i > kWarmUps && milliseconds < best)) best = milliseconds;
    }
    return std::optional<double>(best);
  }

  std::string StoredPath() const {
    const std::string key = fmt::format("{}, driver {}", choices_.key(), device_.driver);
    return ChoicePath(config_.cache_folder, "products", key);
  }

  // Ignores a file that is missing, damaged or has another key: its shapes are then measured again.
  void ReadStored() {
    if (config_.cache_folder.empty()) return;
    if (auto read = GemmChoices::Parse(ReadStoredChoices(StoredPath()), choices_.key()); read.ok())
      stored_ = std::move(*read);
  }

  void WriteStored() const {
    if (!config_.cache_folder.empty()) StoreChoices(StoredPath(), stored_.Text());
  }

  Config config_;
  DeviceProperties device_;
  Handle handle_;
  Buffer<std::byte> workspace_;
  OwnedStream stream_;   // for measurements
  GemmChoices choices_;  // of the prepared shapes
  GemmChoices stored_;   // these and the choices of earlier runs
  std::map<GemmShape, Prepared> prepared_;
  uint64_t version_ = 0;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(const Config& config) {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess)
    return Error{Code::kUnavailable, "GEMM needs a GPU, and this thread has none"};
  RM_ASSIGN(const DeviceProperties device, BindDevice(index));
  auto gemm = std::make_unique<CublasLt>(config, device);
  RM_TRY(gemm->Start());
  return std::unique_ptr<Gemm>(std::move(gemm));
}

}  // namespace ringmaster::cuda
