// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/validate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "worker/compute/numerics/exact.h"
#include "worker/trainer/reader.h"
#include "worker/trainer/scalar_exchange.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::trainer {

Result<Validation> Validate(const RunConfig& config, const data::Dataset& dataset, engine::Model* model,
                            const engine::Params& params, fabric::Communicator* comm,
                            const std::atomic<bool>* cancel, agent::TrainerPage* page,
                            const JoinTransfer* join, bool on_host) {
  Validation result;
  const int64_t all = dataset.size(data::Split::kValidation);
  if (all == 0) return result;
  result.samples = config.validate_samples > 0 ? std::min(all, config.validate_samples) : all;
  const int64_t piece = config.SamplesPerMicroBatch();
  const int64_t pieces = (result.samples + piece - 1) / piece;
  const int64_t owners = join != nullptr ? join->owners() : comm->world();
  const int64_t owner = join != nullptr ? join->owner() : comm->rank();
  const int64_t first = owner < 0 ? pieces : owner;
  // Three numbers per piece: loss, correct, predictions.
  std::vector<int32_t> memory(static_cast<size_t>(ScalarExchange::Words(0, 3 * pieces)));
  ScalarExchange exchange(memory, 0, 3 * pieces);
  exchange.Clear(0);
  MicroBatchReader reader(
      dataset, {.max_samples = static_cast<int>(piece), .validation_stride = all / result.samples});
  reader.Start(
      [p = first, owners, piece, pieces, samples = result.samples]() mutable -> std::optional<Window> {
        if (p >= pieces) return std::nullopt;
        const Window window{
            .split = data::Split::kValidation, .begin = p * piece, .end = std::min((p + 1) * piece, samples)};
        p += owners;
        return window;
      });
  for (int64_t p = first; p < pieces; p += owners) {
    if (cancel->load(std::memory_order_relaxed)) return Error{Code::kCancelled, "validation was interrupted"};
    RM_ASSIGN(const engine::Batch batch, reader.Next(cancel, page));
    // A device computes a whole piece without a sign of progress.
    std::optional<Waiting> device;
    if (!on_host) device.emplace(page, agent::Activity::kDevice);
    RM_ASSIGN(const engine::Sums sums, model->Evaluate(params, batch));
    device.reset();
    exchange.PutDouble(3 * p, sums.loss);
    exchange.Put(3 * p + 1, static_cast<uint64_t>(sums.correct));
    exchange.Put(3 * p + 2, static_cast<uint64_t>(sums.predictions));
  }
  {
    const Waiting waiting(page);
    RM_TRY(exchange.Exchange(comm));
  }
  std::vector<double> losses;
  uint64_t correct = 0;
  uint64_t predictions = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    losses.push_back(exchange.GetDouble(3 * p));
    correct += exchange.Get(3 * p + 1);
    predictions += exchange.Get(3 * p + 2);
  }
  result.loss = numerics::OrderedSum(losses) / static_cast<double>(result.samples);
  if (predictions > 0) result.accuracy = static_cast<double>(correct) / static_cast<double>(predictions);
  return result;
}

}  // namespace ringmaster::trainer
