// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/operation.h"

#include <fmt/format.h>

namespace ringmaster::fabric {
namespace {

constexpr uint32_t kReduces = 1u << 8;
constexpr uint32_t kIsFloat = 1u << 9;
constexpr uint32_t kIsMax = 1u << 10;
constexpr int kRootShift = 12;

const char* NameOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kAllToAll:
      return "all-to-all";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kTransfer:
      return "send or receive";
    case OperationKind::kUnknown:
      break;
  }
  return "no known operation";
}

}  // namespace

uint32_t MakeCall(OperationKind kind, const Combiner* combiner, int root) {
  uint32_t call = static_cast<uint32_t>(kind) | static_cast<uint32_t>(root + 1) << kRootShift;
  if (combiner == nullptr) return call;
  call |= kReduces;
  if (combiner->element == Element::kFloat) call |= kIsFloat;
  if (combiner->op == ReduceOp::kMax) call |= kIsMax;
  return call;
}

std::string Describe(const Operation& operation) {
  std::string text = fmt::format("{} of {} bytes", NameOf(static_cast<OperationKind>(operation.call & 0xff)),
                                 operation.bytes);
  if ((operation.call & kReduces) != 0)
    text += fmt::format(" ({}, {})", (operation.call & kIsFloat) != 0 ? "float" : "int32",
                        (operation.call & kIsMax) != 0 ? "max" : "sum");
  if (const uint32_t root = operation.call >> kRootShift; root != 0)
    text += fmt::format(" with root {}", root - 1);
  return text + fmt::format(", number {}", operation.number);
}

}  // namespace ringmaster::fabric
