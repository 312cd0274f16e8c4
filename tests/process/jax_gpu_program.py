# SPDX-License-Identifier: Apache-2.0
"""The program of jax_program.py with its gradients on an emulated GPU, for emulated_jax: jax_gpu_program.py STEPS

JAX computes on the CPU, and this program says that its device is one of CUDA. What it passes to the library is copied to memory of the GPU that
the plugin emulates, and what the library writes there is copied back when the program waits for the GPU.
"""

import ctypes
import os
import sys

import ringmaster.jax as rm
from ringmaster import _native


class Handle(_native.Handle):
    def join(self, config, tensors):
        allocate = ctypes.CDLL(os.environ["RINGMASTER_DEVICE_PLUGIN"]).ringmaster_emulated_allocate
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_int64]
        self.sizes = [4 * elements for _, elements, _ in tensors]
        self.memory = [allocate(size) for size in self.sizes]  # by tensor
        self.written = []  # (address, tensor)
        super().join(config, tensors)

    def add(self, tensor, address):
        ctypes.memmove(self.memory[tensor], address, self.sizes[tensor])
        return super().add(tensor, self.memory[tensor])

    def gradient(self, tensor, address):
        super().gradient(tensor, self.memory[tensor])
        self.written.append((address, tensor))

    def synchronize(self):
        super().synchronize()
        for address, tensor in self.written:
            ctypes.memmove(address, self.memory[tensor], self.sizes[tensor])
        self.written.clear()


_native.Handle = Handle
rm._cuda_ordinal = lambda device: 0

import jax_program  # noqa: E402

jax_program.mlp(int(sys.argv[1]))
