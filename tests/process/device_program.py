# SPDX-License-Identifier: Apache-2.0
"""A program of the C interface for tests/process/emulated_library: gradients in the host's memory, or in that of an emulated GPU.

Takes JSON: steps; pause, in seconds, of each micro-batch; numerics; finishes, the step after which the run ends early (null: none), on
the ranks finish_ranks (null: all); gpu, whether gradients are on the GPU of the plugin that
RINGMASTER_DEVICE_PLUGIN names. Its memory is ordinary memory, so the program computes the same on both.
"""

import ctypes
import json
import os
import sys
import threading

from ringmaster import _native

SIZES = {"out": 3, "row": 1024, "in": 2500}  # elements; the last one ends within a block
MICRO_BATCHES = 6


class Program:
    def __init__(self, wanted):
        self.wanted = wanted
        self.plugin = ctypes.CDLL(os.environ["RINGMASTER_DEVICE_PLUGIN"]) if wanted["gpu"] else None
        self.weights = [(ctypes.c_float * size)(*[0.01 * (i % 7) for i in range(size)]) for size in SIZES.values()]
        self.gradients = [self.allocate(size) for size in SIZES.values()]
        self.run = _native.Handle(None)

    def allocate(self, size):
        """Returns floats in the memory of gradients."""
        if self.plugin is None:
            return (ctypes.c_float * size)()
        allocate = self.plugin.ringmaster_emulated_allocate
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_int64]
        return (ctypes.c_float * size).from_address(allocate(4 * size))

    def compute(self, step, v):
        """Adds the gradient of a micro-batch, whose range changes with the steps."""
        threading.Event().wait(self.wanted["pause"])
        factor = 1.0 + 0.5 * (step % 5)
        loss = 0.0
        for tensor, (weights, gradient) in enumerate(zip(self.weights, self.gradients)):
            for i, weight in enumerate(weights):
                error = weight - ((i * 37 + v * 101 + step * 13) % 211) / 211
                gradient[i] = factor * error
                loss += error * error
            if self.run.add(tensor, ctypes.addressof(gradient)) != _native.OK:
                return False
        return self.run.end_micro_batch(loss) == _native.OK

    def take_step(self, event):
        for v in range(event.first, event.end):
            status = self.run.begin_micro_batch(v)
            if status == _native.REPEAT or (status == _native.OK and not self.compute(event.step, v)):
                return
        reduced = self.run.reduce()
        if reduced is None:
            return
        for tensor, (weights, gradient) in enumerate(zip(self.weights, self.gradients)):
            self.run.gradient(tensor, ctypes.addressof(gradient))
            for i, mean in enumerate(gradient):
                weights[i] -= 0.1 * mean
        self.run.committed(0.1, reduced[1])
        ranks = self.wanted["finish_ranks"]
        if event.step == self.wanted["finishes"] and (ranks is None or event.rank in ranks):
            self.run.finish()

    def train(self):
        config = _native.Config(
            steps=self.wanted["steps"], micro_batches=MICRO_BATCHES, numerics=_native.NUMERICS[self.wanted["numerics"]],
            checkpoint_every_steps=-1,
            device=_native.DEVICE_CUDA if self.plugin else _native.DEVICE_HOST)
        self.run.join(config, [(name, size, 0) for name, size in SIZES.items()])
        if self.plugin:
            self.run.set_stream(0)
        while True:
            event = self.run.next()
            if event.kind == _native.EVENT_STEP:
                self.take_step(event)
            elif event.kind == _native.EVENT_DESCRIBE:
                self.run.describe([(name, "F32", ctypes.addressof(weights), ctypes.sizeof(weights), _native.PARAMETER)
                                   for name, weights in zip(SIZES, self.weights)], b"")
            elif event.kind == _native.EVENT_LOAD:
                arrays = {event.arrays[i].name.decode(): event.arrays[i] for i in range(event.array_count)}
                for name, weights in zip(SIZES, self.weights):
                    ctypes.memmove(weights, arrays[name].data, arrays[name].bytes)
            else:
                return


program = Program(json.loads(sys.argv[1]))
program.train()
code = program.run.exit_code()
program.run.close()
sys.exit(code)
