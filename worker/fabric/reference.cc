// SPDX-License-Identifier: Apache-2.0

#include <vector>

#include "worker/fabric/algorithms.h"

namespace ringmaster::fabric {

Status ReferenceAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                          const Combiner& combiner) {
  const size_t segment = transport.segment_bytes();
  const size_t count = (data.size() + segment - 1) / segment;
  for (size_t k = 0; k < count; ++k) {
    const std::span<std::byte> piece =
        data.subspan(k * segment, std::min(segment, data.size() - k * segment));
    const Tag tag{operation, static_cast<uint32_t>(k)};
    if (transport.rank() == 0) {
      for (int q = 1; q < transport.world(); ++q) {
        RM_TRY(transport.Post(q, tag, {piece, PostedReceive::Action::kAppend, combiner}));
        RM_TRY(transport.Wait(q));
      }
      for (int q = 1; q < transport.world(); ++q) RM_TRY(transport.Send(q, tag, piece));
    } else {
      RM_TRY(transport.Send(0, tag, piece));
      RM_TRY(transport.Flush());
      RM_TRY(transport.Post(0, tag, {piece, PostedReceive::Action::kCopy, {}}));
      RM_TRY(transport.Wait(0));
    }
  }
  return transport.Flush();
}

}  // namespace ringmaster::fabric
