#include "worker/engine/exec.h"

namespace ringmaster::engine {
namespace {

// A panel of a product: large enough that oneDNN's packing is paid back, small enough that a layer of a small
// model still gives several threads something to do.
constexpr int64_t kPanelRows = 128;
constexpr int64_t kPanelColumns = 256;

}  // namespace

Exec::Exec(int threads, Precision precision, const kernels::Kernels& kernels)
    : kernels_(kernels), precision_(precision), pool_(threads) {}

void Exec::Matmul(const kernels::Product& product, const Epilogue& epilogue) {
  const int64_t down = (product.m + kPanelRows - 1) / kPanelRows;
  const int64_t across = (product.n + kPanelColumns - 1) / kPanelColumns;
  // Neighbouring units share the panel of B.
  pool_.Run(down * across, [&](int64_t unit, int) {
    const int64_t row = unit % down * kPanelRows;
    const int64_t column = unit / down * kPanelColumns;
    kernels::Product panel = product;
    panel.m = std::min(kPanelRows, product.m - row);
    panel.n = std::min(kPanelColumns, product.n - column);
    panel.a.data = product.a.At(row, 0);
    panel.b.data = product.b.At(0, column);
    panel.c = product.c + row * product.ldc + column;
    kernels::Matmul(panel);
    if (epilogue.bias == nullptr && epilogue.residual == nullptr) return;
    kernels_.AddBias(
        panel.m, panel.n, panel.c, panel.ldc, epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
        epilogue.residual == nullptr ? nullptr : epilogue.residual + row * product.ldc + column, product.ldc);
  });
}

}  // namespace ringmaster::engine
