// SPDX-License-Identifier: Apache-2.0

// Base class of MLP and CNN: the head is a dense layer that computes the logits of images. All rows are one
// chunk.
#pragma once

#include <utility>

#include "worker/compute/cuda/kernels/bias.h"
#include "worker/compute/cuda/models/device_model.h"

namespace ringmaster::cuda {

template <class T>
class ImageModel : public DeviceModel<T> {
 protected:
  using Base = DeviceModel<T>;
  using Chunk = typename Base::Chunk;

  ImageModel(const engine::ModelConfig& config, engine::Tensors tensors, const engine::DenseTensors& head,
             Stream stream, const Algorithms& algorithms, const ModelOptions& options)
      : Base(config, std::move(tensors), stream, algorithms, options),
        head_(head),
        forward_(Base::ForwardShape(this->samples(), head.in, head.out, Epilogue::kBias)),
        input_gradient_(Base::InputGradientShape(this->samples(), head.in, head.out)),
        weight_gradient_(Base::WeightGradientShape(this->samples(), head.in, head.out)) {
    forward_.ldc = input_gradient_.lda = weight_gradient_.ldb = this->LogitsStride();
    for (const GemmShape& shape : {forward_, input_gradient_, weight_gradient_}) this->Plan(shape);
    this->Reserve(head_scratch_, kernels::ColumnSumsScratch(this->samples(), this->LogitsStride()),
                  "scratch");
  }

  const engine::DenseTensors& head() const { return head_; }

 private:
  // The input of the head, shape (B, in), and the memory of its gradient.
  virtual const T* HeadInput() const = 0;
  virtual T* HeadInputGradient() = 0;

  void Head(const Chunk&) final {
    this->Multiply(forward_,
                   {HeadInput(), this->Operand(head_.weight), this->logits(), this->Operand(head_.bias)});
  }
  void HeadBackward(const Chunk&, float* grads) final {
    this->Multiply(weight_gradient_, {HeadInput(), this->logits(), grads + head_.weight});
    // Columns after the classes are zeros; their sums are written to the padding of the bias, which stays
    // zero.
    kernels::ColumnSums<T>(this->stream(), this->samples(), this->LogitsStride(), this->logits(),
                           grads + head_.bias, head_scratch_.get());
    this->Multiply(input_gradient_, {this->logits(), this->Operand(head_.weight), HeadInputGradient()});
  }

  engine::DenseTensors head_;
  GemmShape forward_, input_gradient_, weight_gradient_;
  Buffer<float> head_scratch_;
};

}  // namespace ringmaster::cuda
