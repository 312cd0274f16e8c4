// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/rma_collectives.h"

#include "worker/compute/cuda/kernels/combine_operands.h"

namespace ringmaster::cuda {
namespace {

// Two halves: gets fill one while the device sums the other. With 8 members a get is then 1 MiB long, which
// is enough for the full speed of any network.
constexpr int64_t kScratchBytes = int64_t{16} << 20;

template <class T>
void CombineOf(Stream stream, const fabric::rma::DeviceWork::Operands& operands) {
  const auto count = static_cast<int64_t>(operands.own.size() / sizeof(T));
  const int others = static_cast<int>(operands.others.size() / operands.own.size());
  kernels::CombineOperands<T>(
      stream, count, others + 1, operands.rank, operands.combiner.op == fabric::ReduceOp::kMax,
      reinterpret_cast<const T*>(operands.others.data()), reinterpret_cast<T*>(operands.own.data()));
}

}  // namespace

void RmaCollectives::Work::Combine(const Operands& operands) {
  if (operands.own.empty()) return;
  if (operands.combiner.element == fabric::Element::kFloat)
    CombineOf<float>(stream_, operands);
  else
    CombineOf<int32_t>(stream_, operands);
}

void RmaCollectives::Work::Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  CopyOnDevice(stream_, to.data(), from.data(), static_cast<int64_t>(from.size()));
}

std::unique_ptr<RmaCollectives> RmaCollectives::Create(Stream stream, const std::string& host_id,
                                                       const std::vector<std::span<std::byte>>& memory) {
  auto rma = std::unique_ptr<RmaCollectives>(new RmaCollectives(stream));
  rma->domain_ =
      fabric::rma::Domain::Create({.cuda = !HostAccessible(MemoryKind::kDevice), .host_id = host_id});
  if (!rma->domain_->supported()) return rma;
  auto scratch = Buffer<std::byte>::Create(kScratchBytes);
  if (!scratch.ok()) {
    rma->domain_->Disable(scratch.error().message);
    return rma;
  }
  rma->scratch_ = std::move(*scratch);
  for (const std::span<std::byte> part : memory) rma->domain_->Register(part);
  rma->domain_->Register(rma->scratch_.span());
  return rma;
}

Result<std::unique_ptr<fabric::AsyncCommunicator>> RmaCollectives::Connect(fabric::Communicator* host,
                                                                           const std::atomic<bool>* cancel) {
  return domain_->Connect(host, cancel, &work_, scratch_.span());
}

}  // namespace ringmaster::cuda
