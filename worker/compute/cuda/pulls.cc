#include "worker/compute/cuda/pulls.h"

#include "worker/compute/cuda/kernels/terms.h"

namespace ringmaster::cuda {
namespace {

// Two halves: one is read into while what is in the other is added. With 8 members a read is then 1 MiB long,
// which is enough for the full speed of any network.
constexpr int64_t kScratchBytes = int64_t{16} << 20;

template <class T>
void CombineOf(Stream stream, const fabric::pull::DeviceWork::Terms& terms) {
  const auto count = static_cast<int64_t>(terms.own.size() / sizeof(T));
  const int others = static_cast<int>(terms.others.size() / terms.own.size());
  kernels::CombineTerms<T>(stream, count, others + 1, terms.rank, terms.combiner.op == fabric::ReduceOp::kMax,
                           reinterpret_cast<const T*>(terms.others.data()),
                           reinterpret_cast<T*>(terms.own.data()));
}

}  // namespace

void Pulls::Work::Combine(const Terms& terms) {
  if (terms.own.empty()) return;
  if (terms.combiner.element == fabric::Element::kFloat)
    CombineOf<float>(stream_, terms);
  else
    CombineOf<int32_t>(stream_, terms);
}

void Pulls::Work::Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  CopyOnDevice(stream_, to.data(), from.data(), static_cast<int64_t>(from.size()));
}

std::unique_ptr<Pulls> Pulls::Create(Stream stream, const std::string& host_id,
                                     const std::vector<std::span<std::byte>>& memory) {
  auto pulls = std::unique_ptr<Pulls>(new Pulls(stream));
  pulls->domain_ =
      fabric::pull::Domain::Create({.cuda = !HostReaches(MemoryKind::kDevice), .host_id = host_id});
  if (!pulls->domain_->able()) return pulls;
  auto scratch = Buffer<std::byte>::Create(kScratchBytes);
  if (!scratch.ok()) {
    pulls->domain_->Refuse(scratch.error().message);
    return pulls;
  }
  pulls->scratch_ = std::move(*scratch);
  for (const std::span<std::byte> part : memory) pulls->domain_->Register(part);
  pulls->domain_->Register(pulls->scratch_.span());
  return pulls;
}

Result<std::unique_ptr<fabric::OrderedCommunicator>> Pulls::Connect(fabric::Communicator* host,
                                                                    const std::atomic<bool>* cancel) {
  return domain_->Connect(host, cancel, &work_, scratch_.span());
}

}  // namespace ringmaster::cuda
