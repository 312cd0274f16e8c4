#include "worker/trainer/step.h"

#include <algorithm>
#include <cmath>

#include "worker/numerics/exact.h"
#include "worker/optimizer/optimizer.h"

namespace ringmaster::trainer {
namespace {

using engine::Bucket;
using engine::kBlock;

template <class Span>
Span Elements(Span all, const Bucket& bucket) {
  return all.subspan(static_cast<size_t>(bucket.begin), static_cast<size_t>(bucket.end - bucket.begin));
}

template <class Span>
Span Blocks(Span all, const Bucket& bucket) {
  return all.subspan(static_cast<size_t>(bucket.begin / kBlock),
                     static_cast<size_t>((bucket.end - bucket.begin) / kBlock));
}

// As long as it lives, this rank computes nothing but waits for what others send.
class Waiting {
 public:
  explicit Waiting(agent::TrainerSlot* slot) : slot_(slot) { Say(agent::Activity::kExchanging); }
  ~Waiting() { Say(agent::Activity::kComputing); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void Say(agent::Activity activity) const {
    if (slot_ != nullptr) slot_->SetActivity(activity);
  }
  agent::TrainerSlot* slot_;
};

}  // namespace

Stepper::Stepper(const Parts& parts)
    : parts_(parts),
      layout_(parts.model->layout()),
      quantum_bits_(numerics::QuantumBits(parts.config->micro_batches)),
      reader_(*parts.dataset, parts.config->SamplesPerMicroBatch()),
      gradients_(static_cast<size_t>(layout_.elements)) {}

Result<std::unique_ptr<Stepper>> Stepper::Create(const Parts& parts) {
  std::unique_ptr<Stepper> stepper(new Stepper(parts));
  const auto elements = static_cast<size_t>(stepper->layout_.elements);
  RM_ASSIGN(const std::span<std::byte> sums,
            parts.fabric->Allocate(elements * sizeof(int32_t), "gradient sums"));
  stepper->sums_ = {reinterpret_cast<int32_t*>(sums.data()), elements};
  stepper->float_sums_ = {reinterpret_cast<float*>(sums.data()), elements};
  const auto words = static_cast<size_t>(Board::Words(
      parts.config->exact ? stepper->layout_.elements / kBlock : 0, parts.config->micro_batches));
  RM_ASSIGN(const std::span<std::byte> board, parts.fabric->Allocate(words * sizeof(int32_t), "board"));
  stepper->board_memory_ = {reinterpret_cast<int32_t*>(board.data()), words};
  return stepper;
}

Result<StepResult> Stepper::Run(fabric::Communicator* comm, const std::atomic<bool>* cancel,
                                const std::function<bool()>& wants_to_stop) {
  const RunConfig& config = *parts_.config;
  TrainState& state = *parts_.state;
  const int64_t epoch_size = parts_.dataset->size(data::Split::kTrain);
  const data::StepSamples samples =
      data::NextStep(state.current().cursor, config.samples_per_step, epoch_size);
  const std::span<const int32_t> agreed = state.current().exponents;
  exponents_.assign(agreed.begin(), agreed.end());

  Board board(board_memory_, static_cast<int64_t>(exponents_.size()), config.micro_batches);
  while (true) {
    board.Clear(numerics::kZero);
    const Status computed = Gradients(comm, samples, cancel, &board);
    // Also after a failure: nothing may be in flight when the memory is used again.
    const Waiting waiting(parts_.slot);
    const Status reduced = queue_.Drain();
    RM_TRY(computed);
    RM_TRY(reduced);
    if (wants_to_stop()) board.Cast(Board::kStandStill);
    RM_TRY(board.Exchange(comm));
    if (!config.exact || !numerics::Overflowed(board.maxima(), exponents_)) break;
    if (numerics::NotFinite(board.maxima())) break;
    // Some block outgrew its exponent (in the first step: every block). The maxima tell what fits; do the
    // step again.
    numerics::ExponentsForRedo(board.maxima(), exponents_);
  }

  std::vector<double> losses(static_cast<size_t>(config.micro_batches));
  for (size_t v = 0; v < losses.size(); ++v) losses[v] = board.GetDouble(static_cast<int64_t>(v));
  StepResult result;
  result.samples = samples.count;
  result.loss = numerics::OrderedSum(losses) / static_cast<double>(samples.count);
  result.learning_rate = config.schedule.At(state.step() + 1);
  result.stand_still = board.Voted(Board::kStandStill);

  const double scale = 1.0 / static_cast<double>(samples.count);
  bool finite = true;
  if (config.exact) {
    finite = !numerics::NotFinite(board.maxima());
    if (finite) numerics::Decode(sums_, exponents_, quantum_bits_, scale, gradients_);
  } else {
    const auto factor = static_cast<float>(scale);
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = float_sums_[i] * factor;
  }
  if (finite) result.gradient_norm = numerics::Norm(gradients_);
  if (!finite || !std::isfinite(result.gradient_norm) || !std::isfinite(result.loss)) {
    return Error{Code::kInvalid, fmt::format("step {}: the gradient is not finite (loss {}); lower "
                                             "spec.training.optimizer.learningRate or set clipNorm",
                                             state.step() + 1, result.loss)};
  }
  Update(result);
  if (config.exact) {
    std::ranges::copy(exponents_, state.next().exponents.begin());
    numerics::ExponentsForNext(layout_, board.maxima(), state.step() + 1, state.next().exponents);
  }
  state.next().loss = result.loss;
  state.next().cursor = data::Advance(state.current().cursor, samples, epoch_size);
  state.Commit();
  return result;
}

Status Stepper::Gradients(fabric::Communicator* comm, const data::StepSamples& samples,
                          const std::atomic<bool>* cancel, Board* board) {
  const RunConfig& config = *parts_.config;
  const int first = FirstMicroBatch(config.micro_batches, comm->world(), comm->rank());
  const int end = FirstMicroBatch(config.micro_batches, comm->world(), comm->rank() + 1);
  for (int v = first; v < end; ++v) {
    const data::Slice slice = data::MicroBatch(samples, config.samples_per_step, config.micro_batches, v);
    const engine::Batch batch = reader_.Train(config.seed, samples.epoch, samples.position + slice.begin,
                                              samples.position + slice.end);
    auto sums = parts_.model->ForwardBackward(
        {parts_.state->current().params, parts_.state->version()}, batch, gradients_,
        [&](int bucket) { TakeBucket(comm, bucket, v == first, v + 1 == end, board); }, cancel);
    if (!sums.ok()) return sums.error();
    board->PutDouble(v, sums->loss);
  }
  return Ok();
}

void Stepper::TakeBucket(fabric::Communicator* comm, int bucket_index, bool first, bool last, Board* board) {
  const Bucket& bucket = layout_.buckets[static_cast<size_t>(bucket_index)];
  const std::span<const float> gradient = Elements(std::span<const float>(gradients_), bucket);
  if (parts_.config->exact) {
    const std::span<int32_t> sums = Elements(sums_, bucket);
    numerics::Accumulate(gradient, Blocks(std::span<const int32_t>(exponents_), bucket), quantum_bits_, first,
                         sums, Blocks(board->maxima(), bucket));
    if (last && comm->world() > 1) queue_.Add(comm, sums);
    return;
  }
  const std::span<float> sums = Elements(float_sums_, bucket);
  if (first) {
    std::ranges::copy(gradient, sums.begin());
  } else {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += gradient[i];
  }
  if (last && comm->world() > 1) queue_.Add(comm, sums);
}

void Stepper::Update(const StepResult& result) {
  const TrainState::Image& current = parts_.state->current();
  TrainState::Image& next = parts_.state->next();
  const optimizer::Config& config = parts_.config->optimizer;
  const optimizer::StepScalars scalars = {parts_.state->step() + 1, result.learning_rate,
                                          optimizer::ClipFactor(config.clip_norm, result.gradient_norm)};
  optimizer::StepAll(
      config, scalars, layout_,
      {gradients_, current.params, current.state0, current.state1, next.params, next.state0, next.state1},
      parts_.config->model.threads);
}

}  // namespace ringmaster::trainer
