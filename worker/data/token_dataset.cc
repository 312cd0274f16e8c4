// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_dataset.h"

#include <optional>
#include <vector>

#include "base/check.h"
#include "worker/data/token_stream.h"

namespace ringmaster::data {
namespace {

int64_t Windows(const TokenStream& stream, int context) { return (stream.size() - 1) / context; }

Error TooShort(const TokenStream& stream, int context) {
  return Problem(Code::kInvalid, stream.path(),
                 fmt::format("has {} tokens, too few for one sample of context {}", stream.size(), context),
                 fmt::format("give at least {} tokens, or a smaller context", context + 1));
}

class TokenDataset final : public Dataset {
 public:
  TokenDataset(const Config& config, TokenStream stream, std::optional<TokenStream> validation)
      : stream_(std::move(stream)), validation_(std::move(validation)) {
    shape_.tokens = true;
    shape_.context = config.context;
    shape_.classes = config.vocabulary;
    const int64_t windows = Windows(stream_, config.context);
    if (validation_) {
      train_ = windows;
      held_out_ = Windows(*validation_, config.context);
    } else {
      held_out_ = static_cast<int64_t>(static_cast<double>(windows) * config.validation_fraction);
      train_ = windows - held_out_;  // at least 1: the fraction is below 1
    }
  }

  const Shape& shape() const override { return shape_; }
  int64_t size(Split split) const override { return split == Split::kTrain ? train_ : held_out_; }

  void Read(Split split, std::span<const int64_t> indices, const Buffers& out) const override {
    const auto context = static_cast<size_t>(shape_.context);
    CHECK(out.tokens.size() == indices.size() * context && out.targets.size() == out.tokens.size(),
          "buffers of {} and {} tokens for {} samples", out.tokens.size(), out.targets.size(),
          indices.size());
    const bool apart = split == Split::kValidation && validation_.has_value();
    const TokenStream& stream = apart ? *validation_ : stream_;
    const int64_t first = split == Split::kValidation && !apart ? train_ : 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      CHECK(indices[i] >= 0 && indices[i] < size(split), "sample {} of {}", indices[i], size(split));
      const int64_t position = (first + indices[i]) * shape_.context;
      stream.Copy(position, out.tokens.subspan(i * context, context));
      stream.Copy(position + 1, out.targets.subspan(i * context, context));
    }
  }

  uint64_t Fingerprint() const override {
    data::Fingerprint fingerprint;
    fingerprint.Add(shape_.context);
    fingerprint.Add(train_);
    fingerprint.Add(held_out_);
    stream_.AddTo(&fingerprint);
    if (validation_) validation_->AddTo(&fingerprint);
    return fingerprint.value();
  }

 private:
  Shape shape_;
  TokenStream stream_;
  std::optional<TokenStream> validation_;
  int64_t train_ = 0;
  int64_t held_out_ = 0;
};

}  // namespace

Result<std::unique_ptr<Dataset>> OpenTokens(const Config& config) {
  if (config.context < 1)
    return Error{Code::kInvalid, fmt::format("context must be at least 1 (got {})", config.context)};
  if (config.vocabulary < 1) {
    return Error{Code::kInvalid, fmt::format("vocabulary must be at least 1 (got {})", config.vocabulary)};
  }
  RM_ASSIGN(TokenStream stream, TokenStream::Open(config.kind, config.path, config.vocabulary));
  if (Windows(stream, config.context) < 1) return TooShort(stream, config.context);
  std::optional<TokenStream> validation;
  if (!config.validation_path.empty()) {
    RM_ASSIGN(validation, TokenStream::Open(config.kind, config.validation_path, config.vocabulary));
    if (Windows(*validation, config.context) < 1) return TooShort(*validation, config.context);
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<TokenDataset>(config, std::move(stream), std::move(validation)));
}

}  // namespace ringmaster::data
