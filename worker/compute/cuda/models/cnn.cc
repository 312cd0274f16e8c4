// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/cnn.h"

#include <algorithm>
#include <utility>

#include "worker/compute/cuda/kernels/maxpool.h"
#include "worker/compute/cuda/kernels/relu.h"

namespace ringmaster::cuda {

template <class T>
Cnn<T>::Cnn(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
            const ModelOptions& options)
    : Cnn(config, engine::MakeCnnTensors(config), stream, algorithms, options) {}

template <class T>
Cnn<T>::Cnn(const engine::ModelConfig& config, engine::CnnTensors tensors, Stream stream,
            const Algorithms& algorithms, const ModelOptions& options)
    : Base(config, std::move(tensors.tensors), tensors.dense, stream, algorithms, options),
      stages_(std::move(tensors.stages)),
      act_(stages_.size()) {
  const int64_t samples = this->samples();
  this->Reserve(images_, samples * engine::ImageSize(config), "batch");
  int64_t patches = 0, conv = 0;
  int64_t scratch = 0;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const engine::ConvTensors& stage = stages_[i];
    this->Reserve(act_[i].conv, Patches(i) * stage.out, "activations");
    this->Reserve(act_[i].pooled, samples * stage.PooledSize(), "activations");
    this->Reserve(act_[i].winner, samples * stage.PooledSize(), "activations");
    this->Reserve(act_[i].d_pooled, samples * stage.PooledSize(), "gradients of activations");
    patches = std::max(patches, Patches(i) * 9 * stage.in);
    conv = std::max(conv, Patches(i) * stage.out);
    scratch = std::max(scratch, kernels::ColumnSumsScratch(Patches(i), stage.out));
    this->Plan(Base::ForwardShape(Patches(i), 9 * stage.in, stage.out, Epilogue::kBias));
    this->Plan(Base::WeightGradientShape(Patches(i), 9 * stage.in, stage.out));
    if (i > 0) this->Plan(Base::InputGradientShape(Patches(i), 9 * stage.in, stage.out));
  }
  this->Reserve(patches_, patches, "patches");
  this->Reserve(d_conv_, conv, "gradients of activations");
  this->Reserve(scratch_, scratch, "scratch");
}

template <class T>
kernels::ImageShape Cnn<T>::InputShape(size_t i) const {
  return {this->samples(), stages_[i].height, stages_[i].width, stages_[i].in};
}
template <class T>
kernels::ImageShape Cnn<T>::ConvShape(size_t i) const {
  return {this->samples(), stages_[i].height, stages_[i].width, stages_[i].out};
}

template <class T>
void Cnn<T>::ForwardStage(size_t i) {
  const engine::ConvTensors& stage = stages_[i];
  StageActivations& act = act_[i];
  kernels::Patches<T>(this->stream(), InputShape(i), Input(i), patches_.get());
  this->Multiply(Base::ForwardShape(Patches(i), 9 * stage.in, stage.out, Epilogue::kBias),
                 {patches_.get(), this->Operand(stage.weight), act.conv.get(), this->Operand(stage.bias)});
  kernels::ReluForward<T>(this->stream(), Patches(i) * stage.out, act.conv.get());
  kernels::MaxPoolForward<T>(this->stream(), ConvShape(i), act.conv.get(), act.pooled.get(),
                             act.winner.get());
}

template <class T>
Status Cnn<T>::Body(const std::atomic<bool>* cancel) {
  for (size_t i = 0; i < stages_.size(); ++i)
    RM_TRY(this->RunSegment(cancel, [&] {
      if (i == 0) kernels::ChannelsLast<T>(this->stream(), InputShape(0), this->images(), images_.get());
      ForwardStage(i);
    }));
  return Ok();
}

template <class T>
void Cnn<T>::BackwardStage(size_t i, float* grads) {
  const engine::ConvTensors& stage = stages_[i];
  StageActivations& act = act_[i];
  kernels::MaxPoolBackward<T>(this->stream(), ConvShape(i), act.d_pooled.get(), act.winner.get(),
                              d_conv_.get());
  kernels::ReluBackward<T>(this->stream(), Patches(i) * stage.out, act.conv.get(), d_conv_.get());
  kernels::Patches<T>(this->stream(), InputShape(i), Input(i), patches_.get());
  this->Multiply(Base::WeightGradientShape(Patches(i), 9 * stage.in, stage.out),
                 {patches_.get(), d_conv_.get(), grads + stage.weight});
  kernels::ColumnSums<T>(this->stream(), Patches(i), stage.out, d_conv_.get(), grads + stage.bias,
                         scratch_.get());
  if (i == 0) return;
  this->Multiply(Base::InputGradientShape(Patches(i), 9 * stage.in, stage.out),
                 {d_conv_.get(), this->Operand(stage.weight), patches_.get()});
  kernels::PatchesBackward<T>(this->stream(), InputShape(i), patches_.get(), act_[i - 1].d_pooled.get());
}

template <class T>
Status Cnn<T>::BodyBackward(float* grads, engine::BucketNotifier& notifier, const std::atomic<bool>* cancel) {
  notifier.Final(this->head().end);
  for (size_t i = stages_.size(); i-- > 0;) {
    RM_TRY(this->RunSegment(cancel, [&] { BackwardStage(i, grads); }));
    notifier.Final(stages_[i].end);
  }
  return Ok();
}

template class Cnn<float>;
template class Cnn<Bf16>;

}  // namespace ringmaster::cuda
