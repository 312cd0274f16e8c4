// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/mlp.h"

#include <utility>

#include "worker/compute/cuda/kernels/convert.h"
#include "worker/compute/cuda/kernels/relu.h"

namespace ringmaster::cuda {

template <class T>
Mlp<T>::Mlp(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
            const ModelOptions& options)
    : Mlp(config, engine::MakeMlpTensors(config), stream, algorithms, options) {}

template <class T>
Mlp<T>::Mlp(const engine::ModelConfig& config, engine::MlpTensors tensors, Stream stream,
            const Algorithms& algorithms, const ModelOptions& options)
    : Base(config, std::move(tensors.tensors), tensors.dense.back(), stream, algorithms, options),
      dense_(std::move(tensors.dense)),
      hidden_(static_cast<size_t>(config.layers)) {
  const int64_t rows = this->samples();
  if constexpr (Base::kType == DType::kBf16) this->Reserve(rounded_, rows * dense_[0].in, "batch");
  for (Buffer<T>& hidden : hidden_) this->Reserve(hidden, rows * config.width, "activations");
  for (Buffer<T>& d : d_hidden_) this->Reserve(d, rows * config.width, "gradients of activations");
  this->Reserve(scratch_, kernels::ColumnSumsScratch(rows, config.width), "scratch");
  for (size_t i = 0; i + 1 < dense_.size(); ++i) {
    this->Plan(Base::ForwardShape(rows, dense_[i].in, dense_[i].out, Epilogue::kBias));
    this->Plan(Base::WeightGradientShape(rows, dense_[i].in, dense_[i].out));
    if (i > 0) this->Plan(Base::InputGradientShape(rows, dense_[i].in, dense_[i].out));
  }
}

template <class T>
const T* Mlp<T>::Input(size_t i) const {
  if (i > 0) return hidden_[i - 1].get();
  if constexpr (Base::kType == DType::kBf16)
    return rounded_.get();
  else
    return this->images();
}

template <class T>
Status Mlp<T>::Body(const std::atomic<bool>* cancel) {
  const int64_t rows = this->samples();
  for (size_t i = 0; i + 1 < dense_.size(); ++i) {
    const engine::DenseTensors& layer = dense_[i];
    RM_TRY(this->RunSegment(cancel, [&] {
      if constexpr (Base::kType == DType::kBf16)
        if (i == 0) kernels::ToBf16(this->stream(), rounded_.size(), this->images(), rounded_.get());
      this->Multiply(Base::ForwardShape(rows, layer.in, layer.out, Epilogue::kBias),
                     {Input(i), this->Operand(layer.weight), hidden_[i].get(), this->Operand(layer.bias)});
      kernels::ReluForward<T>(this->stream(), rows * layer.out, hidden_[i].get());
    }));
  }
  return Ok();
}

template <class T>
Status Mlp<T>::BodyBackward(float* grads, engine::BucketNotifier& notifier, const std::atomic<bool>* cancel) {
  const int64_t rows = this->samples();
  notifier.Final(this->head().end);
  for (size_t i = dense_.size() - 1; i-- > 0;) {
    const engine::DenseTensors& layer = dense_[i];
    RM_TRY(this->RunSegment(cancel, [&] {
      T* const d = InputGradient(i + 1);
      kernels::ReluBackward<T>(this->stream(), rows * layer.out, hidden_[i].get(), d);
      this->Multiply(Base::WeightGradientShape(rows, layer.in, layer.out),
                     {Input(i), d, grads + layer.weight});
      kernels::ColumnSums<T>(this->stream(), rows, layer.out, d, grads + layer.bias, scratch_.get());
      if (i > 0)
        this->Multiply(Base::InputGradientShape(rows, layer.in, layer.out),
                       {d, this->Operand(layer.weight), InputGradient(i)});
    }));
    notifier.Final(layer.end);
  }
  return Ok();
}

template class Mlp<float>;
template class Mlp<Bf16>;

}  // namespace ringmaster::cuda
