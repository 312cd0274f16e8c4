// SPDX-License-Identifier: Apache-2.0

// print_logits CHECKPOINT TOKEN...: prints the logits of one sample, one position per line, as text that
// preserves every bit. Used by transformers_logits.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cli/weights/checkpoint_model.h"

int main(int argc, char** argv) {
  using namespace ringmaster;
  if (argc < 3) {
    std::fprintf(stderr, "usage: print_logits CHECKPOINT TOKEN...\n");
    return 2;
  }
  auto loaded = cli::CheckpointModel::Load(argv[1], 1);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 2;
  }
  const auto context = static_cast<size_t>(loaded->model().config().context);
  const auto vocabulary = static_cast<size_t>(loaded->model().config().vocabulary);
  std::vector<int32_t> tokens;
  for (int i = 2; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
  const size_t used = tokens.size();
  if (used > context) {
    std::fprintf(stderr, "at most %zu tokens\n", context);
    return 2;
  }
  tokens.resize(context, 0);
  const std::vector<int32_t> targets(context, 0);
  engine::Batch batch;
  batch.samples = 1;
  batch.tokens = tokens;
  batch.targets = targets;
  auto logits = loaded->model().Logits(loaded->params(), batch);
  if (!logits.ok()) {
    std::fprintf(stderr, "%s\n", logits.error().message.c_str());
    return 1;
  }
  for (size_t position = 0; position < used; ++position)
    for (size_t v = 0; v < vocabulary; ++v)
      std::printf("%.9g%c", static_cast<double>((*logits)[position * vocabulary + v]),
                  v + 1 == vocabulary ? '\n' : ' ');
  return 0;
}
