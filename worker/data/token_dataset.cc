// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_dataset.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "worker/data/problem.h"
#include "worker/data/split_files.h"
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
  TokenDataset(const Config& config, std::unique_ptr<FilePool> pool, TokenStream stream,
               std::optional<TokenStream> validation)
      : pool_(std::move(pool)), stream_(std::move(stream)), validation_(std::move(validation)) {
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

  // Computes the fingerprint. Call it once, before the first use.
  Status Sample() {
    data::Fingerprint fingerprint;
    fingerprint.Add(shape_.context);
    fingerprint.Add(train_);
    fingerprint.Add(held_out_);
    RM_TRY(stream_.Sample(&fingerprint));
    if (validation_) RM_TRY(validation_->Sample(&fingerprint));
    fingerprint_ = fingerprint.value();
    return Ok();
  }

  Status Read(Split split, std::span<const int64_t> indices, const Buffers& out) const override {
    const auto context = static_cast<size_t>(shape_.context);
    CHECK(out.tokens.size() == indices.size() * context && out.targets.size() == out.tokens.size(),
          "buffers of {} and {} tokens for {} samples", out.tokens.size(), out.targets.size(),
          indices.size());
    const bool apart = split == Split::kValidation && validation_.has_value();
    const TokenStream& stream = apart ? *validation_ : stream_;
    const int64_t first = split == Split::kValidation && !apart ? train_ : 0;
    const auto position = [&](int64_t index) { return (first + index) * shape_.context; };
    for (const int64_t index : indices) {
      CHECK(index >= 0 && index < size(split), "sample {} of {}", index, size(split));
      stream.Announce(position(index), shape_.context + 1);
    }
    std::vector<int32_t> window(context + 1);
    for (size_t i = 0; i < indices.size(); ++i) {
      RM_TRY(stream.Read(position(indices[i]), window));
      std::copy_n(window.begin(), context, out.tokens.begin() + static_cast<std::ptrdiff_t>(i * context));
      std::copy_n(window.begin() + 1, context,
                  out.targets.begin() + static_cast<std::ptrdiff_t>(i * context));
    }
    return Ok();
  }

  Comparison* comparison() const override { return pool_->comparison(); }
  uint64_t Fingerprint() const override { return fingerprint_; }
  std::vector<std::string> Notes() const override { return notes_; }
  void SetNotes(std::vector<std::string> notes) { notes_ = std::move(notes); }

  Result<ContentHash> HashContent(const ContentHashOptions& options) const override {
    ContentHasher hasher(*pool_, options, fingerprint_);
    for (const int64_t number : {int64_t{shape_.context}, train_, held_out_}) hasher.Add(number);
    RM_TRY(stream_.Hash(&hasher));
    if (validation_) RM_TRY(validation_->Hash(&hasher));
    return hasher.value();
  }

 private:
  Shape shape_;
  std::unique_ptr<FilePool> pool_;
  TokenStream stream_;
  std::optional<TokenStream> validation_;
  int64_t train_ = 0;
  int64_t held_out_ = 0;
  uint64_t fingerprint_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

Result<std::unique_ptr<Dataset>> OpenTokens(const Config& config, WorkCounter* counter) {
  if (config.context < 1)
    return Error{Code::kInvalid, fmt::format("context must be at least 1 (got {})", config.context)};
  if (config.vocabulary < 1) {
    return Error{Code::kInvalid, fmt::format("vocabulary must be at least 1 (got {})", config.vocabulary)};
  }
  RM_ASSIGN(SplitFiles split,
            FindSplit(config.path, config.validation_path, TokenStream::SuffixOf(config.kind)));
  auto pool = std::make_unique<FilePool>();
  RM_ASSIGN(TokenStream stream,
            TokenStream::Open(pool.get(), config.kind, config.path, split.train, config.vocabulary, counter));
  if (Windows(stream, config.context) < 1) return TooShort(stream, config.context);
  std::optional<TokenStream> validation;
  if (!config.validation_path.empty() || !split.validation.empty()) {
    const std::string& path = config.validation_path.empty() ? config.path : config.validation_path;
    RM_ASSIGN(validation,
              TokenStream::Open(pool.get(), config.kind, path, split.validation, config.vocabulary, counter));
    if (Windows(*validation, config.context) < 1) return TooShort(*validation, config.context);
  }
  auto dataset =
      std::make_unique<TokenDataset>(config, std::move(pool), std::move(stream), std::move(validation));
  dataset->SetNotes(std::move(split.notes));
  RM_TRY(dataset->Sample());
  return std::unique_ptr<Dataset>(std::move(dataset));
}

}  // namespace ringmaster::data
