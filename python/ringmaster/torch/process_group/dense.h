// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <ATen/ATen.h>

#include <utility>

namespace ringmaster {

// The memory of a tensor in row-major order: its own where that is the order, else a copy.
class Dense {
 public:
  explicit Dense(const at::Tensor& tensor) : tensor_(tensor), dense_(tensor.contiguous()) {}

  char* data() const { return static_cast<char*>(dense_.data_ptr()); }
  size_t bytes() const { return dense_.nbytes(); }
  size_t count() const { return static_cast<size_t>(dense_.numel()); }

  // Writes a copy back into the tensor.
  void Write() {
    if (!dense_.is_same(tensor_)) tensor_.copy_(dense_);
  }

 private:
  at::Tensor tensor_;
  const at::Tensor dense_;
};

}  // namespace ringmaster
